"""From a script's DDP modules to a session: the first training forward builds the vector and begins round 0.

A script may train several models, one after the other. Each is a generation. A DDP that is made later and trains what
the vector does not hold ends the generation with a last round and begins the next. Models that train together share one
vector: the DDPs made since, or, when an older one comes back, that one and those that train in this generation.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch

from torch_collab import log
from torch_collab.capture import refuse, resumed, rounds, running
from torch_collab.formatting import listed, plural
from torch_collab.model import vector
from torch_collab.model.early_copies import EarlyCopies
from torch_collab.model.samples import first_dimension
from torch_collab.swarm import same_model, sessions
from torch_collab.world import state

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel

    from torch_collab.world.state import World


_SECONDS_TO_MEET = 10


def adopt(world: World, ddp: DistributedDataParallel, module: torch.nn.Module) -> None:
    """A DDP is being constructed around `module`, or gets it as its new module."""
    for part in module.modules():
        if isinstance(part, torch.nn.SyncBatchNorm):
            _keep_inside_site(world, part)
    if ddp in world.ddps.constructed:
        return  # torch.compile, say, replaces its module; its reducer keeps the parameters it was constructed with
    world.ddps.add(ddp, module)
    ddp.register_forward_pre_hook(on_ddp_forward, with_kwargs=True)
    ddp.register_forward_hook(after_ddp_forward, always_call=True)


def _keep_inside_site(world: World, norm: torch.nn.SyncBatchNorm) -> None:
    group = norm.process_group
    norm.process_group = world.groups.site() if group is None else world.groups.inside(group)


_called: weakref.WeakSet[Any] = weakref.WeakSet()  # DDPs that were called and have not reached _pre_forward() yet


def on_ddp_forward(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Forward pre-hook of every DDP. A module-level function, so that copies and pickles of a DDP carry it."""
    if _saw_training_forward(module, args, kwargs):
        _called.add(module)


def after_ddp_forward(module: torch.nn.Module, args: tuple[Any, ...], result: Any) -> None:
    """Forward hook of every DDP: the call has ended, perhaps with an error before it reached `_pre_forward`."""
    _called.discard(module)


