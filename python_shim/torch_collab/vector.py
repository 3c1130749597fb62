"""Which tensors of the DDP modules make the vector, and that the ranks of a site agree on it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from torch_collab import native, refuse

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.nn.parallel import DistributedDataParallel

    from torch_collab.state import World


@dataclass(frozen=True)
class Entry:
    name: str
    tensor: torch.Tensor
    trained: bool  # False: frozen, compared at join only
    buffer: bool = False

    def describe(self) -> str:
        what = "buffer" if self.buffer else "trained" if self.trained else "frozen"
        return f"{self.name} {str(self.tensor.dtype).removeprefix('torch.')} {list(self.tensor.shape)} {what}"


def collect(modules: list[DistributedDataParallel], with_buffers: bool) -> list[Entry]:
    """The tensors in order: the parameters of each DDP in order of construction, then the float buffers of each.

    Buffers come last because ranks of a site may differ in them. Tied tensors come once. With several DDP modules names
    start with `ddp0.`, `ddp1.`, …
    """
    parameters: list[Entry] = []
    buffers: list[Entry] = []
    seen: set[int] = set()
    for index, ddp in enumerate(modules):
        prefix = f"ddp{index}." if len(modules) > 1 else ""
        for name, parameter in ddp.module.named_parameters():
            if id(parameter) not in seen:
                seen.add(id(parameter))
                parameters.append(Entry(prefix + name, parameter, parameter.requires_grad))
        for name, buffer in ddp.module.named_buffers():
            if id(buffer) not in seen and buffer.is_floating_point() and with_buffers:
                seen.add(id(buffer))
                buffers.append(Entry(prefix + name, buffer, True, buffer=True))
    entries = parameters + buffers
    refuse.sharded_parameters([(entry.name, entry.tensor) for entry in entries])
    for entry in entries:
        if entry.trained and not entry.tensor.is_floating_point():
            raise RuntimeError(
                f"collab: {entry.describe()} cannot be averaged; only floating-point parameters can be trained "
                "across sites"
            )
    return entries


def check_same_on_site(entries: list[Entry], group: ProcessGroup, rank: int, ranks: tuple[int, ...], site: str) -> None:
    """Ranks of a site must hold the same vector; the first difference is told at every rank."""
    lines = [entry.describe() for entry in entries]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    digests: list[str] = [""] * len(ranks)
    dist.all_gather_object(digests, digest, group=group)
    if len(set(digests)) == 1:
        return
    everyone: list[list[str]] = [[] for _ in ranks]
    dist.all_gather_object(everyone, lines, group=group)
    other = next(i for i, d in enumerate(digests) if d != digests[0])
    position, ours, theirs = first_difference(everyone[0], everyone[other])
    raise RuntimeError(
        f"collab: the ranks of site {site} hold different models (seen at rank {rank}): tensor {position} is {ours} "
        f"at rank {ranks[0]} and {theirs} at rank {ranks[other]}. Every rank of a site must wrap the same model in "
        "DistributedDataParallel, with the same parameters frozen"
    )


def check_same_between_sites(world: World, entries: list[Entry]) -> None:
    """In one world every rank compares its site's model with the others', so that all are told at once.

    With a coordinator outside, they are compared when they join.
    """
    if not world.one_world or len(world.sites.sites) == 1:
        return
    mine = world.sites.sites.index(world.site)
    lines = [entry.describe() + ("" if entry.trained else " " + native.digest(entry.tensor)) for entry in entries]
    if world.is_leader:
        world.told.set(f"collab/model/{mine}", json.dumps(lines))
    limit = timedelta(seconds=world.config.join_timeout)
    for index, site in enumerate(world.sites.sites):
        if index == mine:
            continue
        key = f"collab/model/{index}"
        try:
            world.told.wait([key], limit)
        except Exception as error:
            raise RuntimeError(
                f"collab: site {site.name} has not come to its first training forward within "
                f"{limit.total_seconds():.0f} s (COLLAB_JOIN_TIMEOUT): {error}"
            ) from None
        theirs = json.loads(world.told.get(key))
        if theirs != lines:
            position, here, there = first_difference(lines, theirs)
            raise RuntimeError(
                f"collab: sites hold different models: tensor {position} is {here} at {world.site.name} and {there} at "
                f"{site.name}. All sites must train the same model, with the same parameters frozen at the same values"
            )


def first_difference(a: list[str], b: list[str]) -> tuple[int, str, str]:
    for position, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right:
            return position, left, right
    position = min(len(a), len(b))
    return position, *(lines[position] if position < len(lines) else "missing" for lines in (a, b))  # type: ignore[return-value]
