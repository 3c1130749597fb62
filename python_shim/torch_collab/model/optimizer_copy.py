"""A copy of the optimizer's state: what can be copied, how it is described, and where a parameter's state lies in it.

A copy is a description (JSON; docs/protocol/rounds.md, "Optimizer state") and bytes. The bytes hold, for each trained
parameter in the vector's order, the state tensors of its shape ("planes", in bfloat16). Single numbers travel in the
description.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

_VERSION = 1
_MAX_PLANES = 8
_SENT_AS = {
    torch.float32: torch.bfloat16,
    torch.float64: torch.bfloat16,
    torch.bfloat16: torch.bfloat16,
    torch.float16: torch.float16,
}
_DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in (*_SENT_AS, torch.int64, torch.int32, torch.bool)}
_NUMBERS = {"int": int, "float": float, "bool": bool}
# Settings that may differ between two optimizers with the same state: rates, and how the step is carried out.
_RATES = frozenset({"params", "param_names", "lr", "initial_lr", "weight_decay", "eps"})
_WAYS = frozenset({"foreach", "fused", "capturable", "differentiable", "maximize"})
# Always sent as single numbers, even if the parameter has only one element, too.
_COUNTS = frozenset({"step", "mu_product"})
# State tensors of another class (torchao's OptimState8bit) hold more than a copy of their numbers would.
PLAIN = (torch.Tensor, torch.nn.Parameter)
_NOT_SERVED = "which collab does not serve to other sites"


class Unsuitable(Exception):
    """Why an optimizer's state is not served or not taken, as text for the user."""


class Plane(NamedTuple):
    key: str
    held: torch.dtype
    sent: torch.dtype


class Scalar(NamedTuple):
    key: str
    kind: str  # a dtype, or one of _NUMBERS
    values: list[Any]  # one for each parameter of the layout, or one for all


@dataclass(frozen=True)
class Layout:
    """What the parameters of one kind hold."""

    kind: str
    settings: dict[str, Any]
    planes: tuple[Plane, ...]
    scalars: tuple[Scalar, ...]

    def bytes_of(self, elements: int) -> int:
        return sum(elements * plane.sent.itemsize for plane in self.planes)


class Part(NamedTuple):
    """Where one parameter's state lies within a copy."""

    layout: Layout
    number: int  # index among the parameters of that layout
    begin: int  # its first byte


@dataclass
class Fetch:
    """The fetched optimizer state of a site that joins a running swarm, until its optimizers have stepped."""

    data: torch.Tensor | None = None
    parts: list[Part | None] = field(default_factory=list)  # one for each trained parameter
    left: int = 0  # parts that no optimizer has taken yet
    seen: set[int] = field(default_factory=set)  # numbers of the optimizers that have stepped
    waited: int = 0  # steps of known optimizers since a new one last appeared
    over: bool = False

    def comes(self, number: int) -> int:
        """This optimizer is about to step. 0: for the first time; else the steps since a new optimizer appeared."""
        self.waited = self.waited + 1 if number in self.seen else 0
        self.seen.add(number)
        return self.waited

    def hold(self, data: torch.Tensor, parts: list[Part | None]) -> None:
        self.data, self.parts = data, parts
        self.left = sum(part is not None for part in parts)

    def taken(self) -> None:
        self.left -= 1

    def end(self) -> None:
        """Frees the fetched copy: it takes as much memory as the optimizer's own state."""
        self.data, self.parts, self.over = None, [], True


