"""The optimizer's state between sites. A member serves a copy of its own (model/optimizer_copy.py) between two of its
steps; a joining site fetches it before its first step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from torch_collab import log
from torch_collab.model import optimizer_copy
from torch_collab.model.optimizer_copy import Fetch, Part, Plane, Unsuitable, kind_of, parts_of, planes_in, settings_of
from torch_collab.world import state

if TYPE_CHECKING:
    from torch_collab import _C
    from torch_collab.world.state import World

_SHARED_AT_ONCE = 64 << 20
# An optimizer may take its first step this many steps after another one's (a GAN trains its critic more often).
_MOST_BETWEEN = 100


def copy() -> tuple[str, torch.Tensor] | str:
    """The copy for a joiner, or the reason why there is none. Called between two steps. Never raises."""
    world = state.current()
    if world is None:
        return "its world has ended"
    try:
        return optimizer_copy.make(world.training.optimizers, trained_of(world))
    except Unsuitable as why:
        return str(why)
    except Exception as error:
        return f"the copy could not be made: {error}"


def trained_of(world: World) -> tuple[tuple[int, int], ...]:
    """id() and number of elements of each trained parameter in the vector, in order."""
    return () if world.training.vector is None else world.training.vector.trained


def before_step(world: World, optimizer: Any) -> None:
    """An optimizer of the vector is about to step. At its first step after joining, the site's ranks meet here."""
    fetch = world.training.fetch
    if fetch is None or fetch.over:
        return
    if waited := fetch.comes(world.training.number_of(optimizer)):
        if waited >= _MOST_BETWEEN:
            fetch.end()
            if world.is_leader:
                log.info(
                    f"an optimizer that has not stepped in {_MOST_BETWEEN} steps of another will start cold "
                    "[optimizer.late]"
                )
        return
    if len(fetch.seen) == 1:
        _receive(world, fetch, optimizer)
    else:
        try:
            _load(world, fetch, optimizer)
        except Unsuitable as why:
            if world.is_leader:
                log.warning(f"{type(optimizer).__name__} starts cold: {why} [optimizer.cold]")
    if fetch.left == 0:
        fetch.end()


def steps_in_backward(world: World) -> None:
    fetch = world.training.fetch
    if fetch is None or fetch.over:
        return
    fetch.end()
    if world.is_leader:
        log.info("the optimizer steps inside backward, where no other site can be asked for its state; it starts cold")


def _receive(world: World, fetch: Fetch, optimizer: Any) -> None:
    """The leader decides for all ranks of the site: they get what it fetches, or keep theirs if it has state."""
    text, cold = "", ""
    data = None
    if world.is_leader:
        try:
            if _is_fresh(optimizer):
                text, data = _fetch(world, optimizer)
                _check_finite(world, optimizer, data, _parts(world, text))
        except Unsuitable as why:
            text, data, cold = "", None, str(why)
        except Exception as error:
            text, data, cold = "", None, f"the state of another could not be taken: {_plain(error)}"
    text = _share(world, text)
    if text:
        cold = _take(world, fetch, optimizer, text, data)
    if world.is_leader and (cold or text):
        _session(world).end_optimizer(cold)
    if cold:
        fetch.end()


def _plain(error: Exception) -> str:
    return str(error).removeprefix("collab: ")


def _session(world: World) -> _C.Session:
    assert world.training.session is not None  # a session exists from the beginning of the fetch
    return world.training.session


def _is_fresh(optimizer: Any) -> bool:
    return all(optimizer_copy.is_fresh(held) for held in optimizer.state.values())


