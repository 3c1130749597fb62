"""Official torch hooks and the few replacements there is no hook for; installed while a collab world exists.

- module registration: `DistributedDataParallel` assigns `self.module` before it uses its group; here the group becomes
  the site's.
- forward pre-hook on each DDP: the first training forward starts the session, each one counts samples.
- optimizer hooks: steps.
- replaced: `_get_default_group` as DDP's module sees it (deepcopy and pickling of a DDP assume the default group),
  DDP.register_comm_hook (torch's ready-made hooks), Module.load_state_dict (whether the script resumed), and, where
  sites have stores of their own, `_new_group_with_tag`.
"""

from __future__ import annotations

import atexit
import copyreg
import sys
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed import distributed_c10d
from torch.nn.modules import module as nn_module
from torch.nn.parallel import distributed as ddp_source
from torch.optim import optimizer as optimizer_source

from torch_collab import capture, comm_hooks, ends, log, refuse, resumed, running, sampler, state, steps
from torch_collab.groups import meet_at_site, part_inside_site, reduce_group, site_group

if TYPE_CHECKING:
    from torch_collab.state import World

_undo: list[Callable[[], object]] = []
_optimizer_handles: list[Any] = []
_at_exit_registered = False


def install(world: World) -> None:
    global _at_exit_registered
    if _undo:
        uninstall()
    _undo.append(nn_module.register_module_module_registration_hook(_on_module_registered).remove)
    _hook_optimizers(steps.before_optimizer_step, steps.after_optimizer_step)
    _replace(torch.nn.Module, "load_state_dict", resumed.watch_loads)
    _replace(ddp_source, "_get_default_group", _default_group_for_ddp)
    _replace(ddp_source.DistributedDataParallel, "register_comm_hook", comm_hooks.register_comm_hook)
    if world.site_store is not world.store:
        _replace(distributed_c10d, "_new_group_with_tag", meet_at_site(world))
    if not world.ranks_tell_sites_apart and world.config.reseed:
        _undo.append(sampler.install(world))
    # A SyncBatchNorm holds its group, and modules are copied and pickled with all they hold.
    copyreg.pickle(torch.distributed.ProcessGroup, reduce_group)
    _undo.append(lambda: copyreg.dispatch_table.pop(torch.distributed.ProcessGroup, None))
    _undo.append(ends.install_finalizer())
    if not _at_exit_registered:
        atexit.register(ends.at_exit)
        ends.note_exit_status()
        _at_exit_registered = True


def uninstall() -> None:
    while _undo:
        _undo.pop()()
    _optimizer_handles.clear()
    running.forget()


def _hook_optimizers(before: Callable[..., Any], after: Callable[..., None]) -> None:
    for handle in _optimizer_handles:
        handle.remove()
    _optimizer_handles[:] = [
        optimizer_source.register_optimizer_step_pre_hook(before),
        optimizer_source.register_optimizer_step_post_hook(after),
    ]
    _undo.extend(handle.remove for handle in _optimizer_handles)


def _keep_out_of_graphs() -> None:
    """torch.compile must not trace our hooks. A DDP's constructor has loaded the compiler; nothing else of us may."""
    if isinstance(capture.on_ddp_forward, FunctionType) and not hasattr(capture.on_ddp_forward, "_torchdynamo_disable"):
        capture.on_ddp_forward = torch.compiler.disable(capture.on_ddp_forward)
        steps.before_optimizer_step = torch.compiler.disable(steps.before_optimizer_step)
        steps.after_optimizer_step = torch.compiler.disable(steps.after_optimizer_step)
        _hook_optimizers(steps.before_optimizer_step, steps.after_optimizer_step)


def _replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replaces `owner.name` by what `make` builds around it. A torch without that name is told, not broken."""
    original = getattr(owner, name, None)
    if original is None:
        log.warning(f"torch {torch.__version__} has no {owner.__name__}.{name}; some of what collab does will not work")
        return
    ours = make(original)
    setattr(owner, name, ours)
    # Who has replaced it since calls ours, which does nothing more without a world.
    _undo.append(lambda: setattr(owner, name, original) if getattr(owner, name, None) is ours else None)


def _default_group_for_ddp(original: Callable[[], Any]) -> Callable[[], Any]:
    def default_group() -> Any:
        world = state.current()
        return original() if world is None else site_group(world)

    return default_group


def _on_module_registered(module: torch.nn.Module, name: str, submodule: torch.nn.Module | None) -> None:
    world = state.current()
    if world is None or submodule is None:
        return
    if name == "module" and isinstance(module, ddp_source.DistributedDataParallel):
        _keep_out_of_graphs()
        module.process_group = part_inside_site(world, module.process_group)
        capture.adopt(world, module, submodule)
    elif "torch.distributed.fsdp" in sys.modules:
        refuse.sharded_module(world, module, name)