def make(optimizers: Iterable[Any], trained: Sequence[tuple[int, int]]) -> tuple[str, torch.Tensor]:
    owners = {id(p): (o, group, p) for o in optimizers for group in o.param_groups for p in group["params"]}
    layouts: list[dict[str, Any]] = []
    known: dict[str, int] = {}
    runs: list[list[int]] = []
    planes: list[tuple[torch.Tensor, torch.dtype]] = []
    for key, _ in trained:
        number = -1
        if key in owners and any(value is not None for value in owners[key][0].state.get(owners[key][2], {}).values()):
            layout, scalars, tensors = _described(*owners[key])
            number = known.setdefault(json.dumps(layout), len(layouts))
            if number == len(layouts):
                layouts.append({**layout, "scalars": [[name, kind, []] for name, kind, _ in scalars]})
            for entry, (_, _, value) in zip(layouts[number]["scalars"], scalars, strict=True):
                entry[2].append(value)
            planes.extend(tensors)
        if runs and runs[-1][1] == number:
            runs[-1][0] += 1
        else:
            runs.append([1, number])
    for layout in layouts:
        for entry in layout["scalars"]:
            if all(value == entry[2][0] for value in entry[2]):
                entry[2] = entry[2][:1]
    data = torch.empty(sum(tensor.numel() * sent.itemsize for tensor, sent in planes), dtype=torch.uint8, device="cpu")
    at = 0
    for tensor, sent in planes:
        end = at + tensor.numel() * sent.itemsize
        data[at:end].view(sent).view(tensor.shape).copy_(tensor)
        at = end
    return json.dumps({"version": _VERSION, "layouts": layouts, "parameters": runs}), data


def _described(
    optimizer: Any, group: dict[str, Any], parameter: torch.Tensor
) -> tuple[dict[str, Any], list[tuple[str, str, Any]], list[tuple[torch.Tensor, torch.dtype]]]:
    """Returns (layout without values, scalars with this parameter's value, tensors with the type they are sent in)."""
    kind = kind_of(optimizer)
    if "step" in group:
        raise Unsuitable(f"{kind} counts its steps in its parameter groups, {_NOT_SERVED}")
    planes: list[list[str]] = []
    scalars: list[tuple[str, str, Any]] = []
    tensors: list[tuple[torch.Tensor, torch.dtype]] = []
    for name, value in optimizer.state[parameter].items():
        if value is None:
            continue
        if isinstance(value, torch.Tensor) and type(value) not in PLAIN:
            raise Unsuitable(f"{kind} keeps {name} as {type(value).__name__}, {_NOT_SERVED}")
        if isinstance(value, torch.Tensor) and name not in _COUNTS and value.shape == parameter.shape:
            sent = _SENT_AS.get(value.dtype)
            if sent is None or value.layout is not torch.strided:
                raise Unsuitable(f"{kind} keeps {name} as {value.dtype}, {value.layout}, {_NOT_SERVED}")
            planes.append([name, _name(value.dtype), _name(sent)])
            tensors.append((value.detach(), sent))
        elif isinstance(value, torch.Tensor) and value.numel() == 1 and _name(value.dtype) in _DTYPES:
            scalars.append((name, _name(value.dtype), value.item()))
        elif type(value).__name__ in _NUMBERS:
            scalars.append((name, type(value).__name__, value))
        else:
            what = f"a tensor of shape {list(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
            raise Unsuitable(f"{kind} keeps {name} as {what}, {_NOT_SERVED}")
    names = [[name, scalar] for name, scalar, _ in scalars]
    layout = {"class": kind, "settings": settings_of(group), "planes": planes, "scalars": names}
    return layout, scalars, tensors


# What each of torch's optimizers keeps for a parameter from its first step on; with less its next step fails.
KEEPS = {
    "Adadelta": {"square_avg", "acc_delta", "step"},
    "Adagrad": {"sum", "step"},
    "Adam": {"exp_avg", "exp_avg_sq", "step"},
    "Adamax": {"exp_avg", "exp_inf", "step"},
    "AdamW": {"exp_avg", "exp_avg_sq", "step"},
    "NAdam": {"exp_avg", "exp_avg_sq", "step", "mu_product"},
    "RAdam": {"exp_avg", "exp_avg_sq", "step"},
    "RMSprop": {"square_avg", "step"},
}


