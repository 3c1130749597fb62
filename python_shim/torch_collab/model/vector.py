"""Which tensors of the DDP modules make up the vector, the check that a site's ranks agree on it, and what happens to
its parameters while the script trains.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from torch_collab import log, torch_compat
from torch_collab.formatting import listed
from torch_collab.model import tied
from torch_collab.model.entry import Entry
from torch_collab.model.frozen import FrozenValues
from torch_collab.model.modules import is_ignored
from torch_collab.model.undone import UndoneRounds
from torch_collab.model.values import Values

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel


_versions = itertools.count(1)

# What each DDP was constructed to train: id() of parameters, which its reducer keeps alive.
Constructed = Mapping["DistributedDataParallel", frozenset[int]]


def trained_by(module: DistributedDataParallel, constructed: Constructed) -> frozenset[int]:
    """id() of what `module` trains. Parameters that are frozen for a while (the other half of a GAN) count. The
    construction of a DDP's copy was not seen."""
    made_with = constructed.get(module)
    if made_with is not None:
        return made_with
    return frozenset(
        id(parameter)
        for name, parameter in module.module.named_parameters()
        if parameter.requires_grad and not is_ignored(module.module, name)
    )


def collect(modules: list[DistributedDataParallel], constructed: Constructed, with_buffers: bool) -> list[Entry]:
    """The tensors in order: the parameters of each DDP in order of construction, then the float buffers of each.

    Buffers come last because a site's ranks may differ in them. Buffers that are not persistent, or hold NaN or
    infinity now (a causal mask of -inf), are left out of the vector: they are tables, and their mean has no meaning.
    Tied tensors come once, whether one object or several in one memory. With several DDP modules names start with
    `ddp0.`, `ddp1.`, … Tensors that a DDP was told to ignore belong to a rank alone; sites do not share them.
    """
    parameters: list[Entry] = []
    buffers: list[Entry] = []
    seen: set[int] = set()
    ignored: list[str] = []
    for index, ddp in enumerate(modules):
        prefix = f"ddp{index}." if len(modules) > 1 else ""
        for name, parameter in ddp.module.named_parameters():
            if is_ignored(ddp.module, name):
                ignored.append(prefix + name)
            elif id(parameter) not in seen:
                seen.add(id(parameter))
                trained = parameter.requires_grad or id(parameter) in trained_by(ddp, constructed)
                parameters.append(Entry(prefix + name, parameter, trained))
        passing = _not_persistent(ddp.module)
        for name, buffer in ddp.module.named_buffers():
            if is_ignored(ddp.module, name):
                ignored.append(prefix + name)
            elif id(buffer) not in seen and buffer.is_floating_point() and with_buffers:
                seen.add(id(buffer))
                left_out = name in passing or not _finite(buffer)
                buffers.append(Entry(prefix + name, buffer, not left_out, buffer=True, left_out=left_out))
    if ignored:
        log.info(
            f"DistributedDataParallel was told to ignore {listed(ignored)}: each rank keeps its own, and they are not "
            "averaged between sites"
        )
    entries = parameters + buffers
    refuse_sharded([(entry.name, entry.tensor) for entry in entries])
    for entry in entries:
        if entry.trained and not entry.tensor.is_floating_point():
            raise RuntimeError(
                f"collab: {entry.describe()} cannot be averaged; only floating-point parameters can be trained "
                "across sites [capture.not-floating]"
            )
    if wide := [entry.name for entry in entries if entry.trained and entry.tensor.dtype == torch.float64]:
        log.warn_once(
            f"{listed(wide)} {'is' if len(wide) == 1 else 'are'} float64, but rounds are computed in float32: each "
            "round rounds the values to 24 bits [capture.float64]"
        )
    entries = tied.merge(entries)
    if pairs := [f"{other.name} ({entry.name})" for entry in entries for other in entry.tied]:
        log.info(f"these share the memory of another parameter, and are averaged once, with it: {listed(pairs)}")
    return entries


