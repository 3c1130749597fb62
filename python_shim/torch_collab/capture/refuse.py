"""Refuses what cannot work over several sites yet, with a message that says what to do instead."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from torch_collab import log, torch_compat
from torch_collab.formatting import counted
from torch_collab.model.vector import refuse_sharded
from torch_collab.world import state
from torch_collab.world.groups import all_collab, crosses_sites

if TYPE_CHECKING:
    from torch_collab.world.state import World

_REMEDY = "pass process_group=torch_collab.site_group() to it"
_A_FEW = 1024  # elements: norms and flags, not parameters or gradients


def sharded_module() -> None:
    raise RuntimeError(
        "collab: FullyShardedDataParallel splits a model over its ranks. collab averages whole models between sites, "
        "and cannot yet join such parts. Use DistributedDataParallel for the model that is trained across sites "
        "[ddp.fsdp]"
    )


def optimizer(world: World, opt: Any) -> None:
    """Called before an optimizer steps. The caller makes sure that this runs once for each optimizer."""
    is_zero = type(opt).__name__ == "ZeroRedundancyOptimizer"
    if is_zero and crosses_sites(world.info, getattr(opt, "process_group", None)):
        raise RuntimeError(
            "collab: ZeroRedundancyOptimizer shares its state between all ranks of the world, but sites take their "
            f"steps on their own: {_REMEDY} [optimizer.zero]"
        )
    _sharded(opt, opt.param_groups)


def _sharded(opt: Any, groups: list[dict[str, Any]]) -> None:
    refuse_sharded([("of " + type(opt).__name__, p) for group in groups for p in group["params"]])


def collective_in_step(world: World, opt: Any, collective: str, elements: int, told: bool) -> None:
    """step() of a model's optimizer calls a collective over ranks of several sites; `told`: it was reported before."""
    what = f"{type(opt).__name__} calls {collective} of {counted(elements, 'element')}"
    if elements > _A_FEW:
        raise RuntimeError(
            f"collab: {what} over ranks of several sites inside step(), but sites take their steps on their own and "
            "agree in rounds. Pass group=torch_collab.site_group() to its collectives, and take rank and world size "
            "from that group [optimizer.step-collective]"
        )
    if not told and world.is_leader:
        log.warning(
            f"{what} over ranks of several sites inside step(): each step waits for all sites and for the lines "
            "between them. If the ranks of the site are meant, pass group=torch_collab.site_group() "
            "[optimizer.step-waits]"
        )


def look_at_parameters(original: Any) -> Any:
    """Wraps Optimizer.add_param_group: refuses sharded parameters before the first forward sends them over the line."""

    @functools.wraps(original)
    def add_param_group(self: Any, param_group: Any) -> None:
        original(self, param_group)
        world = state.current()
        if world is not None and not world.run.finished:
            _sharded(self, self.param_groups[-1:])

    return add_param_group


def mixed_backends() -> None:
    """Called when a model is wrapped. Unless collab is the default group's only backend, its barriers make no round."""
    backends = str(dist.get_backend_config())
    if all_collab(backends):
        return
    raise RuntimeError(
        f"collab: the default process group has several backends ({backends.replace(',', ', ')}), so its barriers make "
        "no round. The other backends send over the lines between sites in the clear, from each rank to "
        'each. collab serves CPU and GPU tensors alike: say init_process_group("collab") [ddp.mixed-backends]'
    )


def watch_post_local_sgd(world: World) -> None:
    """PostLocalSGDOptimizer runs no optimizer hooks, so its averager is stopped instead, once torch has loaded it."""
    averager = torch_compat.model_averager()
    if averager is not None:
        world.installed.replace((averager, "average_parameters"), _stop_averager)


def watch_checkpoints(world: World) -> None:
    """Watches torch.distributed.checkpoint, once torch has loaded it."""
    saver = torch_compat.checkpoint_saver()
    if saver is not None and world.info.several_sites and world.info.ranks_tell_sites_apart:
        world.installed.replace(saver, _told_of_saves)


def _told_of_saves(original: Any) -> Any:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def save_state_dict(*args: Any, **kwargs: Any) -> Any:
        world, given = state.current(), signature.bind_partial(*args, **kwargs).arguments
        if world is not None and not given.get("no_dist") and crosses_sites(world.info, given.get("process_group")):
            log.warn_once(
                "torch.distributed.checkpoint saves over the ranks of all sites. Each tensor is written by one of "
                "them. So each site's disk has only a part of the files, and values that sites do not share come from "
                "several sites. Call dcp.save(..., process_group=torch_collab.site_group()), with a folder for each "
                "site [capture.checkpoint-world]"
            )
        return original(*args, **kwargs)

    return save_state_dict


def _stop_averager(original: Any) -> Any:
    def average_parameters(self: Any, params: Any) -> Any:
        world = state.current()
        if world is not None and crosses_sites(world.info, getattr(self, "process_group", None)):
            raise RuntimeError(
                "collab: PeriodicModelAverager (PostLocalSGDOptimizer) averages models over the ranks of all sites, "
                f"which is what collab does between sites: {_REMEDY}, or leave it out [optimizer.model-averager]"
            )
        return original(self, params)

    return average_parameters
