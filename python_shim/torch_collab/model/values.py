"""Checks that the parameters are those that training has left: a few values are noted after each counted step.

A script may replace them for a while: by an average of weights while it evaluates, or by the best state before it ends.
A round must not average those. On a GPU the values are noted on the device, so nothing waits for them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_VALUES = 64
_TENSORS = 16
_HABIT = 2  # of few looks, changes between a step and the next forward: then the script edits after steps (WGAN clips)


class Sample:
    """Sampled elements of tensors with one type and device, read from the storage that they have now."""

    def __init__(self, tensors: Sequence[Tensor], each: int) -> None:
        self._each = each
        self._tensors = list(tensors)
        self._views: list[Tensor] = []
        self._storage: list[int] = []

    def read(self) -> Tensor:
        storage = [tensor.data_ptr() for tensor in self._tensors]
        if storage != self._storage:
            self._storage = storage
            self._views = [self._view(tensor) for tensor in self._tensors]
        return torch.cat(self._views)

    def _view(self, tensor: Tensor) -> Tensor:
        # Elements in storage order: the tensor is dense, but its dimensions may be permuted.
        count = min(self._each, tensor.numel())
        if count == 0:  # the script has freed its memory
            return self._elements(tensor, 0, 1, 0).to(self._tensors[0].device)
        stride = tensor.numel() // count
        start = tensor.storage_offset() + stride // 2
        return self._elements(tensor, count, stride, start).to(self._tensors[0].device)

    def _elements(self, tensor: Tensor, count: int, stride: int, start: int) -> Tensor:
        return tensor.detach().as_strided((count,), (stride,), start)


class ByteSample(Sample):
    """The same with each element as a row of bytes: torch cannot copy or concatenate elements of some types (int4)."""

    def _elements(self, tensor: Tensor, count: int, stride: int, start: int) -> Tensor:
        size, held = tensor.element_size(), torch.empty(0, dtype=torch.uint8, device=tensor.device)
        return held.set_(tensor.untyped_storage(), start * size, (count, size), (stride * size, 1))


def _dense(tensor: Tensor) -> bool:
    if type(tensor) not in (Tensor, torch.nn.Parameter) or tensor.layout != torch.strided or tensor.numel() == 0:
        return False
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return tensor.is_contiguous() or (
        tensor.dim() in formats and tensor.is_contiguous(memory_format=formats[tensor.dim()])
    )


def by_kind(parameters: Sequence[Tensor]) -> list[list[Tensor]]:
    """Groups the parameters by kind, the commonest kind first."""
    kinds: dict[object, list[Tensor]] = {}
    for parameter in parameters:
        if _dense(parameter):
            kinds.setdefault((parameter.device, parameter.dtype), []).append(parameter)
    return sorted(kinds.values(), key=len, reverse=True)


def same(a: Tensor, b: Tensor) -> bool:
    """Equal bit by bit, so that NaN equals NaN."""
    if (a.dtype, a.device, a.shape) != (b.dtype, b.device, b.shape):
        a, b = a.cpu().double(), b.cpu().double()  # the model was moved, or cast
    return a.shape == b.shape and bool(torch.equal(a.view(torch.uint8), b.view(torch.uint8)))


class Values:
    """Samples of a vector's parameters. `steps` counts all optimizers' steps: uncounted ones change them, too."""

    def __init__(self) -> None:
        self.noted: Tensor | None = None
        self._of: Sequence[Tensor] | None = None
        self._sample: Sample | None = None
        self._steps = 0
        self._notes = 0
        self._looked = False
        self._edits = 0
        self._before_load: list[tuple[Sample, Tensor]] = []

    def note(self, parameters: Sequence[Tensor], steps: int) -> Tensor | None:
        """Called after a counted step, and after a round."""
        if parameters is not self._of:
            self._of, self._sample = parameters, None
            if kinds := by_kind(parameters):
                chosen = kinds[0][:: -(-len(kinds[0]) // _TENSORS)]
                self._sample = Sample(chosen, -(-_VALUES // len(chosen)))
        self._steps, self._looked, self._before_load = steps, False, []
        self._notes += 1
        self.noted = None if self._sample is None or capturing() else self._sample.read()
        return self.noted

    def before_forward(self) -> None:
        """Called when a training forward begins. A look may wait for a GPU, so looks become rare there."""
        if self._looked or self.noted is None:
            return
        self._looked = True
        rare = self.noted.device.type != "cpu" and self._notes & (self._notes - 1) != 0
        if not rare and not capturing():
            self._edits += self._differ()

    def before_load(self, steps: int) -> None:
        """Called before a state is loaded into some of the parameters, or one part's. All of them are noted."""
        if self._known(steps) and not self._before_load and self._of is not None:
            samples = [Sample(tensors, 4) for tensors in by_kind(self._of)]
            self._before_load = [(sample, sample.read()) for sample in samples]

    def replaced(self, steps: int) -> bool:
        """Whether the values differ from those after the last step or round."""
        if not self._known(steps):
            return False
        if any(not same(sample.read(), before) for sample, before in self._before_load):
            return True
        return self._edits < _HABIT and self._differ()

    def _known(self, steps: int) -> bool:
        return self.noted is not None and self._steps == steps

    def _differ(self) -> bool:
        assert self._sample is not None and self.noted is not None
        return not same(self._sample.read(), self.noted)


def capturing() -> bool:
    """Whether a CUDA graph is being captured: a look at values would break it."""
    return bool(torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())