def refuse_sharded(named: list[tuple[str, torch.Tensor]]) -> None:
    """Refuses DTensor parameters: fully_shard, and tensor or pipeline parallel parts."""
    for name, tensor in named:
        if torch_compat.is_dtensor(tensor):
            raise RuntimeError(
                f"collab: parameter {name} is a DTensor (fully_shard or tensor parallel). collab averages whole models "
                "between sites, and cannot yet join such parts. Train it with DistributedDataParallel [ddp.dtensor]"
            )


def _not_persistent(module: torch.nn.Module) -> set[str]:
    """Names of the buffers that are not in the state_dict."""
    names: set[str] = set()
    for owner, part in module.named_modules(remove_duplicate=False):
        prefix = owner + "." if owner else ""
        names.update(prefix + name for name in torch_compat.not_persistent(part))
    return names


def _finite(buffer: torch.Tensor) -> bool:
    """Whether the buffer is finite as float32, the type in which it travels."""
    if buffer.layout != torch.strided or buffer.is_meta or torch_compat.is_dtensor(buffer):
        return True  # refused with a message, here or when the vector is made
    return bool(torch.isfinite(buffer.detach().float()).all())


class Vector:
    """The parameters that the sites of one generation average, and the modules they belong to.

    The compiled core follows new storage under a parameter. This class finds new *objects* in a parameter's place:
    before each training forward in the places where parameters stood, and once a round in the modules as they are.
    """

    def __init__(self, modules: list[DistributedDataParallel], entries: list[Entry], ranks: int) -> None:
        self.entries = entries
        self.version = 0  # a fresh number with each new object
        self._modules: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet(modules)
        self._roots = [weakref.ref(ddp.module) for ddp in modules]
        self._look_again = False
        # id() and elements of each trained parameter in order, including those that share memory.
        self.trained: tuple[tuple[int, int], ...] = ()
        self.ids: frozenset[int] = frozenset()  # the ids of `trained`
        self._ranks = ranks
        self.parameters: list[torch.Tensor] = []  # trained, in order
        self._positions: dict[int, int] = {}  # by id(), index among the tensors of the vector
        self._tied: list[tuple[Entry, Entry]] = []  # the vector's entry, and the other one in its memory
        self._places: list[tuple[dict[str, Any], str, torch.Tensor]] = []
        self._frozen: list[tuple[str, torch.Tensor]] = []
        self._told: set[str] = set()
        self._buffers_seen: set[str] = set()  # buffers that appeared after this vector was made
        self._buffers_added: list[str] = []
        self.values = Values()
        self.frozen = FrozenValues()
        self.undone = UndoneRounds()
        self._index()

    def __contains__(self, module: object) -> bool:
        return module in self._modules

    def covers(self, module: DistributedDataParallel, constructed: Constructed) -> bool:
        """Whether `module`, a DDP made later, trains exactly what it holds of the vector: then it belongs here."""
        trained = trained_by(module, constructed)
        if not trained or trained != {id(p) for p in module.parameters() if id(p) in self.ids}:
            return False
        if self._untied() is not None:
            return False
        self._modules.add(module)
        return True

    def look_again(self) -> None:
        """Called after a round: the next look walks through the modules."""
        self._look_again = True

    def changes(self) -> list[tuple[int, Entry, torch.Tensor]]:
        """Called before a training forward. Returns new objects that took the place of tensors of the vector, as
        (position in the vector, entry, object).

        Raises RuntimeError, with the name, for a tensor that can no longer be averaged.
        """
        self.values.before_forward()
        self.frozen.before_forward(self._frozen)
        if (apart := self._untied()) is not None:
            raise RuntimeError(_no_longer_tied(*apart))
        for slots, name, held in self._places:
            if name not in slots or slots[name] is not held:  # a TorchScript module's slots have no get()
                break
        else:
            for name, parameter in self._frozen:
                if parameter.requires_grad:
                    self._warn_of_unfrozen(name)
            if not self._look_again:
                return []
        self._look_again = False
        return self._walk()

    def frozen_changed(self, alike: bool) -> str:
        """Called after a round; see FrozenValues.after_round()."""
        return self.frozen.after_round(self._frozen, alike)

    def take(self, changes: list[tuple[int, Entry, torch.Tensor]]) -> None:
        """From here on the new objects in `changes` are the entries' tensors."""
        if not changes:
            return
        tensors = {id(entry): tensor for _, entry, tensor in changes}
        self.entries = [replace(e, tensor=tensors[id(e)]) if id(e) in tensors else e for e in self.entries]
        self._index()

    def _index(self) -> None:
        self.version = next(_versions)
        trained = [entry for entry in self.entries if entry.trained]
        self._positions = {id(entry.tensor): position for position, entry in enumerate(trained)}
        self.parameters = [entry.tensor for entry in trained if not entry.buffer]
        self.trained = tuple((id(each), each.numel()) for entry in trained for each in entry.parameters)
        self._tied = [(entry, other) for entry in trained for other in entry.tied]
        self.ids = frozenset(key for key, _ in self.trained)
        self._frozen = [
            (entry.name, entry.tensor)
            for entry in self.entries
            if not entry.trained and not entry.buffer and entry.name not in self._told
        ]
        wanted = {id(each.tensor): each.tensor for entry in trained for each in (entry, *entry.tied)}
        self._places = []
        for root in self._living_roots():
            for part in root.modules():
                for slots in torch_compat.slots_of(part):
                    for name, tensor in slots.items():
                        if id(tensor) in wanted:
                            self._places.append((slots, name, wanted[id(tensor)]))

    def _walk(self) -> list[tuple[int, Entry, torch.Tensor]]:
        """Compares the modules' present tensors with the entries, by name."""
        changed: list[tuple[int, Entry, torch.Tensor]] = []
        now: dict[str, torch.Tensor] = {}
        passing: set[str] = set()
        gone: list[str] = []  # prefixes of models that the script has dropped
        for index, ref in enumerate(self._roots):
            prefix = f"ddp{index}." if len(self._roots) > 1 else ""
            root = ref()
            if root is None:
                gone.append(prefix)
                continue
            for name, held in (*root.named_parameters(), *root.named_buffers()):
                if not is_ignored(root, name):
                    now[prefix + name] = held
            passing.update(prefix + name for name in _not_persistent(root))
        self._follow_tied(now)
        known = {each.name for entry in self.entries for each in (entry, *entry.tied)}
        held_now = {id(other) for other in now.values()}
        for entry in self.entries:
            tensor = now.get(entry.name)
            if not entry.trained or tensor is entry.tensor or entry.name.startswith(tuple(gone)):
                continue
            if tensor is None:
                if id(entry.tensor) not in held_now:
                    raise RuntimeError(self._gone(entry))
                continue  # the same tensor under another name: tied, or its module was renamed
            if not entry.buffer and not isinstance(tensor, torch.nn.Parameter):
                self._look_again = True  # torch.func.functional_call has put another tensor there during a call
                continue
            if (tensor.shape, tensor.dtype) != (entry.tensor.shape, entry.tensor.dtype):
                raise RuntimeError(
                    f"collab: {entry.describe()} is {str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)} "
                    "now, so sites can no longer average it. Change the model before you wrap it in "
                    "DistributedDataParallel, or wrap the changed model in a new one [capture.parameter-changed]"
                )
            if self._ranks > 1 and not entry.buffer:
                raise RuntimeError(_replaced(entry))
            changed.append((self._positions[id(entry.tensor)], entry, tensor))
        for name, tensor in now.items():
            if name not in known and isinstance(tensor, torch.nn.Parameter) and tensor.requires_grad:
                if id(tensor) in self.ids:
                    continue
                raise RuntimeError(
                    f"collab: {name} was added to the model after it was wrapped in DistributedDataParallel. The "
                    "wrapper does not know it, and sites do not average it. Make a new DistributedDataParallel around "
                    "the model [capture.parameter-added]"
                )
            if name not in known and name not in passing:
                self._note_buffer(name, tensor)
        return changed

    def _note_buffer(self, name: str, tensor: torch.Tensor) -> None:
        """Notes a buffer whose name is in no entry."""
        if isinstance(tensor, torch.nn.Parameter) or not tensor.is_floating_point() or name in self._buffers_seen:
            return
        self._buffers_seen.add(name)
        if not any(entry.tensor is tensor for entry in self.entries) and _finite(tensor):
            self._buffers_added.append(name)

    def take_added_buffers(self) -> list[str]:
        """Names of buffers that came later and would have been averaged from the start; each name once."""
        added, self._buffers_added = self._buffers_added, []
        return added

    def _follow_tied(self, now: dict[str, torch.Tensor]) -> None:
        """Takes new objects in the place of tied ones. They must share memory with the tensor that they are tied to."""
        followed: dict[int, list[Entry]] = {}
        changed = False
        for entry, other in self._tied:
            kept = followed.setdefault(id(entry), [])
            if other.name not in now:
                changed = True  # its model is gone, or one Parameter stands in both places
                continue
            tensor, there = now[other.name], now.get(entry.name, entry.tensor)
            if not all(isinstance(each, torch.nn.Parameter) for each in ([there] if other.buffer else [there, tensor])):
                self._look_again = True  # replaced during a call, see _walk()
                tensor = other.tensor
            elif tied.place_of(tensor) != tied.place_of(there):
                raise RuntimeError(_no_longer_tied(entry, other))
            elif tensor is not other.tensor and other.trained and not other.buffer and self._ranks > 1:
                raise RuntimeError(_replaced(other))
            changed = changed or tensor is not other.tensor
            kept.append(replace(other, tensor=tensor))
        if changed:
            self.entries = [replace(e, tied=tuple(followed[id(e)])) if id(e) in followed else e for e in self.entries]
            self._index()

    def _untied(self) -> tuple[Entry, Entry] | None:
        """The first pair that shared memory and no longer does."""
        apart = (pair for pair in self._tied if tied.place_of(pair[0].tensor) != tied.place_of(pair[1].tensor))
        return next(apart, None)

    def _living_roots(self) -> list[torch.nn.Module]:
        return [root for root in (ref() for ref in self._roots) if root is not None]

    def _gone(self, entry: Entry) -> str:
        return (
            f"collab: {entry.describe()} is no longer part of the model, but sites still average it. Make a new "
            "DistributedDataParallel around the changed model [capture.parameter-gone]"
        )

    def _warn_of_unfrozen(self, name: str) -> None:
        self._told.add(name)
        self._frozen = [(other, tensor) for other, tensor in self._frozen if other != name]
        log.warning(
            f"{name} was frozen when the model was wrapped in DistributedDataParallel and requires a gradient now. "
            "Neither the ranks of a site nor the sites average it. Make a new DistributedDataParallel around the model "
            "after unfreezing [capture.unfrozen]"
        )


