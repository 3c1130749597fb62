"""AdamW's state waits on the CPU between steps: twice the model's size that the GPU need not hold.

Each part of the model has an optimizer of its own, so only one part's state is on the GPU at a time; stepped one after
the other they make one step of the model. The parameters stay where they are: what keeps masters of its own on the CPU
(torchao's CPUOffloadOptimizer) undoes rounds.

torchrun --standalone --nproc-per-node=1 examples/offload.py --device cuda                              # alone
collab lab --sites paris tokyo --rtt 60 -- torchrun --nnodes=2 --nproc-per-node=1 --rdzv-backend=c10d \
    --rdzv-endpoint=paris:29400 examples/offload.py                                                     # two sites

With --keep the state stays where it is used: the same numbers.
"""

import argparse

import small
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", default="cpu")
parser.add_argument("--keep", action="store_true", help="keep the state on the device")
ARGUMENTS = parser.parse_args()


def offload(optimizer):
    homes = {}

    def replace(move):
        for parameter, state in optimizer.state.items():
            for name, value in state.items():
                if torch.is_tensor(value) and value.dim() > 0:  # not the number of steps
                    state[name] = move((parameter, name), value)

    def home(key, value):
        if key not in homes:
            homes[key] = torch.empty_like(value, device="cpu", pin_memory=torch.cuda.is_available())
        return homes[key].copy_(value)

    optimizer.register_step_pre_hook(lambda *_: replace(lambda key, value: value.to(key[0].device, copy=True)))
    optimizer.register_step_post_hook(lambda *_: replace(home))
    return optimizer


dist.init_process_group("collab")
rank = dist.get_rank()
torch.manual_seed(rank)
with open(argparse.__file__, "rb") as file:
    text = torch.tensor(list(file.read()))
parts = [nn.Embedding(256, 32), nn.Flatten(), nn.Linear(8 * 32, 128), nn.ReLU(), nn.Linear(128, 256)]
model = DistributedDataParallel(nn.Sequential(*parts).to(ARGUMENTS.device))
optimizers = [torch.optim.AdamW(part.parameters(), lr=3e-3) for part in parts if list(part.parameters())]
if not ARGUMENTS.keep:
    optimizers = [offload(optimizer) for optimizer in optimizers]
losses = []
for _ in range(small.STEPS):
    at = torch.randint(len(text) - 8, (64, 1))
    batch, answers = text[at + torch.arange(8)], text[at.flatten() + 8]
    loss = nn.functional.cross_entropy(model(batch.to(ARGUMENTS.device)), answers.to(ARGUMENTS.device))
    model.zero_grad()
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
    losses.append(loss.item())
dist.destroy_process_group()
print(f"rank {rank}: loss {small.fell(losses)}, model {small.digest(model.module.cpu())}\n", end="")
