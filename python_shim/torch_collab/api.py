"""What scripts may call; all of it is optional."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch_collab import groups, sampler, state

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from torch_collab.places import Site


def site_group() -> ProcessGroup:
    """The torch process group of this rank's site (Gloo, and NCCL for CUDA tensors).

    The first call, or the first DistributedDataParallel, makes it: all ranks of the site must come there.
    """
    return groups.site_group(state.require())


def sites() -> tuple[Site, ...]:
    """The sites of this world, ordered by their lowest rank."""
    return state.require().sites.sites


def site_index() -> int:
    """The site's place in one world; for sites that are worlds of their own COLLAB_SITE_INDEX, else a stable number
    made from the site's name."""
    return sampler.site_index(state.require())


def site_count() -> int:
    """How many sites there are in one world; COLLAB_SITE_COUNT for sites that are worlds of their own."""
    return sampler.site_count(state.require())


def count_samples(n: int) -> None:
    """This rank has processed `n` samples since its last step: replaces what is read off the forwards' arguments.

    Calls before the same step add up. Raises ValueError for a negative number.
    """
    state.require().samples.tell(int(n))


def coordinator_address() -> str | None:
    """HOST:PORT of the coordinator, at leaders once the first training forward has begun."""
    coordinators = state.require().coordinators
    return coordinators[0] if coordinators else None


def synchronize() -> None:
    """A round now. Every rank of every site must call it."""
    from torch_collab import steps

    world = state.require()
    if world.session is None:
        raise RuntimeError("collab: synchronize() before the first training forward; there is nothing to average yet")
    steps.run_round(world)


def step() -> None:
    """One step of the model is done. For scripts that update their parameters without a `torch.optim.Optimizer`, whose
    steps are counted by themselves; every rank of a site calls it after each update.

    A round runs here when one is due. Raises RuntimeError before the first training forward of a
    DistributedDataParallel.
    """
    from torch_collab import steps

    world = state.require()
    if world.session is None:
        raise RuntimeError(
            "collab: step() before the first training forward of a DistributedDataParallel; there is no step to count"
        )
    world.unseen.stepped()
    steps.count(world)


def status() -> dict[str, Any]:
    """What this rank knows: site, generation of the model, round, steps, bytes."""
    world = state.require()
    if world.session is None:
        return {
            "site": world.site.name,
            "generation": world.generation,
            "round": 0,
            "steps": 0,
            "steps_since_round": 0,
            "bytes_sent": 0,
            "bytes_received": 0,
        }
    now = world.session.status()
    names = ("site", "generation", "round", "steps", "steps_since_round", "bytes_sent", "bytes_received", "state")
    return {name: getattr(now, name) for name in names}
