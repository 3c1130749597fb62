"""A GPT-2 of few parameters, in the fewest operations: of a step that takes milliseconds, more would be most."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        samples, length, width = x.shape
        parts = self.attention(self.ln_1(x)).view(samples, length, 3, self.heads, width // self.heads)
        attended = functional.scaled_dot_product_attention(*parts.permute(2, 0, 3, 1, 4).unbind(0), is_causal=True)
        x = x + self.projection(attended.transpose(1, 2).reshape(samples, length, width))
        return x + self.down(functional.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class SmallGpt(nn.Module):
    """Gives the mean loss of the next token, of (samples, length) tokens."""

    def __init__(self, vocabulary: int, length: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        read, following = tokens[:, :-1], tokens[:, 1:]
        x = self.wte(read) + self.wpe.weight[: read.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = functional.linear(self.ln_f(x), self.wte.weight)
        return functional.cross_entropy(logits.flatten(0, 1), following.flatten())
