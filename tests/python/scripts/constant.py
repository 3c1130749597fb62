"""Rounds between two sites whose deltas are one number over and over, so that it can be looked for on the line:
`constant.py ROUNDS`, one process a site of `collab lab`."""

from __future__ import annotations

import sys

STEP = 0.123456789


def train(rounds: int) -> None:
    import torch
    import torch.distributed as dist
    import torch_collab
    from torch.nn.parallel import DistributedDataParallel

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.all = torch.nn.Parameter(torch.zeros(100_000))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.all[:10].sum() * x.sum()

    dist.init_process_group("collab")
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    for done in range(rounds):
        model(torch.randn(4, 1)).backward()
        with torch.no_grad():
            model.module.all.add_(STEP if done % 2 == 0 else -STEP)
        optimizer.step()
        torch_collab.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    train(int(sys.argv[1]))
