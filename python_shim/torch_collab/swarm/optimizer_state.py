"""The optimizer's state between sites: one member serves a copy of its own (model/optimizer_copy.py) between two of its
steps; a site that joins fetches it before its first step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from torch_collab import log
from torch_collab.model import optimizer_copy
from torch_collab.model.optimizer_copy import Fetch, Part, Unsuitable, kind_of, parts_of, planes_in, settings_of
from torch_collab.world import state

if TYPE_CHECKING:
    from torch_collab import _C
    from torch_collab.world.state import World

_SHARED_AT_ONCE = 64 << 20
# So many steps of one optimizer another may come later than it (a GAN trains its critic more often).
_MOST_BETWEEN = 100


def copy() -> tuple[str, torch.Tensor] | str:
    """The copy that a joiner asks for, or why there is none. Between two steps. Never raises."""
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
    """id() and elements of each trained parameter in the vector, in order."""
    return () if world.training.vector is None else world.training.vector.trained


def before_step(world: World, optimizer: Any) -> None:
    """An optimizer of the vector is about to step. The first time after joining, the ranks of the site meet here."""
    fetch = world.training.fetch
    if fetch is None or fetch.over:
        return
    if waited := fetch.comes(optimizer):
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
            cold = f"the state of another could not be taken: {_plain(error)}"
    text, data = _share(world, text, data)
    if data is not None:
        try:
            fetch.hold(data, parts_of(text, [elements for _, elements in trained_of(world)]))
            _load(world, fetch, optimizer)
        except Unsuitable as why:
            cold = str(why)
    if world.is_leader and (cold or data is not None):
        _session(world).end_optimizer(cold)
    if cold:
        fetch.end()


def _plain(error: Exception) -> str:
    return str(error).removeprefix("collab: ")


def _session(world: World) -> _C.Session:
    assert world.training.session is not None  # it is fetching from its beginning on
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
                raise Unsuitable(f"its copy has {size} bytes, described are {expected}")
            _check(world, parts, optimizer)
        except Unsuitable as why:
            raise Unsuitable(f"{source}: {why}") from None
        try:
            return text, _session(world).take_optimizer()
        except ConnectionError:
            continue  # lost: the log says how; another member may have one


def _share(world: World, text: str, data: torch.Tensor | None) -> tuple[str, torch.Tensor | None]:
    description = bytearray(text.encode())
    sizes = torch.tensor([len(description), 0 if data is None else data.numel()])
    _session(world).broadcast(sizes.view(torch.uint8))
    length, size = sizes.tolist()
    if size == 0:
        return "", None
    words = (
        torch.frombuffer(description, dtype=torch.uint8) if data is not None else torch.empty(length, dtype=torch.uint8)
    )
    data = torch.empty(size, dtype=torch.uint8) if data is None else data
    _session(world).broadcast(words)
    for piece in data.split(_SHARED_AT_ONCE):
        _session(world).broadcast(piece)
    return bytes(words.tolist()).decode(), data


def _ours(world: World, optimizer: Any, parts: list[Part | None]) -> Iterator[tuple[Any, torch.Tensor, Part]]:
    """(group, parameter, its part) of this optimizer's parameters that have one."""
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


def _load(world: World, fetch: Fetch, optimizer: Any) -> None:
    assert fetch.data is not None
    _check(world, fetch.parts, optimizer)
    for _, parameter, part in _ours(world, optimizer, fetch.parts):
        for plane, values in planes_in(fetch.data, parameter, part):
            if not bool(torch.isfinite(values).all()):
                raise Unsuitable(f"{plane.key} is not finite there")
    for group, parameter, part in _ours(world, optimizer, fetch.parts):
        held = optimizer.state[parameter]
        for plane, values in planes_in(fetch.data, parameter, part):
            fresh = torch.empty_like(parameter.detach(), dtype=plane.held, memory_format=torch.preserve_format)
            held[plane.key] = fresh.copy_(values)
        for scalar in part.layout.scalars:
            held[scalar.key] = optimizer_copy.number_in(scalar, part.number, group, parameter)
        fetch.taken()
