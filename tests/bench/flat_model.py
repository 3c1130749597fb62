"""A model of one tensor, whose gradient costs nothing: for benches of what goes over the line."""

from __future__ import annotations

import torch


class FlatModel(torch.nn.Module):
    def __init__(self, elements: int) -> None:
        super().__init__()
        self.all = torch.nn.Parameter(torch.randn(elements))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.all[:1000].mean() * x.sum()