def kind_of(optimizer: Any) -> str:
    kind = type(optimizer)
    if kind.__name__ == "ZeroRedundancyOptimizer":
        raise Unsuitable(f"ZeroRedundancyOptimizer keeps a part of the state at each rank, {_NOT_SERVED}")
    return f"{kind.__module__}.{kind.__qualname__}"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def settings_of(group: dict[str, Any]) -> dict[str, Any]:
    """Settings that decide which state is kept: strings and flags as they are, of numbers whether they are zero."""
    settings: dict[str, Any] = {}
    for name, value in group.items():
        if name in _RATES or name in _WAYS:
            continue
        if value is None or isinstance(value, bool | str):
            settings[name] = value
        elif isinstance(value, int | float):
            settings[name] = "zero" if value == 0 else "not zero"
    return settings


def is_fresh(held: Any) -> bool:
    """Whether a parameter's state is as before the first step. Some optimizers make their zeros early: before the first
    step, or during it before its closure runs."""
    return all(map(_is_nothing, held.values())) or (held.get("step") is not None and float(held["step"]) == 0)


def _is_nothing(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return not bool(torch.count_nonzero(value))
    return value is None or (isinstance(value, bool | int | float | list | tuple | dict) and not value)


def parts_of(text: str, elements: list[int]) -> list[Part | None]:
    """Where each trained parameter's state lies in a copy. The description is not trusted."""
    try:
        found = json.loads(text)
        if found["version"] != _VERSION:
            raise Unsuitable(f"its description has version {found['version']!r}, but this site has {_VERSION}")
        runs = [(int(count), int(number)) for count, number in found["parameters"]]
        if sum(count for count, _ in runs) != len(elements) or any(count < 1 for count, _ in runs):
            raise Unsuitable(f"its description is not for {len(elements)} parameters")
        layouts = [_layout(entry, sum(c for c, n in runs if n == i)) for i, entry in enumerate(found["layouts"])]
        if any(number < -1 or number >= len(layouts) for _, number in runs):
            raise Unsuitable("its description names a layout that it lacks")
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Unsuitable(f"its description cannot be read ({type(error).__name__}: {error})") from None
    parts: list[Part | None] = []
    counts = [0] * len(layouts)
    at = 0
    for count, number in runs:
        for _ in range(count):
            if number < 0:
                parts.append(None)
                continue
            parts.append(Part(layouts[number], counts[number], at))
            counts[number] += 1
            at += layouts[number].bytes_of(elements[len(parts) - 1])
    return parts


def _layout(entry: Any, count: int) -> Layout:
    planes = tuple(Plane(str(key), _DTYPES[held], _DTYPES[sent]) for key, held, sent in entry["planes"])
    if len(planes) > _MAX_PLANES or any(_SENT_AS.get(plane.held) is not plane.sent for plane in planes):
        raise ValueError("planes")
    scalars = tuple(Scalar(str(key), str(kind), list(values)) for key, kind, values in entry["scalars"])
    for scalar in scalars:
        if scalar.kind not in _DTYPES and scalar.kind not in _NUMBERS:
            raise ValueError(f"a scalar of kind {scalar.kind}")
        if len(scalar.values) not in (1, count):
            raise ValueError(f"{len(scalar.values)} values for {count} parameters")
        if not all(isinstance(value, int | float) and abs(value) < 2**53 for value in scalar.values):
            raise ValueError(f"a value of {scalar.key}")  # NaN and infinity, too
    return Layout(str(entry["class"]), dict(entry["settings"]), planes, scalars)


def planes_in(data: torch.Tensor, parameter: torch.Tensor, part: Part) -> Iterator[tuple[Plane, torch.Tensor]]:
    at = part.begin
    for plane in part.layout.planes:
        end = at + parameter.numel() * plane.sent.itemsize
        yield plane, data[at:end].view(plane.sent).view(parameter.shape)
        at = end


def number_in(scalar: Scalar, number: int, group: Any, parameter: torch.Tensor) -> Any:
    value = scalar.values[number if len(scalar.values) > 1 else 0]
    if scalar.kind in _NUMBERS:
        return _NUMBERS[scalar.kind](value)
    # Place step counts as Optimizer.load_state_dict does.
    on_device = group.get("capturable") or group.get("fused")
    return torch.tensor(value, dtype=_DTYPES[scalar.kind], device=parameter.device if on_device else "cpu")
