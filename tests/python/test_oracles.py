"""Against plain torch, bit for bit: DDP over Gloo for one site, local SGD in one process for two."""

from __future__ import annotations

import copy
import os
from pathlib import Path

import pytest
import torch
from ranks import Ranks, expect_success, run_ranks
from torch import nn
from torch.nn.functional import cross_entropy

HERE = os.environ.get("TEST_DEVICE", "cpu")  # where the scripts compute: elsewhere other bits come of it


def same_bits(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return len(a) == len(b) and all(torch.equal(x.cpu(), y.cpu()) for x, y in zip(a, b, strict=True))


@pytest.mark.slow
def test_one_site_is_ddp_over_gloo_bit_for_bit(tmp_path: Path) -> None:
    every = {"COLLAB_SYNC_EVERY": "7"}  # rounds run in the middle and change nothing
    expect_success(run_ranks("oracle.py", ["a", "a"], "collab", str(tmp_path), environment=every))
    expect_success(run_ranks("oracle.py", ["a", "a"], "gloo", str(tmp_path)))
    for rank in range(2):
        ours = torch.load(tmp_path / f"collab-{rank}.pt")
        theirs = torch.load(tmp_path / f"gloo-{rank}.pt")
        assert ours.keys() == theirs.keys()
        for variant in theirs:
            assert same_bits(ours[variant], theirs[variant]), f"{variant} differs at rank {rank}"


def small_model(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3)).to(HERE)


def batch(step: int, rank: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    x, y = torch.randn(size, 6, generator=generator), torch.randint(0, 3, (size,), generator=generator)
    return x.to(HERE), y.to(HERE)


class ReferenceSite:
    """One site of local SGD in plain torch: DDP's arithmetic for two ranks, no process group."""

    def __init__(self, model: nn.Module, ranks: list[int], size: int) -> None:
        self.model, self.ranks, self.size = copy.deepcopy(model), ranks, size
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.samples = 0

    def step(self, step: int) -> None:
        gradients: list[list[torch.Tensor]] = []
        for rank in self.ranks:
            x, y = batch(step, rank, self.size)
            self.samples += len(x)
            self.model.zero_grad()
            cross_entropy(self.model(x), y).backward()
            gradients.append([p.grad / len(self.ranks) for p in self.model.parameters() if p.grad is not None])
        for p, *parts in zip(self.model.parameters(), *gradients, strict=True):
            p.grad = parts[0] + parts[1]
        self.optimizer.step()


def agree(sites: list[ReferenceSite], anchor: list[torch.Tensor]) -> list[torch.Tensor]:
    """anchor' = anchor - (s0*d0 + s1*d1), with float32 shares of the samples since the last round."""
    total = sum(site.samples for site in sites)
    shares = [torch.tensor(site.samples / total, dtype=torch.float32) for site in sites]
    new = []
    for position, before in enumerate(anchor):
        mean = None
        for share, site in zip(shares, sites, strict=True):
            delta = before - list(site.model.parameters())[position].detach()
            mean = share * delta if mean is None else mean + share * delta
        assert mean is not None
        new.append(before - mean)
    for site in sites:
        site.samples = 0
        for p, value in zip(site.model.parameters(), new, strict=True):
            p.data.copy_(value)
    return new


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["ucx", "gloo"])
def test_two_sites_of_two_ranks_are_local_sgd_bit_for_bit(tmp_path: Path, transport: str) -> None:
    steps, every = 13, 4  # three rounds, and a last one for the odd step
    sizes = {"a": 5, "b": 3}
    environments = [
        {
            "COLLAB_SITE": site,
            "BATCH": str(sizes[site]),
            "COLLAB_CODEC": "fp32",
            "COLLAB_SYNC_EVERY": str(every),
            "COLLAB_TRANSPORT": transport,
        }
        for site in ("a", "a", "b", "b")
    ]
    with Ranks("local_sgd.py", [str(tmp_path), str(steps), str(every)], environments) as ranks:
        expect_success(ranks.join())

    first = small_model(0)  # rank 0's
    sites = [ReferenceSite(first, [0, 1], sizes["a"]), ReferenceSite(first, [2, 3], sizes["b"])]
    anchor = [p.detach().clone() for p in first.parameters()]
    expected = []
    for step in range(steps):
        for site in sites:
            site.step(step)
        if (step + 1) % every == 0:
            anchor = agree(sites, anchor)
            expected.append(anchor)
    expected.append(agree(sites, anchor))

    for rank in range(4):
        seen = torch.load(tmp_path / f"{rank}.pt")
        assert len(seen) == len(expected)
        for number, (ours, theirs) in enumerate(zip(seen, expected, strict=True)):
            assert same_bits(ours, theirs), f"rank {rank} differs after round {number + 1}"
