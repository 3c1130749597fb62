"""A worker of `torchrun --rdzv-backend=collab` whose world loses a site, or whose sites are at different places.

    worldwide.py FOLDER      FOLDER is shared by all nodes of the test; TEST_WHAT says which of the functions here

lose_a_site: TEST_VICTIM stands by to be killed. TEST_CALL is the first call of the others: begun before the site dies,
or, while FOLDER/hold is there, after it.
uneven: TEST_STEPS of training, a sum over the world, and training to step 60.
meet: each kind of collective once.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from common import RANK, WORLD, batch, say, small_model
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch_collab import native
from torch_collab.world import state

FOLDER = Path(sys.argv[1])
SITE = os.environ["COLLAB_SITE"]


def total(living: list[int], dtype: torch.dtype = torch.float32) -> None:
    tensor = torch.full((1000,), RANK + 1, dtype=dtype)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [sum(rank + 1 for rank in living)] * 1000, tensor[:3]


def fails(call: object, *words: str) -> None:
    try:
        call()  # type: ignore[operator]
    except dist.DistBackendError as error:
        assert all(word in str(error) for word in words), (words, str(error))
    else:
        raise AssertionError("it went through without the dead ranks")


def lose_a_site() -> None:
    sites = state.require().info.sites
    victims = next(list(site.ranks) for site in sites.sites if site.name == os.environ["TEST_VICTIM"])
    living = [rank for rank in range(WORLD) if rank not in victims]
    total(list(range(WORLD)))
    dist.barrier()
    if RANK in victims:
        say("stands by")
        signal.pause()
    while (FOLDER / "hold").exists():
        time.sleep(0.02)
    say("goes into the call")
    if os.environ["TEST_CALL"] == "barrier":
        dist.barrier()
    else:
        total(living)
    say(f"came out at {time.time():.2f}")
    begun = time.monotonic()
    mean = torch.tensor([float(RANK)])
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    assert abs(mean.item() - sum(living) / len(living)) < 1e-5, mean
    total(living, torch.int64)
    dist.barrier()
    named = f"rank {victims[0]} of {os.environ['TEST_VICTIM']}"
    fails(lambda: dist.all_gather([torch.zeros(2) for _ in range(WORLD)], torch.ones(2)), "all_gather", named)
    fails(lambda: dist.all_gather_object([None] * WORLD, "here"), named)
    fails(lambda: dist.broadcast(torch.zeros(1), victims[0]), "broadcast", named)
    from_living = torch.tensor([RANK])
    dist.broadcast(from_living, living[-1])
    assert from_living.item() == living[-1]
    assert dist.get_world_size() == WORLD
    assert time.monotonic() - begun < 25, "who is known to be gone is waited for again"
    dist.destroy_process_group()
    say("survived")


def uneven() -> None:
    ddp = DistributedDataParallel(small_model(RANK))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    for step in range(60):
        if step == int(os.environ["TEST_STEPS"]):
            say(f"goes into the call at step {step}")
            total(list(range(WORLD)))
            say("came out")
        x, y = batch(step, RANK)
        optimizer.zero_grad()
        cross_entropy(ddp(x), y).backward()
        optimizer.step()
    dist.barrier()
    flat = torch.cat([p.detach().flatten() for p in ddp.parameters()])
    digests: list[object] = [None] * WORLD
    dist.all_gather_object(digests, native.digest(flat))
    assert len(set(digests)) == 1, digests
    dist.destroy_process_group()


def meet() -> None:
    total(list(range(WORLD)))
    total(list(range(WORLD)), torch.int64)
    names: list[object] = [None] * WORLD
    dist.all_gather_object(names, SITE)
    told = ["from the last"] if RANK == WORLD - 1 else [None]
    dist.broadcast_object_list(told, WORLD - 1)
    assert told == ["from the last"]
    dist.barrier()
    dist.destroy_process_group()
    say(f"met {' '.join(sorted(str(name) for name in names))}")


def main() -> None:
    dist.init_process_group("collab")
    say(f"started pid {os.getpid()} rank {RANK} of {WORLD}")
    globals()[os.environ["TEST_WHAT"]]()


main()