def _replaced(entry: Entry) -> str:
    return (
        _another_object(entry)
        + "is no longer averaged over the ranks of this site. Load without assign=True, or make a new "
        "DistributedDataParallel after it [capture.parameter-replaced]"
    )


def _no_longer_tied(entry: Entry, other: Entry) -> str:
    return (
        f"collab: {other.name} lay in the memory of {entry.name} when training began, but now has its own memory (data "
        f"was assigned or moved): sites average {entry.name} alone. Tie them as one Parameter before the model is "
        "wrapped in DistributedDataParallel, or make a new one around the changed model [capture.untied]"
    )


def _another_object(entry: Entry) -> str:
    return (
        f"collab: {entry.name} is not the Parameter object that DistributedDataParallel was made with "
        "(load_state_dict(assign=True), or an assignment to the attribute): its gradient "
    )


def check_known_to_ddp(modules: list[DistributedDataParallel], constructed: Constructed, entries: list[Entry]) -> None:
    """At a site of several ranks the DDPs must have been constructed with all that is trained."""
    if any(ddp not in constructed for ddp in modules):
        return  # a copy: its reducer was made with the parameters it holds
    known = frozenset().union(*(constructed[ddp] for ddp in modules))
    for each in [each for entry in entries for each in (entry, *entry.tied)]:
        if each.trained and not each.buffer and id(each.tensor) not in known:
            raise RuntimeError(
                _another_object(each)
                + "would not be averaged over the ranks of this site. Do it before the model is wrapped, or load "
                "without assign=True [capture.parameter-unknown]"
            )
