"""Detects frozen parameters that change while sites train. Sites do not average them, so they would drift apart.

A merge of adapters into their base (ReLoRA), a momentum encoder or a target network in the wrapped module does this. A
few values are noted when training goes on after a round, and read again after the next round: this waits for the GPU
once a round. A new Parameter object in the place of another is not noticed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torch_collab.model.tied import place_of
from torch_collab.model.values import ByteSample, by_kind, capturing, same

_VALUES = 64

Named = Sequence[tuple[str, Tensor]]


class FrozenValues:
    def __init__(self) -> None:
        self._told = False
        self._of: Named = ()
        self._chosen: list[Tensor] = []
        self._kinds: list[object] = []  # of the chosen tensors
        self._noted: list[tuple[list[Tensor], ByteSample, Tensor]] = []

    def before_forward(self, named: Named) -> None:
        """Called when a training forward begins."""
        if not self._noted and not self._told:
            self._note(named)

    def after_round(self, named: Named, alike: bool) -> str:
        """Name of a tensor that has changed since training went on after the previous round; only the first is told.

        `alike`: sites hold one model now. A change before the next forward is then the same change everywhere.
        """
        changed = self._changed() if named is self._of else None
        self.forget()
        if changed is not None:
            self._told = True
            return next(name for name, tensor in named if tensor is changed)
        if not alike and not self._told:
            self._note(named)
        return ""

    def forget(self) -> None:
        """Called before a state is loaded into a module that is trained: the next forward notes the values anew.

        Not for a load into frozen parameters alone: a target network loaded so gets each site's own values.
        """
        self._noted = []

    def _note(self, named: Named) -> None:
        there = [tensor for kind in by_kind([tensor for _, tensor in named if place_of(tensor)]) for tensor in kind]
        if not there or capturing():
            return
        self._of, self._chosen = named, there[:: -(-len(there) // _VALUES)]
        self._kinds = [_kind(tensor) for tensor in self._chosen]
        samples = [(tensors, ByteSample(tensors, self._each)) for tensors in by_kind(self._chosen)]
        self._noted = [(tensors, sample, sample.read()) for tensors, sample in samples]

    @property
    def _each(self) -> int:
        return -(-_VALUES // len(self._chosen))

    def _changed(self) -> Tensor | None:
        if not self._noted or capturing() or [_kind(tensor) for tensor in self._chosen] != self._kinds:
            return None  # nothing was noted, or the tensors were moved or cast
        for tensors, sample, before in self._noted:
            now = sample.read()
            if not same(now, before):
                sizes = [min(self._each, tensor.numel()) for tensor in tensors]
                each = zip(tensors, torch.split(now, sizes), torch.split(before, sizes), strict=True)
                return next(tensor for tensor, *values in each if not same(*values))
        return None


def _kind(tensor: Tensor) -> object:
    place = place_of(tensor)
    return place and (place.device, place.dtype, place.shape)
