"""Times the script's collectives between sites, and reports them with their cost if they come in every step.

The functions of torch.distributed are replaced for this while a world of several sites exists. Collectives in backward
(of DDP's communication hooks and others) are not timed, nor is the later wait for those with async_op.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from torch_collab import log, torch_compat
from torch_collab.world import state
from torch_collab.world.groups import all_collab, crosses_sites

if TYPE_CHECKING:
    from torch_collab.world.state import World
    from torch_collab.world.topology import WorldInfo

# Those that this torch has.
COLLECTIVES = (
    "all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_object", "all_gather_single",
    "all_reduce", "all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier", "broadcast",
    "broadcast_object_list", "gather", "gather_object", "reduce", "reduce_scatter", "reduce_scatter_single",
    "reduce_scatter_tensor", "scatter", "scatter_object_list",
)  # fmt: skip
_REDUCING = {
    "all_reduce", "all_reduce_coalesced", "reduce", "reduce_scatter", "reduce_scatter_single", "reduce_scatter_tensor",
}  # fmt: skip
_inside = threading.local()  # .call: a collective is running on this thread, and may call another


def install(world: World) -> None:
    if several_sites(world):
        for name in filter(partial(hasattr, dist), COLLECTIVES):
            world.installed.replace((dist, name), _timed)


def several_sites(world: World) -> bool:
    return world.info.ranks_tell_sites_apart and world.info.several_sites


def _timed(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def collective(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():  # the compiler knows the original, and makes a graph of it
            return original(*args, **kwargs)
        world = state.current()
        if world is None:
            return original(*args, **kwargs)
        if getattr(_inside, "call", False) or not crosses_sites(world.info, _group_of(args, kwargs)):
            return original(*args, **kwargs)
        _inside.call = True
        try:
            return _call(world, original, args, kwargs)
        finally:
            _inside.call = False

    return collective


def _call(world: World, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    name, in_backward = original.__name__, torch_compat.in_backward()
    if name in _REDUCING:
        # The larger of input and output.
        world.traffic.reduces(max(map(_elements, (*args, *kwargs.values())), default=0), in_backward)
    if name == "broadcast":
        _look_at_broadcast(world, kwargs.get("tensor", args[0] if args else None))
    if in_backward:
        return original(*args, **kwargs)
    began = time.monotonic()
    try:
        return original(*args, **kwargs)
    finally:
        world.traffic.called(name, time.monotonic() - began)


def _elements(argument: Any) -> int:
    if isinstance(argument, list):
        return sum(map(_elements, argument))
    return argument.numel() if isinstance(argument, torch.Tensor) else 0


def _look_at_broadcast(world: World, tensor: Any) -> None:
    """Warns about a broadcast of a trained parameter or its `.data`, which overwrites what other ranks trained."""
    training = world.training
    if training.session is None or training.vector is None or not isinstance(tensor, torch.Tensor):
        return
    of_parameter = any(
        tensor.data_ptr() == each.data_ptr() and tensor.numel() == each.numel() for each in training.vector.parameters
    )
    steps = training.session.status().steps_since_round if of_parameter else 0
    if steps > 0 and world.is_leader:
        log.warn_once(
            "the script broadcasts a trained parameter of one rank to other sites, with steps since the last round: "
            "what those sites trained in it meanwhile is lost. Rounds keep the sites alike, so remove the broadcast, "
            "or call torch.distributed.barrier() before it, which averages first [capture.parameter-broadcast]"
        )


def _group_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if "group" in kwargs:
        return kwargs["group"]
    return next((each for each in args if isinstance(each, dist.ProcessGroup)), None)


def look_at_group(info: WorldInfo, ranks: set[int], backend: str | None) -> None:
    """Called before the script makes a group over these ranks of several sites. If they cannot dial each other, torch
    waits silently until its timeout."""
    here = ranks & set(info.site.ranks)
    if not backend or all_collab(backend) or not here or info.rank != min(here):
        return
    log.warn_once(
        f"the script makes a process group of backend {backend!r} over ranks of several sites. That group is torch's "
        "own: each of its ranks must reach every other one, at ports that torch chooses. Nothing is encrypted, and "
        "collab does not see what waits in it. Leave backend= out, and the group is collab's; for ranks of one site "
        "use torch_collab.site_group() [ddp.group-not-collab]"
    )


def stepped(world: World) -> None:
    """A step of the model is done."""
    found = world.traffic.stepped()
    if found is None or not world.is_leader:
        return
    log.warning(
        f"collectives between sites come in every step: {found.calls:.3g} a step ({', '.join(found.names)}), which "
        f"take {found.seconds:.3g} s a step, {found.share:.0%} of the time. So no site trains faster than the slowest "
        "site and the line between them. Call them every hundredth step, at the end of an epoch, or only within the "
        "site (group=torch_collab.site_group()) [capture.collectives-every-step]"
    )


def watch_frameworks(world: World) -> None:
    """Reports what frameworks loaded by now send between sites in every step.

    accelerate: with dispatch_batches rank 0 reads for all, and every batch goes to every site. Lightning: before every
    batch rank 0 broadcasts whether it was asked to end.
    """
    if not several_sites(world):
        return
    loader = getattr(sys.modules.get("accelerate.data_loader"), "DataLoaderDispatcher", None)
    if loader is not None:
        world.installed.replace((loader, "__iter__"), _told_of)
    for loop, name, error in torch_compat.lightning_loops():
        world.installed.replace((loop, name), _end_with_site(error))


def _end_with_site(error: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Replaces Lightning's broadcast: the site's leader tells the site's ranks. Each site ends by itself."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def broadcast_sigterm(self: Any) -> None:
            world = state.current()
            if world is None:
                original(self)
                return
            asked = torch.tensor([int(self.trainer.received_sigterm)], device="cpu")
            if len(world.info.site.ranks) > 1:
                dist.broadcast(asked, src=world.info.site.leader, group=world.groups.site())
            if bool(asked):
                raise error

        return broadcast_sigterm

    return make


def _told_of(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def batches(self: Any) -> Any:
        world = state.current()
        if world is not None and world.is_leader:
            log.warn_once(
                "with accelerate's dispatch_batches (its default for an IterableDataset) rank 0 reads the data for "
                "all. It sends every batch to every site, over the line between them, in every step. Use "
                "DataLoaderConfiguration(dispatch_batches=False), with a data set that is divided by "
                "torch_collab.data_rank() [capture.dispatch-batches]"
            )
        return original(self)

    return batches
