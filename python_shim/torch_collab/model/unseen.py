"""Training whose steps nobody sees: parameters that change between synchronised backward passes without any
`torch.optim.Optimizer`. No round would ever come, and nothing would say so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from torch_collab import log, torch_compat

if TYPE_CHECKING:
    from torch import Tensor, nn

# So many changes without a step are no warm-up of anything.
PASSES = 20
_SAMPLED = 8


class UnseenSteps:
    """Looks at a few values of the parameters before each training forward, until a step has been seen."""

    def __init__(self) -> None:
        self._values: list[float] | None = None
        self._changes = 0
        self._over = False
        self.steps = 0  # of all optimizers, counted or not

    def stepped(self) -> None:
        self._over = True
        self.steps += 1

    def forward(self, ddp: nn.Module, parameters: list[Tensor], tells: bool) -> None:
        """A training forward of `ddp` begins; not counted under no_sync(). `tells`: this rank may warn."""
        if self._over or not torch_compat.syncs_gradients(ddp):
            return
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            return  # a look at values would break the capture
        values = sample(parameters)
        if self._values is not None and values != self._values:
            self._changes += 1
        self._values = values
        if self._changes < PASSES:
            return
        self._over = True
        if tells:
            log.warning(
                f"the parameters have changed in {PASSES} training passes without a step of any torch.optim.Optimizer. "
                "So no round will come, and nothing is averaged between sites. If the script updates its "
                "parameters by itself, call torch_collab.step() after each update [optimizer.unseen]"
            )


def sample(parameters: list[Tensor]) -> list[float]:
    """The element in the middle of a few of the parameters."""
    stride = max(1, len(parameters) // _SAMPLED)
    return [
        float(parameter.detach()[tuple(extent // 2 for extent in parameter.shape)])
        for parameter in parameters[::stride]
        if parameter.numel() > 0
    ]
