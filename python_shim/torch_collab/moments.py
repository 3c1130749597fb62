"""The optimizer's state between sites: a copy for a site that joins, and its way into a fresh optimizer.

A copy is a description (JSON; plugin/PROTOCOL.md has its form) and bytes: of each trained parameter in the vector's
order the state tensors of its shape ("planes", in bfloat16), then of the next. What is a single number travels in the
description. Its source is one member, between two of its steps; the joiner takes it before its first step.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from torch_collab import log, native, state

if TYPE_CHECKING:
    from torch_collab import _C
    from torch_collab.state import World

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
# What may differ between two optimizers with the same state: rates, and how the step is carried out.
_RATES = frozenset({"params", "param_names", "lr", "initial_lr", "weight_decay", "eps"})
_WAYS = frozenset({"foreach", "fused", "capturable", "differentiable", "maximize"})
# Numbers whatever the parameter's shape, even where that is one of a single number.
_COUNTS = frozenset({"step", "mu_product"})
_SHARED_AT_ONCE = 64 << 20
# State of another class (torchao's OptimState8bit) holds more than a copy of its numbers would.
PLAIN = (torch.Tensor, torch.nn.Parameter)


class Unsuitable(Exception):
    """Why an optimizer's state is not lent or not taken, in words."""


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
    """What parameters of one kind hold."""

    kind: str
    settings: dict[str, Any]
    planes: tuple[Plane, ...]
    scalars: tuple[Scalar, ...]

    def bytes_of(self, elements: int) -> int:
        return sum(elements * plane.sent.itemsize for plane in self.planes)


class Part(NamedTuple):
    """A parameter's state within a copy."""

    layout: Layout
    number: int  # among the parameters of that layout
    begin: int  # its first byte


@dataclass
class Wish:
    """Of a site that has joined a swarm that trains, until its optimizers have stepped."""

    data: torch.Tensor | None = None
    parts: list[Part | None] = field(default_factory=list)  # of each trained parameter
    left: int = 0  # parts that no optimizer has taken yet
    seen: set[int] = field(default_factory=set)  # id() of optimizers that have come


# ---- a copy of ours --------------------------------------------------------------------------------


def copy() -> tuple[str, torch.Tensor] | str:
    """The copy that a joiner asks for, or why there is none. Between two steps. Never raises."""
    world = state.current()
    if world is None:
        return "its world has ended"
    try:
        return _copy(world)
    except Unsuitable as why:
        return str(why)
    except Exception as error:
        return f"the copy could not be made: {error}"


def trained_of(world: World) -> tuple[tuple[int, int], ...]:
    """id() and elements of each trained parameter in the vector, in order."""
    return () if world.vector is None else world.vector.trained


def _copy(world: World) -> tuple[str, torch.Tensor]:
    owners = {id(p): (o, group, p) for o in world.optimizers for group in o.param_groups for p in group["params"]}
    layouts: list[dict[str, Any]] = []
    known: dict[str, int] = {}
    runs: list[list[int]] = []
    planes: list[tuple[torch.Tensor, torch.dtype]] = []
    for key, _ in trained_of(world):
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
    data = torch.empty(sum(tensor.numel() * sent.itemsize for tensor, sent in planes), dtype=torch.uint8)
    at = 0
    for tensor, sent in planes:
        end = at + tensor.numel() * sent.itemsize
        data[at:end].view(sent).view(tensor.shape).copy_(tensor)
        at = end
    return json.dumps({"version": _VERSION, "layouts": layouts, "parameters": runs}), data


def _described(
    optimizer: Any, group: dict[str, Any], parameter: torch.Tensor
) -> tuple[dict[str, Any], list[tuple[str, str, Any]], list[tuple[torch.Tensor, torch.dtype]]]:
    """(layout without values, scalars with this parameter's, tensors with the type they are sent in)"""
    kind = _kind(optimizer)
    if "step" in group:
        raise Unsuitable(f"{kind} counts its steps in its parameter groups, which is not lent")
    planes: list[list[str]] = []
    scalars: list[tuple[str, str, Any]] = []
    tensors: list[tuple[torch.Tensor, torch.dtype]] = []
    for name, value in optimizer.state[parameter].items():
        if value is None:
            continue
        if isinstance(value, torch.Tensor) and type(value) not in PLAIN:
            raise Unsuitable(f"{kind} keeps {name} as {type(value).__name__}, which is not lent")
        if isinstance(value, torch.Tensor) and name not in _COUNTS and value.shape == parameter.shape:
            sent = _SENT_AS.get(value.dtype)
            if sent is None or value.layout is not torch.strided:
                raise Unsuitable(f"{kind} keeps {name} as {value.dtype}, {value.layout}, which is not lent")
            planes.append([name, _name(value.dtype), _name(sent)])
            tensors.append((value.detach(), sent))
        elif isinstance(value, torch.Tensor) and value.numel() == 1 and _name(value.dtype) in _DTYPES:
            scalars.append((name, _name(value.dtype), value.item()))
        elif type(value).__name__ in _NUMBERS:
            scalars.append((name, type(value).__name__, value))
        else:
            what = f"a tensor of shape {list(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
            raise Unsuitable(f"{kind} keeps {name} as {what}, which is not lent")
    names = [[name, scalar] for name, scalar, _ in scalars]
    layout = {"class": kind, "settings": _settings(group), "planes": planes, "scalars": names}
    return layout, scalars, tensors


