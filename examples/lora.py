"""LoRA between sites: the base is frozen, so rounds average and send the adapters alone.

torchrun --standalone --nproc-per-node=1 examples/lora.py                                               # alone
collab lab --sites paris:10/2 tokyo:10/2 --rtt 60 -- torchrun --nnodes=2 --nproc-per-node=1 --rdzv-backend=c10d \
    --rdzv-endpoint=paris:29400 examples/lora.py                                                        # two sites

The adapters are written by hand; those of a library (peft) are averaged, too: `requires_grad` decides. Every site loads
the same base before the model is wrapped. collab compares the frozen weights, and refuses a site with different ones.
"""

import small
import torch
import torch.distributed as dist
import torch_collab
from torch import nn
from torch.nn.parallel import DistributedDataParallel

RANK, SCALE = 4, 2.0


class LoRA(nn.Module):
    """base(x) + SCALE * B A x. B starts at zero, so training starts from the base's outputs."""

    def __init__(self, base):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(RANK, base.in_features) / base.in_features**0.5)
        self.b = nn.Parameter(torch.zeros(base.out_features, RANK))

    def forward(self, x):
        return self.base(x) + SCALE * nn.functional.linear(nn.functional.linear(x, self.a), self.b)


def adapt(module):
    """Replaces every Linear of the model."""
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, LoRA(child))
        else:
            adapt(child)
    return module


dist.init_process_group("collab")
rank = dist.get_rank()
torch.manual_seed(0)  # stands for loading weights: the same at every site
base = nn.Sequential(nn.Linear(32, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 8))
teacher = torch.randn(32, 8)
torch.manual_seed(1 + rank)
model = DistributedDataParallel(adapt(base))
sizes = {trained: sum(p.numel() for p in model.parameters() if p.requires_grad == trained) for trained in (True, False)}
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3)
losses = []
for _ in range(small.STEPS):
    x = torch.randn(64, 32)
    loss = nn.functional.cross_entropy(model(x), (x @ teacher).argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
sent = torch_collab.status()["bytes_sent"]
dist.destroy_process_group()
print(
    f"rank {rank}: loss {small.fell(losses)}, model {small.digest(model)}, base {small.digest(model, trained=False)}, "
    f"{sizes[True]} of {sum(sizes.values())} parameters are averaged, {sent} bytes sent\n",
    end="",
)
