"""Tensors that are several objects in one memory: `decoder.weight.data = encoder.weight.data`.

A round adds its change to each parameter, so memory that appears twice would be changed twice. If two tensors share all
of their memory, the vector holds one of them. If they overlap in part, they are refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from torch_collab.model.entry import Entry


class Place(NamedTuple):
    """Where a tensor lies. Equal places hold the same elements in the same order."""

    device: torch.device
    start: int  # address
    dtype: torch.dtype
    shape: torch.Size
    strides: tuple[int, ...]  # in elements; 0 where the shape is 1

    @property
    def end(self) -> int:
        last = sum((extent - 1) * stride for extent, stride in zip(self.shape, self.strides, strict=True))
        return int(self.start + (last + 1) * self.dtype.itemsize)


def place_of(tensor: torch.Tensor) -> Place | None:
    """None: the tensor has no memory (meta device, no elements, freed for a while), or does not tell where it is."""
    if tensor.is_meta or tensor.layout != torch.strided or tensor.numel() == 0:
        return None
    try:
        start = tensor.data_ptr() if tensor.untyped_storage().nbytes() > 0 else 0
    except (RuntimeError, NotImplementedError):  # a tensor subclass that wraps other tensors
        return None
    strides = tuple(stride if extent > 1 else 0 for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return Place(tensor.device, start, tensor.dtype, tensor.shape, strides) if start else None


def merge(entries: list[Entry]) -> list[Entry]:
    """The entries less those that share all the memory of a trained parameter, whose entry lists them as `tied`.

    Raises RuntimeError with both names where two tensors overlap in part. Averaged buffers may overlap each other: they
    become the mean, which is the same however often it is written.
    """
    first: dict[Place, int] = {}
    tied: dict[int, list[Entry]] = {}
    places = [None if entry.left_out else place_of(entry.tensor) for entry in entries]
    for at, (entry, place) in enumerate(zip(entries, places, strict=True)):
        if place is not None and entry.trained and not entry.buffer:
            first.setdefault(place, at)
    kept: list[int] = []
    for at, (entry, place) in enumerate(zip(entries, places, strict=True)):
        one = at if place is None else first.get(place, at)
        if one == at:
            kept.append(at)
        else:
            tied.setdefault(one, []).append(entry)
    _refuse_overlaps([(places[at], entries[at]) for at in kept if entries[at].trained])
    return [replace(entries[at], tied=tuple(tied[at])) if at in tied else entries[at] for at in kept]


def _refuse_overlaps(placed: Iterable[tuple[Place | None, Entry]]) -> None:
    """Orders the tensors by address. Those that begin before an earlier one ends are compared element by element: the
    columns of one matrix interleave and share nothing."""
    ordered = sorted(
        ((place, entry) for place, entry in placed if place is not None),
        key=lambda each: (str(each[0].device), each[0].start),
    )
    group: list[tuple[Place, Entry]] = []
    end = 0
    for place, entry in ordered:
        if group and (place.device != group[0][0].device or place.start >= end):
            _refuse_shared_bytes(group)
            group, end = [], 0
        group.append((place, entry))
        end = max(end, place.end)
    _refuse_shared_bytes(group)


def _refuse_shared_bytes(group: list[tuple[Place, Entry]]) -> None:
    """Compares tensors whose address ranges overlap."""
    if len(group) < 2 or all(entry.buffer for _, entry in group):
        return
    begin = group[0][0].start
    taken = torch.zeros(max(place.end for place, _ in group) - begin, dtype=torch.bool, device="cpu")
    parameters = [each for each in group if not each[1].buffer]
    for place, entry in (*parameters, *(each for each in group if each[1].buffer)):
        if _bytes_of(place, taken, begin).any():
            raise RuntimeError(_overlapping(place, entry, parameters, taken, begin))
        if not entry.buffer:
            _bytes_of(place, taken, begin).fill_(True)


def _bytes_of(place: Place, taken: torch.Tensor, begin: int) -> torch.Tensor:
    size = place.dtype.itemsize
    strides = (*(stride * size for stride in place.strides), 1)
    return taken.as_strided((*place.shape, size), strides, place.start - begin)


def _overlapping(
    place: Place, entry: Entry, parameters: list[tuple[Place, Entry]], taken: torch.Tensor, begin: int
) -> str:
    def meets(other: Place) -> bool:
        _bytes_of(other, taken.zero_(), begin).fill_(True)
        return bool(_bytes_of(place, taken, begin).any())

    earlier = next(of for other, of in parameters if meets(other))
    return (
        f"collab: {entry.describe()} lies in a part of the memory of {earlier.describe()}, or has its elements in "
        "another order: a round would change what they share twice. Tie them as one Parameter (one tensor, used in "
        "both places), or give one of them memory of its own (parameter.data = parameter.data.clone()) before the "
        "model is wrapped in DistributedDataParallel [capture.memory-overlaps]"
    )
