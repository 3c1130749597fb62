"""Official torch hooks, and a few replacements where torch has none; installed while a collab world exists.

- module registration: `DistributedDataParallel` assigns `self.module` before it uses its group; here the group becomes
  the site's.
- forward hooks on each DDP, and `_pre_forward` of all, which `ddp.forward(x)` calls, too: the first training forward
  starts the session, and each one counts samples.
- optimizer hooks: steps. The replacements are listed in torch_compat.py.
"""

from __future__ import annotations

import copyreg
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parallel import DistributedDataParallel

from torch_collab import native, torch_compat
from torch_collab.capture import comm_hooks, forward, joins, refuse, resumed, running, sampler, steps, traffic
from torch_collab.world import state

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from torch_collab.world.state import World

_optimizer_handles: list[Any] = []
_kept_out_of_graphs = False


def install(world: World) -> None:
    undo, replace = world.installed.undo, world.installed.replace
    undo(running.forget)
    undo(torch_compat.hook_registration(_on_module_registered).remove)
    undo(_unhook_optimizers)
    _hook_optimizers()
    replace(torch_compat.PRE_FORWARD, forward.watch_forwards)
    replace((torch.optim.Optimizer, "add_param_group"), refuse.look_at_parameters)
    replace(torch_compat.JOIN_ENTER, joins.watch_enter)
    replace(torch_compat.JOIN_EXIT, joins.watch_exit)
    replace(torch_compat.LOAD_STATE_DICT, resumed.watch_loads)
    replace(torch_compat.DEFAULT_GROUP_OF_DDP, _default_group_for_ddp)
    replace(torch_compat.REGISTER_COMM_HOOK, comm_hooks.register_comm_hook)
    replace(torch_compat.WORKER_SIGNALS, _outlive_a_group_signal)
    if world.info.several_sites or world.info.site_store is not world.info.store:
        replace(torch_compat.NEW_GROUP, _watch_groups)
    if not world.info.ranks_tell_sites_apart and world.info.config.reseed:
        replace(torch_compat.SAMPLER_INIT, sampler.deal_by_site)
    refuse.watch_checkpoints(world)
    traffic.install(world)
    traffic.watch_frameworks(world)
    # A SyncBatchNorm holds its group, and modules are copied and pickled with everything they hold.
    copyreg.pickle(torch.distributed.ProcessGroup, _reduce_group)
    undo(copyreg.dispatch_table.pop, torch.distributed.ProcessGroup, None)


def _hook_optimizers() -> None:
    _unhook_optimizers()
    _optimizer_handles.extend(torch_compat.hook_steps(steps.before_optimizer_step, steps.after_optimizer_step))


def _unhook_optimizers() -> None:
    while _optimizer_handles:
        _optimizer_handles.pop().remove()


def _keep_out_of_graphs() -> None:
    """torch.compile must not trace our hooks. A DDP's constructor has loaded the compiler; our code must not."""
    global _kept_out_of_graphs
    if _kept_out_of_graphs:
        return
    _kept_out_of_graphs = True
    forward.on_ddp_forward = torch.compiler.disable(forward.on_ddp_forward)
    forward.on_pre_forward = torch.compiler.disable(forward.on_pre_forward)
    forward.after_ddp_forward = torch.compiler.disable(forward.after_ddp_forward)
    steps.before_optimizer_step = torch.compiler.disable(steps.before_optimizer_step)
    steps.after_optimizer_step = torch.compiler.disable(steps.after_optimizer_step)
    _hook_optimizers()


def _outlive_a_group_signal(original: Callable[[], None]) -> Callable[[], None]:
    """torchrun signals its workers' process groups. If a DataLoader worker dies of that signal, the script ends with an
    error before its last round."""

    def set_worker_signal_handlers() -> None:
        original()
        native.end_by_parent_only()

    return set_worker_signal_handlers


def _default_group_for_ddp(original: Callable[[], Any]) -> Callable[[], Any]:
    def default_group() -> Any:
        world = state.current()
        return original() if world is None else world.groups.site()

    return default_group


def _reduce_group(group: ProcessGroup) -> tuple[Any, tuple[()]]:
    """How a process group is copied or pickled: the site's group becomes the receiver's; others cannot be pickled."""
    world = state.current()
    if world is None or not world.groups.is_site(group):
        raise TypeError("cannot pickle 'ProcessGroup' object")
    return site_group_if_any, ()


def site_group_if_any() -> ProcessGroup | None:
    world = state.current()
    return None if world is None else world.groups.site()


def _watch_groups(original: Callable[..., Any]) -> Callable[..., Any]:
    """A group inside one site meets in the site's own store, if it has one; other groups may cause a warning."""

    @functools.wraps(original)
    def new_group(ranks: Any = None, timeout: Any = None, backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        world = state.current()
        if world is None:
            return original(ranks, timeout, backend, *args, **kwargs)
        info = world.info
        ranks = None if ranks is None else list(ranks)  # an iterator can be read only once
        members = set(range(info.size) if ranks is None else ranks)
        if not members <= set(info.site.ranks):
            traffic.look_at_group(info, members, backend)
        elif ranks is not None and info.site_store is not info.store:
            with torch_compat.store_of_world(info.site_store):
                return original(ranks, timeout, backend, *args, **kwargs)
        return original(ranks, timeout, backend, *args, **kwargs)

    return new_group


def _on_module_registered(module: torch.nn.Module, name: str, submodule: torch.nn.Module | None) -> None:
    world = state.current()
    if world is None or submodule is None:
        return
    if name == "module" and isinstance(module, DistributedDataParallel):
        _keep_out_of_graphs()
        traffic.watch_frameworks(world)
        if traffic.several_sites(world):
            refuse.mixed_backends()
        module.process_group = world.groups.inside(module.process_group, submodule)
        forward.adopt(world, module, submodule)
    elif torch_compat.is_fsdp(module):
        refuse.sharded_module()
