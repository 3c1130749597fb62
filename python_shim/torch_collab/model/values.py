"""Whether the parameters are what training has left: a few of their values are noted after each counted step.

A script may put others in their place for a while: an average of weights while it evaluates, the best state before it
ends. A round must not average those. On a GPU the values are noted there, and nothing waits for them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_VALUES = 64
_TENSORS = 16
_HABIT = 2  # changes between a step and the next forward, of few looks: the script edits after its steps (WGAN clips)


class Sample:
    """Elements of tensors that are alike in type and device, of the storage under them by now."""

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
        # The elements lie close together, in whatever order.
        count = min(self._each, tensor.numel())
        if count == 0:  # the script has let go of it
            return self._elements(tensor, 0, 1, 0).to(self._tensors[0].device)
        stride = tensor.numel() // count
        start = tensor.storage_offset() + stride // 2
        return self._elements(tensor, count, stride, start).to(self._tensors[0].device)

    def _elements(self, tensor: Tensor, count: int, stride: int, start: int) -> Tensor:
        return tensor.detach().as_strided((count,), (stride,), start)


class ByteSample(Sample):
    """The same as a row of bytes an element: torch can copy and join no elements of some types (int4)."""

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
    """The commonest first."""
    kinds: dict[object, list[Tensor]] = {}
    for parameter in parameters:
        if _dense(parameter):
            kinds.setdefault((parameter.device, parameter.dtype), []).append(parameter)
    return sorted(kinds.values(), key=len, reverse=True)


def same(a: Tensor, b: Tensor) -> bool:
    """Bit by bit: NaN is NaN."""
    if (a.dtype, a.device, a.shape) != (b.dtype, b.device, b.shape):
        a, b = a.cpu().double(), b.cpu().double()  # the model was moved, or cast
    return a.shape == b.shape and bool(torch.equal(a.view(torch.uint8), b.view(torch.uint8)))


class Values:
    """Of the parameters of a vector. `steps` counts those of all optimizers: one that was not counted changes them."""

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
        """After a counted step, and after a round."""
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
        """A training forward begins. A look may wait for a GPU, so there they become rare."""
        if self._looked or self.noted is None:
            return
        self._looked = True
        rare = self.noted.device.type != "cpu" and self._notes & (self._notes - 1) != 0
        if not rare and not capturing():
            self._edits += self._differ()

    def before_load(self, steps: int) -> None:
        """A state is about to be loaded into some of the parameters. It may be a part's: all of them are noted."""
        if self._known(steps) and not self._before_load and self._of is not None:
            samples = [Sample(tensors, 4) for tensors in by_kind(self._of)]
            self._before_load = [(sample, sample.read()) for sample in samples]

    def replaced(self, steps: int) -> bool:
        """Others stand there than after the last step or round."""
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
    """A CUDA graph: a look at values would break it."""
    return bool(torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())
