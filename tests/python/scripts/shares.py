"""What data_rank() says before a world, in worlds of one site, and in a DataLoader's forked worker; one process is each
world's only rank.

    shares.py     prints a line a question
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import torch.distributed as dist
import torch_collab
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset


class Lines(IterableDataset[int]):
    """A stream that every rank takes its own part of."""

    def __iter__(self) -> Iterator[int]:
        yield from range(torch_collab.data_rank(), 12, torch_collab.data_world_size())


def told(name: str, **environment: str) -> None:
    os.environ.update(environment)
    dist.init_process_group("collab", store=dist.HashStore(), rank=0, world_size=1)
    try:
        sampler = DistributedSampler(range(12), shuffle=False)
        read = [int(n) for n in DataLoader(Lines(), batch_size=None, num_workers=1)]  # most scripts ask there alone
        share = (torch_collab.data_rank(), torch_collab.data_world_size())
        print(f"{name}: {share} {(sampler.rank, sampler.num_replicas)} {list(sampler) == read}\n", end="")
    except ValueError as error:
        print(f"{name}: {error}\n", end="")
    finally:
        dist.destroy_process_group()


try:
    torch_collab.data_rank()
except RuntimeError as error:
    print(f"early: {error}\n", end="")
os.environ["COLLAB_SITE"] = "tokyo"
told("one world")
os.environ["COLLAB_COORDINATOR"] = "127.0.0.1:9"  # nobody is asked before the first forward
told("late")
told("late again")
told("shard", COLLAB_SITE_INDEX="1", COLLAB_NUM_SHARDS="3")
told("no shard", COLLAB_SITE_INDEX="3")