# What an optimizer of torch keeps for each parameter from its first step on: with less it fails in its next one.
_KEEPS = {
    "Adadelta": {"square_avg", "acc_delta", "step"},
    "Adagrad": {"sum", "step"},
    "Adam": {"exp_avg", "exp_avg_sq", "step"},
    "Adamax": {"exp_avg", "exp_inf", "step"},
    "AdamW": {"exp_avg", "exp_avg_sq", "step"},
    "NAdam": {"exp_avg", "exp_avg_sq", "step", "mu_product"},
    "RAdam": {"exp_avg", "exp_avg_sq", "step"},
    "RMSprop": {"square_avg", "step"},
}


def _kind(optimizer: Any) -> str:
    kind = type(optimizer)
    if kind.__name__ == "ZeroRedundancyOptimizer":
        raise Unsuitable("ZeroRedundancyOptimizer keeps a part of the state at each rank, which is not lent")
    return f"{kind.__module__}.{kind.__qualname__}"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _settings(group: dict[str, Any]) -> dict[str, Any]:
    """What decides which state is kept: words and switches as they are, of numbers whether they are zero."""
    settings: dict[str, Any] = {}
    for name, value in group.items():
        if name in _RATES or name in _WAYS:
            continue
        if value is None or isinstance(value, bool | str):
            settings[name] = value
        elif isinstance(value, int | float):
            settings[name] = "zero" if value == 0 else "not zero"
    return settings


# ---- a member's copy, for us -----------------------------------------------------------------------


def before_step(world: World, optimizer: Any) -> None:
    """An optimizer of the vector is about to step. The first time after joining, the ranks of the site meet here."""
    wish = world.wish
    if wish is None:
        return
    if id(optimizer) in wish.seen:
        world.wish = None  # all have stepped
        return
    wish.seen.add(id(optimizer))
    if len(wish.seen) == 1:
        _receive(world, wish, optimizer)
    else:
        try:
            _load(world, wish, optimizer)
        except Unsuitable as why:
            if world.is_leader:
                log.warning(f"{type(optimizer).__name__} starts cold: {why}")
    if wish.left == 0:
        world.wish = None


def steps_in_backward(world: World) -> None:
    if world.wish is not None and world.is_leader:
        log.info("the optimizer steps inside backward, where no other site can be asked for its state; it starts cold")
    world.wish = None


def _receive(world: World, wish: Wish, optimizer: Any) -> None:
    """The leader decides for all ranks of the site: what it gets they get; where it has state they keep theirs."""
    text, cold = "", ""
    data = None
    if world.is_leader:
        try:
            if _is_fresh(optimizer):
                text, data = _fetch(world, optimizer)
        except Unsuitable as why:
            cold = str(why)
        except Exception as error:
            cold = f"the state of another could not be taken: {error}"
    text, data = _share(world, text, data)
    if data is not None:
        try:
            wish.data = data
            wish.parts = parts_of(text, [elements for _, elements in trained_of(world)])
            wish.left = sum(part is not None for part in wish.parts)
            _load(world, wish, optimizer)
        except Unsuitable as why:
            cold = str(why)
    if world.is_leader and (cold or data is not None):
        native.end_optimizer(_session(world), cold)
    if cold:
        wish.left = 0


def _session(world: World) -> _C.Session:
    assert world.session is not None  # there is a wish from its beginning on
    return world.session


def _is_fresh(optimizer: Any) -> bool:
    return all(is_fresh(held) for held in optimizer.state.values())


def is_fresh(held: Any) -> bool:
    """Of a parameter: what its optimizer keeps for it is as before the first step."""
    return all(value is None for value in held.values()) or (held.get("step") is not None and float(held["step"]) == 0)


def _fetch(world: World, optimizer: Any) -> tuple[str, torch.Tensor]:
    _kind(optimizer)
    while True:
        try:
            source, text, size = native.ask_optimizer(_session(world))
        except (ConnectionError, TimeoutError) as none:
            raise Unsuitable(str(none)) from None
        try:
            elements = [elements for _, elements in trained_of(world)]
            parts = parts_of(text, elements)
            expected = sum(part.layout.bytes_of(n) for part, n in zip(parts, elements, strict=True) if part)
            if size != expected:
                raise Unsuitable(f"its copy has {size} bytes, described are {expected}")
            _check(world, parts, optimizer)
        except Unsuitable as why:
            raise Unsuitable(f"{source}: {why}") from None
        try:
            return text, native.take_optimizer(_session(world))
        except ConnectionError:
            continue  # lost: the log says how; another member may have one


