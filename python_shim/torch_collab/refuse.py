"""What cannot work over several sites yet is refused in words, with the remedy."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from torch_collab import log
from torch_collab.groups import crosses_sites

if TYPE_CHECKING:
    import torch

    from torch_collab.state import World

_REMEDY = "pass process_group=torch_collab.site_group() to it"
_A_FEW = 1024  # elements: norms and flags, not parameters or gradients


def sharded_module(world: World, module: torch.nn.Module, name: str) -> None:
    """FullyShardedDataParallel registers the module it wraps under this name."""
    if name != "_fsdp_wrapped_module" or type(module).__name__ != "FullyShardedDataParallel":
        return
    raise RuntimeError(
        "collab: FullyShardedDataParallel splits a model over its ranks; collab averages whole models between "
        "sites and "
        "cannot yet put such parts together. Use DistributedDataParallel for the model that is trained across sites"
    )


def sharded_parameters(named: list[tuple[str, torch.Tensor]]) -> None:
    """DTensor parameters: fully_shard, tensor or pipeline parallel parts."""
    for name, tensor in named:
        if type(tensor).__name__ == "DTensor" or hasattr(tensor, "_local_tensor"):
            raise RuntimeError(
                f"collab: parameter {name} is a DTensor (fully_shard or tensor parallel); collab averages whole models "
                "between sites and cannot yet put such parts together. Train it with DistributedDataParallel"
            )


def optimizer(world: World, opt: Any) -> None:
    """Called before an optimizer steps; the work is done once for each optimizer by the caller."""
    kind = type(opt).__name__
    if kind == "ZeroRedundancyOptimizer" and crosses_sites(world, getattr(opt, "process_group", None)):
        raise RuntimeError(
            "collab: ZeroRedundancyOptimizer shares its state between all ranks of the world, but sites take their "
            f"steps on their own; {_REMEDY}"
        )
    if any(type(p).__name__ == "DTensor" for group in opt.param_groups for p in group["params"]):
        sharded_parameters([("of " + kind, p) for group in opt.param_groups for p in group["params"]])


def collective_in_step(world: World, opt: Any, collective: str, elements: int, told: bool) -> None:
    """step() of an optimizer of the model calls a collective over ranks of several sites; `told`: as it has before."""
    what = f"{type(opt).__name__} calls {collective} of {elements} element{'s' if elements != 1 else ''}"
    if elements > _A_FEW:
        raise RuntimeError(
            f"collab: {what} over ranks of several sites inside step(), but sites take their steps on their own and "
            "agree in rounds; pass group=torch_collab.site_group() to its collectives, and take rank and world size "
            "from that group"
        )
    if not told and world.is_leader:
        log.warning(
            f"{what} over ranks of several sites inside step(): each step waits for all sites and for the lines "
            "between them; if the ranks of the site are meant, pass group=torch_collab.site_group()"
        )


def watch_post_local_sgd(world: World) -> None:
    """PostLocalSGDOptimizer is no hooked optimizer: its averager is stopped instead, when torch has loaded it."""
    source = sys.modules.get("torch.distributed.algorithms.model_averaging.averagers")
    if source is None:
        return
    averager = source.PeriodicModelAverager
    original = averager.average_parameters
    if getattr(original, "collab_watches", False):
        return

    def average_parameters(self: Any, params: Any) -> Any:
        from torch_collab import state

        now = state.current()
        if now is not None and crosses_sites(now, getattr(self, "process_group", None)):
            raise RuntimeError(
                "collab: PeriodicModelAverager (PostLocalSGDOptimizer) averages models over the ranks of all sites, "
                f"which is what collab does between sites; {_REMEDY}, or leave it out"
            )
        return original(self, params)

    average_parameters.collab_watches = True  # type: ignore[attr-defined]
    averager.average_parameters = average_parameters
