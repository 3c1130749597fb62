"""A stream of which every rank of every site reads its own part, in the workers of a DataLoader.

torchrun --standalone --nproc-per-node=1 examples/stream.py                                             # alone
collab lab --sites paris tokyo --rtt 60 -- torchrun --nnodes=2 --nproc-per-node=1 --rdzv-backend=c10d \
    --rdzv-endpoint=paris:29400 examples/stream.py                                                      # two sites

`data_rank()` chooses it: in one world by the rank, in separate worlds by COLLAB_SITE_INDEX and COLLAB_NUM_SHARDS.
"""

import sysconfig
from pathlib import Path

import small
import torch
import torch.distributed as dist
import torch_collab
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

WIDTH = 24  # bytes used of each line


class Lines(IterableDataset):
    """(number, bytes) of this rank's lines of the standard library, read on demand."""

    def __iter__(self):
        worker = get_worker_info()
        workers, mine = (worker.num_workers, worker.id) if worker else (1, 0)
        parts = torch_collab.data_world_size() * workers
        part = torch_collab.data_rank() * workers + mine
        for number, line in enumerate(self.lines()):
            if number % parts == part:
                yield number, torch.tensor(list(line[:WIDTH].ljust(WIDTH)))

    def lines(self):
        for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
            with path.open("rb") as file:
                yield from (line for line in file if len(line) > WIDTH)


dist.init_process_group("collab")
rank = dist.get_rank()
torch.manual_seed(rank)
model = DistributedDataParallel(
    nn.Sequential(nn.Embedding(256, 16), nn.Flatten(), nn.Linear((WIDTH - 1) * 16, 64), nn.ReLU(), nn.Linear(64, 256))
)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
losses, read = [], []
for _, (numbers, rows) in zip(range(small.STEPS), DataLoader(Lines(), batch_size=32, num_workers=2), strict=False):
    read += numbers.tolist()
    loss = nn.functional.cross_entropy(model(rows[:, :-1]), rows[:, -1])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
dist.destroy_process_group()
print(f"rank {rank}: loss {small.fell(losses)}, model {small.digest(model)}, lines {read}\n", end="")
