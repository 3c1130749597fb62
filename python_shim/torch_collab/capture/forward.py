"""From a script's DDP modules to a session: the first training forward builds the vector and begins round 0.

A script may train several models, one after the other. Each is a generation: a DDP that is made later, and trains what
the vector does not hold, ends the generation with a last round and begins the next. What trains together stays one
vector: the DDPs that were made since, or, when an older one comes back, those that train in this generation and it.
"""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import torch

from torch_collab import log
from torch_collab.capture import metrics, refuse, resumed, running, steps
from torch_collab.model import vector
from torch_collab.model.optimizer_copy import Fetch
from torch_collab.model.samples import first_dimension
from torch_collab.swarm import same_model, sessions
from torch_collab.world import state as world_state
from torch_collab.world.groups import part_inside_site, site_group

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel

    from torch_collab.world.state import World


def adopt(world: World, ddp: DistributedDataParallel, module: torch.nn.Module) -> None:
    """A DDP is being constructed around `module`."""
    for part in module.modules():
        if isinstance(part, torch.nn.SyncBatchNorm):
            _keep_inside_site(world, part)
    world.new_ddps.append(weakref.ref(ddp))
    world.constructed[ddp] = frozenset(id(parameter) for parameter in module.parameters() if parameter.requires_grad)
    ddp.register_forward_pre_hook(on_ddp_forward, with_kwargs=True)


def _keep_inside_site(world: World, norm: torch.nn.SyncBatchNorm) -> None:
    group = norm.process_group
    norm.process_group = site_group(world) if group is None else part_inside_site(world, group)


def on_ddp_forward(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Forward pre-hook of every DDP. A module-level function, so that copies and pickles of a DDP carry it."""
    world = world_state.current()
    if world is None or world.finished or not torch.is_grad_enabled():
        return
    _before_training_forward(world, module, args, kwargs)


def _before_training_forward(world: World, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    running.drop_dead()  # a step that an exception has left keeps what it worked on alive
    if world.training.vector is None:
        _begin(world, _made_since(world, module))
    elif module in world.training.vector:
        _follow_parameters(world)
    elif world.training.vector.covers(module, world.constructed):
        world.new_ddps[:] = [ref for ref in world.new_ddps if ref() is not module]
    elif module.training or module in world.constructed:
        _begin_next(world, module)
    else:
        return  # a copy (an average of weights, say) is evaluated, without no_grad()
    world.training.trained.add(module)
    if world.training.stepped_in_backward:
        steps.count(world)
    if world.training.vector is not None:
        world.training.unseen.forward(module, world.training.vector.parameters, world.is_leader)
    world.training.samples.saw(first_dimension(args, kwargs))


def _made_since(world: World, module: DistributedDataParallel) -> list[DistributedDataParallel]:
    """The DDPs that were constructed since the last generation began, in that order; `module` is one of them."""
    # A discarded DDP may live on in a reference cycle, at one rank and not at another.
    gc.collect()
    made = [ddp for ddp in (ref() for ref in world.new_ddps) if ddp is not None]
    if all(ddp is not module for ddp in made):
        made.append(module)
    return made


def _begin_next(world: World, module: DistributedDataParallel) -> None:
    """`module` trains what the vector does not hold: the last round of this generation, then the next."""
    returns = all(ref() is not module for ref in world.new_ddps)
    # In the order of construction, which is the same at every rank.
    together = [ddp for ddp in world.constructed if ddp is module or ddp in world.training.trained]
    try:
        end_generation(world)
    except BaseException:
        world.failed = True
        raise
    _begin(world, together if returns and module in together else _made_since(world, module))


def end_generation(world: World) -> None:
    """The last round of the generation; the site goes on to the next."""
    session = world.training.session
    if session is None:
        return
    if world.config.transport == "gloo":
        raise RuntimeError(
            "collab: a second model is trained in this process, which COLLAB_TRANSPORT=gloo cannot do: its links are "
            "made once. Leave COLLAB_TRANSPORT unset, or set it to tcp [ddp.second-model-gloo]"
        )
    if world.training.stepped_in_backward or world.training.cycle.unfinished():
        steps.count(world)
    session.finish(world.generation + 1)
    metrics.write(world)
    world.egress_spent = max(world.egress_spent, session.status().egress_spent)
    world.training = world_state.Training()
    if world.is_leader:
        log.info(
            f"the script trains another model now: generation {world.generation} has had its last round, generation "
            f"{world.generation + 1} begins"
        )


def _begin(world: World, ddps: list[DistributedDataParallel]) -> None:
    world.generation += 1
    world.new_ddps.clear()
    entries = vector.collect(ddps, world.constructed, world.config.buffers)
    same_model.check_same_on_site(entries, site_group(world), world.rank, world.site.ranks, world.site.name)
    if len(world.site.ranks) > 1:
        vector.check_known_to_ddp(ddps, world.constructed, entries)
    same_model.check_same_between_sites(world, entries)
    refuse.watch_post_local_sgd(world)
    session = sessions.make(world, entries, resumed.seen(world, entries))
    try:
        sessions.begin(world, session)
    except BaseException:
        world.failed = True
        raise
    world.training.session = session
    world.training.vector = vector.Vector(ddps, entries, len(world.site.ranks))
    if world.config.join_optimizer and session.status().round > 0:  # others have trained
        world.training.fetch = Fetch()


def _follow_parameters(world: World) -> None:
    assert world.training.vector is not None
    if world.training.session is None or world.failed:
        return
    try:
        for position, entry, tensor in world.training.vector.changes():
            world.training.session.replace_tensor(position, tensor)
            world.training.vector.take(entry, tensor)
            if world.is_leader and not entry.buffer:  # some modules make their buffers anew at each step
                log.info(f"{entry.name} is another object by now, as load_state_dict(assign=True) leaves it; followed")
    except BaseException:
        world.failed = True
        raise
