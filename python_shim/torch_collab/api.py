"""What scripts may call; all of it is optional."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch_collab.capture import forward, rounds, sampler
from torch_collab.world import state

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from torch_collab.world.topology import Site


def site_group() -> ProcessGroup:
    """The torch process group of this rank's site (Gloo, and NCCL for CUDA tensors).

    The first call, or the first DistributedDataParallel, makes it: all ranks of the site must come there. Raises
    RuntimeError before init_process_group, and where the group cannot be made.
    """
    return state.require().groups.site()


def sites() -> tuple[Site, ...]:
    """The sites of this world, ordered by their lowest rank. Raises RuntimeError before init_process_group."""
    return state.require().info.sites.sites


def site_index() -> int:
    """The site's place in one world, from 0; for sites that are worlds of their own COLLAB_SITE_INDEX, else a stable
    number made from the site's name. Raises RuntimeError before init_process_group."""
    return sampler.site_index(state.require().info)


def site_count() -> int:
    """How many sites there are in one world; COLLAB_NUM_SHARDS for sites that are worlds of their own. Raises
    RuntimeError before init_process_group."""
    return sampler.site_count(state.require().info)


def data_rank() -> int:
    """Which share of the data is this rank's, for code that divides it by itself: the one that a `DistributedSampler`
    with default ranks takes. Every rank of every site that trains has its own, from 0 to `data_world_size()` - 1.

    In one world, and among the first members of `--rdzv-backend=collab`, it is the rank. In worlds of their own
    COLLAB_SITE_INDEX and COLLAB_NUM_SHARDS say which sites there are; without them, as at a site that comes late, the
    data is divided among the site's own ranks, which the log warns of: add `site_index()` to the seed that shuffles.
    The shares of those who have begun do not change when a site comes or goes.

    Workers that a DataLoader forks may call it. Raises RuntimeError before init_process_group.
    """
    return sampler.told_share()[0]


def data_world_size() -> int:
    """How many shares `data_rank()` tells apart. With COLLAB_NUM_SHARDS this site's ranks times that number: give all
    sites the same number of ranks, or some samples are read twice or never. Raises as `data_rank()` does."""
    return sampler.told_share()[1]


def count_samples(n: int) -> None:
    """This rank has processed `n` samples since its last step: replaces what is read off the forwards' arguments,
    which is dimension 0 of the first tensor, or the length of a list of dicts, one a sample.

    Calls before the same step add up. Raises ValueError for a negative number, RuntimeError before init_process_group.
    """
    state.require().training.samples.tell(int(n))


def log_metrics(values: Mapping[str, Any]) -> None:
    """How training goes at this site, e.g. {"loss": 1.23}: COLLAB_EVENTS_FILE has, after each round, what was
    logged last (the event `metrics`, with site, round and step). The coordinator is told the `loss` with each round:
    `collab status` and its page show it.

    The site's lowest rank counts; others may call it. Values are numbers or tensors of one element (on a GPU they are
    waited for), under at most 64 names; a name that is logged again replaces its value. Raises ValueError for too
    many names or one that is no short text, TypeError for what is no number, RuntimeError before init_process_group.
    """
    training = state.require().training
    training.metrics.note(values, training.session)


def coordinator_address() -> str | None:
    """HOST:PORT of the coordinator, at leaders once the first training forward has begun; None where it is not known.
    Raises RuntimeError before init_process_group."""
    return next(iter(state.require().coordinators.addresses), None)


def synchronize() -> None:
    """A round now, with COLLAB_FRAGMENTS one of each fragment. Every rank of every site must call it.

    Raises RuntimeError before the first training forward, and for what ends the training (a refusal, a rank that is
    gone).
    """
    world = state.require()
    if world.training.session is None:
        raise RuntimeError(
            "collab: synchronize() was called before the first training forward; there is nothing to average yet "
            "[capture.synchronize-early]"
        )
    rounds.count_owed(world)
    rounds.run_round(world)


def step() -> None:
    """One step of the model is done. For scripts that update their parameters without a `torch.optim.Optimizer`, whose
    steps are counted by themselves; every rank of a site calls it after each update.

    A round runs here when one is due. Where no forward has had gradients yet (evolution, zeroth order), the first call
    begins as the first training forward does: all ranks of all sites come, and a site may take the model of another.
    Each such step weighs one sample, unless `count_samples()` says more. Raises RuntimeError where no model is wrapped
    in DistributedDataParallel.
    """
    world = state.require()
    if world.training.session is None and not forward.begin_without_forward(world):
        raise RuntimeError(
            "collab: step() was called, but no model is wrapped in DistributedDataParallel; there is no step to count "
            "[capture.step-early]"
        )
    world.training.unseen.stepped()
    world.copies.others_stepped()
    rounds.count(world)


def status() -> dict[str, Any]:
    """What this rank knows: `site` (its name), `generation` of the model (from 1), `round` (the number of the last),
    `steps` in all and `steps_since_round`, `bytes_sent` and `bytes_received` between sites, and, once training has
    begun, `state`: a digest, in hexadecimal, of what all sites agreed on last. Raises RuntimeError before
    init_process_group."""
    world = state.require()
    if world.training.session is None:
        before = dict.fromkeys(("round", "steps", "steps_since_round", "bytes_sent", "bytes_received"), 0)
        return {"site": world.info.site.name, "generation": world.generations.number, **before}
    now = world.training.session.status()
    names = ("site", "generation", "round", "steps", "steps_since_round", "bytes_sent", "bytes_received", "state")
    return {name: getattr(now, name) for name in names}