def _fetch(world: World, optimizer: Any) -> tuple[str, torch.Tensor]:
    kind_of(optimizer)
    while True:
        try:
            source, text, size = _session(world).ask_optimizer()
        except (ConnectionError, TimeoutError) as none:
            raise Unsuitable(_plain(none)) from None
        try:
            elements = [elements for _, elements in trained_of(world)]
            parts = parts_of(text, elements)
            expected = sum(part.layout.bytes_of(n) for part, n in zip(parts, elements, strict=True) if part)
            if size != expected:
                raise Unsuitable(f"its copy has {size} bytes, but its description says {expected}")
            _check(world, parts, optimizer)
        except Unsuitable as why:
            raise Unsuitable(f"{source}: {why}") from None
        try:
            return text, _session(world).take_optimizer()
        except ConnectionError:
            continue  # this member is lost, and the log says how; another one may have a copy


def _share(world: World, text: str) -> str:
    """Shares the leader's description with all ranks; it is empty if nothing is fetched."""
    description = torch.tensor(list(text.encode()), dtype=torch.uint8, device="cpu")
    length = torch.tensor([len(description)], device="cpu")
    _session(world).broadcast(length.view(torch.uint8))
    if not world.is_leader:
        description = torch.empty(int(length), dtype=torch.uint8, device="cpu")
    if len(description):
        _session(world).broadcast(description)
    return bytes(description.tolist()).decode()


def _parts(world: World, text: str) -> list[Part | None]:
    return parts_of(text, [elements for _, elements in trained_of(world)])


def _agreed(world: World, why_not: str) -> str:
    """Why any rank of the site cannot load it, from the lowest such rank; empty: all can."""
    ranks = world.info.site.ranks
    if len(ranks) == 1:
        return why_not
    told: list[str] = [""] * len(ranks)
    dist.all_gather_object(told, why_not, group=world.groups.site())
    return next((f"rank {rank}: {why}" for rank, why in zip(ranks, told, strict=True) if why), "")


def _take(world: World, fetch: Fetch, optimizer: Any, text: str, data: torch.Tensor | None) -> str:
    """All ranks of the site load the leader's copy, or none does. Returns the reason if none does. Ranks other than the
    leader hold one plane of one parameter at a time, and the state of optimizers that will come later."""
    every: list[tuple[int, int, Part | None]] = []
    ours: dict[int, tuple[Any, torch.Tensor]] = {}
    rest = data
    why_not = ""
    try:
        parts = _parts(world, text)
        _check(world, parts, optimizer)
        ours = {id(parameter): (group, parameter) for group, parameter, _ in _ours(world, optimizer, parts)}
        every = [(key, n, part) for (key, n), part in zip(trained_of(world), parts, strict=True)]
        if rest is None:
            later = sum(part.layout.bytes_of(n) for key, n, part in every if part is not None and key not in ours)
            rest = torch.empty(later, dtype=torch.uint8, device="cpu")
    except Unsuitable as why:
        why_not = str(why)
    except Exception as error:
        why_not = f"its state could not be placed: {_plain(error)}"
    if cold := _agreed(world, why_not):
        return cold
    assert rest is not None
    kept: list[Part | None] = [None] * len(every)
    states: list[tuple[torch.Tensor, dict[str, Any]]] = []
    used = 0
    for at, (key, elements, part) in enumerate(every):
        if part is None:
            continue
        if key not in ours:
            begin, size = part.begin if data is not None else used, part.layout.bytes_of(elements)
            kept[at] = Part(part.layout, part.number, begin)
            _broadcast(world, rest[begin : begin + size])
            used += size
            continue
        group, parameter = ours[key]
        held: dict[str, Any] = {}
        begin = part.begin
        for plane in part.layout.planes:
            size = elements * plane.sent.itemsize
            piece = torch.empty(size, dtype=torch.uint8, device="cpu") if data is None else data[begin : begin + size]
            _broadcast(world, piece)
            begin += size
            # A rank that failed still goes through the rest, because the others wait for it at each piece.
            why_not = why_not or _place(held, _plane, parameter, plane, piece)
        why_not = why_not or _place(held, _numbers, group, parameter, part)
        states.append((parameter, held))
    if cold := _agreed(world, why_not):
        return cold
    for parameter, held in states:
        optimizer.state[parameter].update(held)
    fetch.hold(rest, kept)
    return ""


