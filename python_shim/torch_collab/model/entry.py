"""A tensor of the DDP modules as sites compare it; it is part of the vector that they average, or it is not."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Entry:
    name: str
    tensor: torch.Tensor
    trained: bool  # part of the vector; otherwise frozen or left out, and compared only when a site joins
    buffer: bool = False
    left_out: bool = False  # a buffer whose values each site keeps for itself
    tied: tuple[Entry, ...] = ()  # other tensors in the very same memory; the vector holds only one of them

    @property
    def parameters(self) -> list[torch.Tensor]:
        """The trained tensors of this entry: the objects that a DDP and its optimizer know."""
        return [each.tensor for each in (self, *self.tied) if each.trained and not each.buffer]

    @property
    def kind(self) -> str:
        return "left out" if self.left_out else "averaged" if self.trained else "frozen"

    def describe(self) -> str:
        what = self.kind if self.left_out else "buffer" if self.buffer else "trained" if self.trained else "frozen"
        return f"{self.name} {str(self.tensor.dtype).removeprefix('torch.')} {list(self.tensor.shape)} {what}"
