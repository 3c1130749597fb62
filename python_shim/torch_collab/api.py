"""Functions for scripts; all of them are optional."""

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

    The first call, or the first DistributedDataParallel, makes it: all ranks of the site must take part. Raises
    RuntimeError before init_process_group, and if the group cannot be made.
    """
    return state.require().groups.site()


def sites() -> tuple[Site, ...]:
    """The sites of this world, ordered by their lowest rank. Raises RuntimeError before init_process_group."""
    return state.require().info.sites.sites


def site_index() -> int:
    """The site's index in one world, from 0. For sites that are worlds of their own: COLLAB_SITE_INDEX, or else a
    stable number made from the site's name. Raises RuntimeError before init_process_group."""
    return sampler.site_index(state.require().info)


def site_count() -> int:
    """The number of sites in one world, or COLLAB_NUM_SHARDS for sites that are worlds of their own. Raises
    RuntimeError before init_process_group."""
    return sampler.site_count(state.require().info)


def data_rank() -> int:
    """This rank's share of the data, for code that divides data by itself: the one that a `DistributedSampler` with
    default ranks takes. Every rank of every site that trains has its own, from 0 to `data_world_size()` - 1.

    In one world, and among the first members of `--rdzv-backend=collab`, it is the rank. For worlds of their own,
    COLLAB_SITE_INDEX and COLLAB_NUM_SHARDS tell the sites apart. Without them, as at a site that comes late, the data
    is divided among the site's own ranks, and the log warns: add `site_index()` to the seed that shuffles. The shares
    of sites that have begun do not change when a site comes or goes.

    Workers that a DataLoader forks may call it. Raises RuntimeError before init_process_group.
    """
    return sampler.told_share()[0]


def data_world_size() -> int:
    """The number of shares for `data_rank()`. With COLLAB_NUM_SHARDS it is that number times this site's ranks: give
    all sites the same number of ranks, or some samples are read twice or never. Raises as `data_rank()` does."""
    return sampler.told_share()[1]


def count_samples(n: int) -> None:
    """This rank has processed `n` samples since its last step. Replaces the count from the forwards' arguments, which
    is dimension 0 of the first tensor, or the length of a list with one dict per sample.

    Calls before the same step add up. Raises ValueError for a negative number, RuntimeError before init_process_group.
    """
    state.require().training.samples.tell(int(n))


def log_metrics(values: Mapping[str, Any]) -> None:
    """Logs how training goes at this site, e.g. {"loss": 1.23}. After each round COLLAB_EVENTS_FILE gets the last
    values (the event `metrics`, with site, round and step). The coordinator gets the `loss` with each round: `collab
    status` and its page show it.

    Only the site's lowest rank counts; others may call it. Values are numbers or tensors of one element (a call waits
    for a GPU), under at most 64 names; a new value replaces the old one. Raises ValueError for too many names or a name
    that is no short text, TypeError for a value that is no number, RuntimeError before init_process_group.
    """
    training = state.require().training
    training.metrics.note(values, training.session)


def coordinator_address() -> str | None:
    """HOST:PORT of the coordinator, at leaders from the first training forward on; None if it is not known.
    Raises RuntimeError before init_process_group."""
    return next(iter(state.require().coordinators.addresses), None)


def synchronize() -> None:
    """Runs a round now, or with COLLAB_FRAGMENTS one of each fragment. Every rank of every site must call it.

    Raises RuntimeError before the first training forward, and if training cannot go on (a refusal, a rank that is
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
    """Counts one step of the model. For scripts that update their parameters without a `torch.optim.Optimizer`, whose
    steps are counted automatically. Every rank of a site calls it after each update.

    A round runs here when one is due. Where no forward has had gradients yet (evolution, zeroth order), the first call
    acts as the first training forward does: all ranks of all sites take part, and a site may get another one's model.
    Each such step weighs one sample, unless `count_samples()` says more. Raises RuntimeError if no model is wrapped
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
    """What this rank knows: `site` (its name), `generation` of the model (from 1), `round` (the last one's number),
    `steps` in all and `steps_since_round`, `bytes_sent` and `bytes_received` between sites, and, once training has
    begun, `state`: a hexadecimal digest of what all sites agreed on last. Raises RuntimeError before
    init_process_group."""
    world = state.require()
    if world.training.session is None:
        before = dict.fromkeys(("round", "steps", "steps_since_round", "bytes_sent", "bytes_received"), 0)
        return {"site": world.info.site.name, "generation": world.generations.number, **before}
    now = world.training.session.status()
    names = ("site", "generation", "round", "steps", "steps_since_round", "bytes_sent", "bytes_received", "state")
    return {name: getattr(now, name) for name in names}