def on_pre_forward(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Called before DDP's own `_pre_forward`: calls of `ddp.forward(x)`, or of parts of it, bypass module hooks."""
    if module in _called:
        _called.discard(module)
    else:
        _saw_training_forward(module, args, kwargs)


def _saw_training_forward(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    world = state.current()
    if world is None or world.run.finished:
        return False
    if not torch.is_grad_enabled():
        _look_at_forward_without_gradients(world, module)
        return False
    _before_training_forward(world, module, args, kwargs)
    return True


def _look_at_forward_without_gradients(world: World, module: Any) -> None:
    training, constructed = world.training, world.ddps.constructed
    if training.session is not None or module not in constructed or not training.unseen_forwards.none:
        return
    if rounds.is_to_average(world):
        trained = [each for ddp in constructed for each in ddp.parameters() if each.requires_grad]
        training.without_gradients.forward(trained, world.is_leader)


def watch_forwards(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces `DistributedDataParallel._pre_forward`."""

    @functools.wraps(original)
    def pre_forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        on_pre_forward(self, args, kwargs)
        return original(self, *args, **kwargs)

    return pre_forward


def _before_training_forward(world: World, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    running.drop_dead()  # a step that raised keeps everything it worked on alive
    if not follow(world, module):
        return
    training = world.training  # of the generation that may just have begun
    if training.stepped_in_backward:
        rounds.count(world)
    if training.vector is not None:
        training.unseen.forward(module, training.vector.parameters, world.is_leader)
    training.samples.saw(first_dimension(args, kwargs), module.training and module.module.training)


def follow(world: World, module: Any) -> bool:
    """`module` is about to train. Ensures a session and a vector that holds what it trains; False if it has none."""
    held = world.training.vector
    if held is not None and module in held:
        _follow_parameters(world)
    elif held is not None and held.covers(module, world.ddps.constructed):
        world.ddps.join(module)
    elif module not in world.ddps.constructed:
        first = world.copies.called(module)
        if not (held is None and first and world.ddps.none_lives() and vector.trained_by(module, {})):
            return False
        _begin(world, [module])  # loaded with torch.load(), and not a copy of a live DDP
    elif held is None:
        _begin(world, world.ddps.made_since(module))
    else:
        _begin_next(world, module)
    world.training.ran(module)
    return True


def begin_without_forward(world: World) -> bool:
    """For a script that trains without gradients: all DDPs made so far become the vector. False if there is none."""
    if world.ddps.none_lives():
        return False
    return follow(world, list(world.ddps.constructed)[-1])


def follow_optimizer(world: World, optimizer: Any) -> bool:
    """`optimizer` is about to step. True if it trains some of the vector, which may by now be that of a DDP's copy."""
    if world.training.trains(optimizer):
        world.copies.others_stepped()
        return True
    copy = world.copies.stepped(optimizer, world.ddps.constructed.values())
    if copy is None:
        return False
    if world.training.vector is not None:
        with world.run:
            end_generation(world)
    _begin(world, [copy])
    world.training.ran(copy)
    return world.training.trains(optimizer)


def _begin_next(world: World, module: DistributedDataParallel) -> None:
    """`module` trains what the vector does not hold: runs this generation's last round, then begins the next."""
    returns = not world.ddps.is_new(module)
    together = [ddp for ddp in world.ddps.constructed if ddp is module or ddp in world.training.ddps]
    with world.run:
        end_generation(world)
    _begin(world, together if returns and module in together else world.ddps.made_since(module))


def end_generation(world: World) -> None:
    """Runs the generation's last round; the site goes on to the next generation."""
    session, number = world.training.session, world.generations.number
    if session is None:
        return
    if world.info.config.transport == "gloo":
        raise RuntimeError(
            "collab: this process trains a second model, but COLLAB_TRANSPORT=gloo makes its links only once. Leave "
            "COLLAB_TRANSPORT unset, or set it to tcp [ddp.second-model-gloo]"
        )
    rounds.last_round(world, next_generation=number + 1)
    world.generations.end(session)
    if world.is_leader:
        log.info(
            f"the script trains another model now: generation {number} has had its last round, generation "
            f"{number + 1} begins"
        )


def _begin(world: World, ddps: list[DistributedDataParallel]) -> None:
    world.generations.begin()
    world.ddps.begin_generation()
    world.copies.begin_generation()
    info, constructed = world.info, world.ddps.constructed
    entries = vector.collect(ddps, constructed, info.config.buffers)
    _meet(world)
    same_model.check_same_on_site(entries, world.groups.site(), info.rank, info.site.ranks, info.site.name)
    if len(info.site.ranks) > 1:
        vector.check_known_to_ddp(ddps, constructed, entries)
    same_model.check_same_between_sites(world, entries)
    refuse.watch_post_local_sgd(world)
    loaded = resumed.seen(world, entries)
    session = sessions.make(world, entries, loaded)
    copies = EarlyCopies([entry.tensor for entry in entries if entry.trained and not entry.buffer], loaded)
    with world.run:
        sessions.begin(world, session)
    if world.is_leader and copies.found():
        log.warn_once(
            "this site took the model of other sites, but the script holds copies of its own model from before (EMA, "
            "teacher, target network, reference). Make copies that follow the model after the first training forward, "
            "or use the same seed at all sites [capture.early-copy]"
        )
    fetches = info.config.join_optimizer and session.status().round > 0  # others have trained already
    world.training.begin(session, vector.Vector(ddps, entries, len(info.site.ranks)), fetches)


def _meet(world: World) -> None:
    """The ranks that begin a generation wait for each other; a warning names a rank that does not come.

    These are the site's ranks. In one world all ranks begin the first generation together; later a site may be gone.
    """
    info = world.info
    begins_everywhere = info.one_world and world.generations.number == 1
    ranks = range(info.size) if begins_everywhere else info.site.ranks
    if len(ranks) == 1:
        return
    keys = {rank: f"collab/forward/{world.generations.number}/{rank}" for rank in ranks}
    info.site_store.set(keys[info.rank], "1")
    try:
        info.site_store.wait(list(keys.values()), timedelta(seconds=_SECONDS_TO_MEET))
    except Exception:
        late = [rank for rank, key in keys.items() if not info.site_store.check([key])]
        if late and info.rank == min(keys.keys() - late):
            names = dict.fromkeys(info.sites.of(rank).name for rank in late)
            log.warning(
                f"{plural('rank', len(late))} {', '.join(map(str, late))} of "
                f"{plural('site', len(names))} {', '.join(names)} "
                f"{'have' if len(late) > 1 else 'has'} not come to the first training forward of generation "
                f"{world.generations.number}, in which rank {info.rank} has waited for {_SECONDS_TO_MEET} s: all ranks "
                "begin together. A forward of one rank alone belongs under torch.no_grad() [capture.ranks-late]"
            )


def _follow_parameters(world: World) -> None:
    session, followed = world.training.session, world.training.vector
    if session is None or followed is None or world.run.failed:
        return
    with world.run:
        changes = followed.changes()
        _tell_of_added_buffers(world, followed.take_added_buffers())
        for position, _, tensor in changes:
            session.replace_tensor(position, tensor)
        followed.take(changes)
        for _, entry, _ in changes:
            if world.is_leader and not entry.buffer:  # some modules make their buffers anew in each step
                log.info(f"{entry.name} is another object by now, as load_state_dict(assign=True) leaves it; followed")


def _tell_of_added_buffers(world: World, names: list[str]) -> None:
    if names and world.is_leader and world.info.config.buffers and rounds.is_to_average(world):
        log.warning(
            f"{plural('buffer', len(names))} registered after training began: {listed(names)}. Sites do not average "
            "what was not there at the first training forward: each site has its own. Register buffers before that, or "
            "wrap the model in a new DistributedDataParallel. If all sites need the same mask (torch.nn.utils.prune), "
            "make it after dist.barrier(), from the same weights [capture.buffer-added]"
        )