def _broadcast(world: World, values: torch.Tensor) -> None:
    if len(world.info.site.ranks) > 1:
        for piece in values.split(_SHARED_AT_ONCE):
            _session(world).broadcast(piece)


def _plane(parameter: torch.Tensor, plane: Plane, piece: torch.Tensor) -> dict[str, Any]:
    return {plane.key: _values(parameter, plane, piece)}


def _place(held: dict[str, Any], make: Callable[..., dict[str, Any]], *of: Any) -> str:
    """Returns why it failed; empty if it succeeded."""
    try:
        held.update(make(*of))
    except Exception as error:
        return f"its state could not be placed: {_plain(error)}"
    return ""


def _ours(world: World, optimizer: Any, parts: list[Part | None]) -> Iterator[tuple[Any, torch.Tensor, Part]]:
    """(group, parameter, its part) for each of this optimizer's parameters that has a part."""
    places = {key: place for place, (key, _) in enumerate(trained_of(world))}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            part = parts[places[id(parameter)]] if id(parameter) in places else None
            if part is not None:
                yield group, parameter, part


def _check(world: World, parts: list[Part | None], optimizer: Any) -> None:
    kind = kind_of(optimizer)
    some = False
    for group, _, part in _ours(world, optimizer, parts):
        some = True
        if part.layout.kind != kind:
            raise Unsuitable(f"its optimizer is {part.layout.kind}, this site's is {kind}")
        keys = {plane.key for plane in part.layout.planes} | {scalar.key for scalar in part.layout.scalars}
        lacking = optimizer_copy.KEEPS.get(kind.rpartition(".")[2], set()) - keys
        if kind.startswith("torch.optim.") and lacking:
            raise Unsuitable(f"its {kind} keeps no {', '.join(sorted(lacking))}")
        ours = settings_of(group)
        for name in ours.keys() & part.layout.settings.keys():
            if ours[name] != part.layout.settings[name]:
                theirs = part.layout.settings[name]
                raise Unsuitable(f"its {kind} has {name} {theirs!r}, this site's has {ours[name]!r}")
    if not some:
        raise Unsuitable("it keeps no state for these parameters")


def _check_finite(world: World, optimizer: Any, data: torch.Tensor, parts: list[Part | None]) -> None:
    for _, parameter, part in _ours(world, optimizer, parts):
        for plane, values in planes_in(data, parameter, part):
            if not bool(torch.isfinite(values).all()):
                raise Unsuitable(f"{plane.key} is not finite there")


def _values(parameter: torch.Tensor, plane: Plane, piece: torch.Tensor) -> torch.Tensor:
    """A plane's tensor from its bytes."""
    fresh = torch.empty_like(parameter.detach(), dtype=plane.held, memory_format=torch.preserve_format)
    return fresh.copy_(piece.view(plane.sent).view(parameter.shape))


def _numbers(group: Any, parameter: torch.Tensor, part: Part) -> dict[str, Any]:
    scalars = part.layout.scalars
    return {scalar.key: optimizer_copy.number_in(scalar, part.number, group, parameter) for scalar in scalars}


def _load(world: World, fetch: Fetch, optimizer: Any) -> None:
    """Loads the state of an optimizer that comes after the first one; the data is already in this process."""
    assert fetch.data is not None
    _check(world, fetch.parts, optimizer)
    _check_finite(world, optimizer, fetch.data, fetch.parts)
    for group, parameter, part in _ours(world, optimizer, fetch.parts):
        held = optimizer.state[parameter]
        for plane, values in planes_in(fetch.data, parameter, part):
            held[plane.key] = _values(parameter, plane, values.reshape(-1))
        held.update(_numbers(group, parameter, part))
        fetch.taken()