def _share(world: World, text: str, data: torch.Tensor | None) -> tuple[str, torch.Tensor | None]:
    description = bytearray(text.encode())
    sizes = torch.tensor([len(description), 0 if data is None else data.numel()])
    native.broadcast(_session(world), sizes.view(torch.uint8))
    length, size = sizes.tolist()
    if size == 0:
        return "", None
    words = (
        torch.frombuffer(description, dtype=torch.uint8) if data is not None else torch.empty(length, dtype=torch.uint8)
    )
    data = torch.empty(size, dtype=torch.uint8) if data is None else data
    native.broadcast(_session(world), words)
    for piece in data.split(_SHARED_AT_ONCE):
        native.broadcast(_session(world), piece)
    return bytes(words.tolist()).decode(), data


def parts_of(text: str, elements: list[int]) -> list[Part | None]:
    """Where in a copy each trained parameter's state lies. Whoever wrote the description is not trusted."""
    try:
        found = json.loads(text)
        if found["version"] != _VERSION:
            raise Unsuitable(f"its description has version {found['version']!r}, here it is {_VERSION}")
        runs = [(int(count), int(number)) for count, number in found["parameters"]]
        if sum(count for count, _ in runs) != len(elements) or any(count < 1 for count, _ in runs):
            raise Unsuitable(f"its description is not of {len(elements)} parameters")
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
            raise ValueError(f"a value of {scalar.key}")  # NaN and infinity as well
    return Layout(str(entry["class"]), dict(entry["settings"]), planes, scalars)


def _ours(world: World, optimizer: Any, parts: list[Part | None]) -> Iterator[tuple[Any, torch.Tensor, Part]]:
    """(group, parameter, its part) of this optimizer's parameters that have one."""
    places = {key: place for place, (key, _) in enumerate(trained_of(world))}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            part = parts[places[id(parameter)]] if id(parameter) in places else None
            if part is not None:
                yield group, parameter, part


def _check(world: World, parts: list[Part | None], optimizer: Any) -> None:
    kind = _kind(optimizer)
    some = False
    for group, _, part in _ours(world, optimizer, parts):
        some = True
        if part.layout.kind != kind:
            raise Unsuitable(f"its optimizer is {part.layout.kind}, this site's is {kind}")
        keys = {plane.key for plane in part.layout.planes} | {scalar.key for scalar in part.layout.scalars}
        lacking = _KEEPS.get(kind.rpartition(".")[2], set()) - keys
        if kind.startswith("torch.optim.") and lacking:
            raise Unsuitable(f"its {kind} keeps no {', '.join(sorted(lacking))}")
        ours = _settings(group)
        for name in ours.keys() & part.layout.settings.keys():
            if ours[name] != part.layout.settings[name]:
                theirs = part.layout.settings[name]
                raise Unsuitable(f"its {kind} has {name} {theirs!r}, this site's has {ours[name]!r}")
    if not some:
        raise Unsuitable("it keeps no state for these parameters")


def _load(world: World, wish: Wish, optimizer: Any) -> None:
    assert wish.data is not None
    _check(world, wish.parts, optimizer)
    for _, parameter, part in _ours(world, optimizer, wish.parts):
        for plane, values in _planes(wish.data, parameter, part):
            if not bool(torch.isfinite(values).all()):
                raise Unsuitable(f"{plane.key} is not finite there")
    for group, parameter, part in _ours(world, optimizer, wish.parts):
        held = optimizer.state[parameter]
        for plane, values in _planes(wish.data, parameter, part):
            fresh = torch.empty_like(parameter.detach(), dtype=plane.held, memory_format=torch.preserve_format)
            held[plane.key] = fresh.copy_(values)
        for scalar in part.layout.scalars:
            held[scalar.key] = _number(scalar, part.number, group, parameter)
        wish.left -= 1


def _planes(data: torch.Tensor, parameter: torch.Tensor, part: Part) -> Iterator[tuple[Plane, torch.Tensor]]:
    at = part.begin
    for plane in part.layout.planes:
        end = at + parameter.numel() * plane.sent.itemsize
        yield plane, data[at:end].view(plane.sent).view(parameter.shape)
        at = end


def _number(scalar: Scalar, number: int, group: Any, parameter: torch.Tensor) -> Any:
    value = scalar.values[number if len(scalar.values) > 1 else 0]
    if scalar.kind in _NUMBERS:
        return _NUMBERS[scalar.kind](value)
    # As Optimizer.load_state_dict places step counts.
    on_device = group.get("capturable") or group.get("fused")
    return torch.tensor(value, dtype=_DTYPES[scalar.kind], device=parameter.device if on_device else "cpu")
