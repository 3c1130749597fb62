"""One training run whose end is chosen by the first argument."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist
from common import RANK, small_model
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def train(steps: int, workers: int = 0, forever: bool = False) -> DistributedDataParallel:
    data = TensorDataset(torch.randn(64, 6), torch.randint(0, 3, (64,)))
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data), num_workers=workers)
    ddp = DistributedDataParallel(small_model())
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=0.01)
    step = 0
    while True:
        for x, y in loader:
            optimizer.zero_grad()
            cross_entropy(ddp(x), y).backward()
            optimizer.step()
            step += 1
            if step == 3:
                print("training", flush=True)
            if step == steps and not forever:
                return ddp


def main(end: str) -> None:
    dist.init_process_group("collab")
    if end == "destroy":
        train(10)
        dist.destroy_process_group()
    elif end == "no-destroy":
        train(10)
    elif end == "workers":
        train(40, workers=2)
        dist.destroy_process_group()
    elif end == "nothing-trained":
        dist.barrier()
        dist.destroy_process_group()
    elif end == "again":
        train(5)
        dist.destroy_process_group()
        assert not dist.is_initialized()
        torch.nn.Linear(2, 2)(torch.ones(1, 2)).sum().backward()
    elif end == "raise":
        train(5)
        if RANK == 0:
            raise RuntimeError("the script's own mistake")
        time.sleep(0.2)
        sys.exit(3)
    elif end == "forever":
        train(0, forever=True)
    elif end == "idle":
        train(5)
        before = time.process_time()
        time.sleep(2)
        used = time.process_time() - before
        assert used < 0.1, f"{used:.2f} s of CPU in 2 s of sleep"
        names = sorted(thread.name for thread in threading.enumerate())
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, names
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        dist.destroy_process_group()
    print(f"end of {os.getpid()}", flush=True)


main(sys.argv[1])
