"""From a script's DDP modules to a session: the first training forward builds the vector and begins round 0."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import torch

from torch_collab import moments, refuse, state, swarm, vector
from torch_collab.groups import site_group
from torch_collab.samples import first_dimension

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel

    from torch_collab.state import World


def adopt(world: World, ddp: DistributedDataParallel, module: torch.nn.Module) -> None:
    """A DDP is being constructed around `module`."""
    for part in module.modules():
        if isinstance(part, torch.nn.SyncBatchNorm):
            _keep_inside_site(world, part)
    if world.session is None:
        world.ddp_modules.append(weakref.ref(ddp))
    ddp.register_forward_pre_hook(on_ddp_forward, with_kwargs=True)


def _keep_inside_site(world: World, norm: torch.nn.SyncBatchNorm) -> None:
    from torch_collab.groups import part_inside_site

    group = norm.process_group
    norm.process_group = site_group(world) if group is None else part_inside_site(world, group)


def on_ddp_forward(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Forward pre-hook of every DDP. A module-level function, so that copies and pickles of a DDP carry it."""
    world = state.current()
    if world is None or world.finished or not torch.is_grad_enabled():
        return
    _before_training_forward(world, module, args, kwargs)


def _before_training_forward(
    world: World, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    from torch_collab import steps

    if world.session is None:
        if not any(ref() is module for ref in world.ddp_modules):
            world.ddp_modules.append(weakref.ref(module))
        _begin(world)
    elif not any(ref() is module for ref in world.ddp_modules):
        _late_module(world, module)
    if world.stepped_in_backward:
        steps.count(world)
    world.samples.saw(first_dimension(args, kwargs))


def _begin(world: World) -> None:
    # A discarded DDP may live on in a reference cycle, at one rank and not at another.
    gc.collect()
    entries = vector.collect(world.living_ddp_modules(), world.config.buffers)
    vector.check_same_on_site(entries, site_group(world), world.rank, world.site.ranks, world.site.name)
    vector.check_same_between_sites(world, entries)
    refuse.watch_post_local_sgd(world)
    session = swarm.make_session(world, entries)
    trained = [entry.tensor for entry in entries if entry.trained and not entry.buffer]
    world.vector = tuple((id(tensor), tensor.numel()) for tensor in trained)
    world.vector_ids = frozenset(key for key, _ in world.vector)
    try:
        swarm.begin(world, session)
    except BaseException:
        world.failed = True
        raise
    world.session = session
    if world.config.join_optimizer and session.status().round > 0:  # others have trained
        world.wish = moments.Wish()


def _late_module(world: World, module: torch.nn.Module) -> None:
    """A DDP made after the first training forward: fine when it wraps what is in the vector already."""
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and id(parameter) not in world.vector_ids:
            raise RuntimeError(
                f"collab: {name.removeprefix('module.')} is trained in a DistributedDataParallel that was made after "
                "the first training forward, so it is not among what sites average; make all "
                "DistributedDataParallel modules (and choose what is frozen) before the first training forward"
            )
    world.ddp_modules.append(weakref.ref(module))
