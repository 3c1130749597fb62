"""Checks that a site's ranks, and sites that begin together, hold the same model; all are told the first difference."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from torch_collab import log, native
from torch_collab.formatting import listed
from torch_collab.swarm import loaded

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from torch_collab.model.entry import Entry
    from torch_collab.world.state import World

_SAY_SECONDS = 10.0


def check_same_on_site(entries: list[Entry], group: ProcessGroup, rank: int, ranks: tuple[int, ...], site: str) -> None:
    """A site's ranks must hold the same vector; every rank is told the first difference."""
    lines = [entry.describe() for entry in entries]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    digests: list[str] = [""] * len(ranks)
    dist.all_gather_object(digests, digest, group=group)
    if len(set(digests)) == 1:
        return
    everyone: list[list[str]] = [[] for _ in ranks]
    dist.all_gather_object(everyone, lines, group=group)
    other = next(i for i, d in enumerate(digests) if d != digests[0])
    advice = (
        "Every rank of a site must wrap the same model in DistributedDataParallel, with the same parameters frozen "
        "[capture.models-differ-in-site]",
        "[capture.buffers-differ-in-site]",
    )
    words = _difference(everyone[0], everyone[other], f"at rank {ranks[0]}", f"at rank {ranks[other]}", *advice)
    raise RuntimeError(f"collab: the ranks of site {site} hold different models (seen at rank {rank}): {words}")


def check_same_between_sites(world: World, entries: list[Entry]) -> None:
    """Sites that begin together compare their models, so that all are told at once, and take one site's frozen values.

    If one of a swarm's first members is gone or has another model, the rest go on: that site is refused when it joins.
    With a coordinator outside, and in later generations, all sites are checked only when they join.
    """
    info = world.info
    if not info.ranks_tell_sites_apart or not info.several_sites or world.generations.number > 1:
        return
    lines = [
        entry.describe() + (" " + native.digest(entry.tensor) if entry.kind == "frozen" else "") for entry in entries
    ]
    begins = info.config.init_from, loaded.shows(world, entries)
    limit = timedelta(seconds=info.config.join_timeout)
    with _said_after_a_while(world, limit):
        everyone = (_everyone_in_one_world if info.one_world else _everyone_who_comes)(world, [lines, *begins], limit)
    if everyone:
        _take_frozen(world, entries, everyone)


@contextlib.contextmanager
def _said_after_a_while(world: World, limit: timedelta) -> Iterator[None]:
    others = listed([site.name for site in world.info.sites.sites if site != world.info.site])
    text = (
        f"waiting for the first training forward at {others}, where models are compared; training pauses here, "
        f"for at most {limit.total_seconds():.0f} s (COLLAB_JOIN_TIMEOUT)"
    )
    timer = threading.Timer(_SAY_SECONDS, log.info, [text])
    timer.daemon = True
    if world.is_leader:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


# For each site: its model's lines, its COLLAB_INIT_FROM, and whether it has loaded a state.
_Told = list[tuple[list[str], str, bool]]


def _everyone_in_one_world(world: World, mine: list[Any], limit: timedelta) -> _Told:
    """Empty if all models are the same; raises if one differs."""
    lines = mine[0]
    if world.is_leader:
        world.info.told.set(f"collab/model/{world.info.site_number}", json.dumps(mine))
    if world.hub.link is not None and _all_hold(world, lines, limit):
        return []
    everyone: _Told = []
    for index, site in enumerate(world.info.sites.sites):
        key = f"collab/model/{index}"
        try:
            world.info.told.wait([key], limit)
        except Exception as error:
            raise RuntimeError(
                f"collab: site {site.name} has not come to its first training forward within "
                f"{limit.total_seconds():.0f} s (COLLAB_JOIN_TIMEOUT): {error} [capture.site-late]"
            ) from None
        everyone.append(json.loads(world.info.told.get(key)))
        advice = (
            "All sites must train the same model, with the same parameters frozen [capture.models-differ]",
            "[capture.buffers-differ]",
        )
        here, there = _without_values(lines), _without_values(everyone[-1][0])
        if words := _difference(here, there, f"at {world.info.site.name}", f"at {site.name}", *advice):
            raise RuntimeError(f"collab: sites hold different models: {words}")
    return everyone


def _everyone_who_comes(world: World, mine: list[Any], limit: timedelta) -> _Told:
    """Uses the hub, because the world's store may be gone. Empty if all models are the same, or if a site is gone or
    has another model."""
    try:
        if _all_hold(world, mine[0], limit):
            return []
        text = json.dumps(mine).encode()
        longest = max(
            int.from_bytes(size, "big") for size in world.hub.gather("sizes", len(text).to_bytes(8, "big"), limit)
        )
        texts = world.hub.gather("lines", text.ljust(longest), limit)
    except RuntimeError as error:
        log.debug(f"models are not compared before the join: {error}")
        return []
    everyone: _Told = [json.loads(texts[site.leader]) for site in world.info.sites.sites]
    return everyone if len({tuple(_without_values(lines)) for lines, _, _ in everyone}) == 1 else []


def _without_values(lines: list[str]) -> list[str]:
    return [line.rsplit(" ", 1)[0] if "] frozen " in line else line for line in lines]


def _take_frozen(world: World, entries: list[Entry], everyone: _Told) -> None:
    """Frozen parameters that differ between sites get one site's values, as DDP gives all ranks those of rank 0. It is
    the site whose trained parameters round 0 takes: a momentum encoder is a copy of them."""
    sites = world.info.sites.sites
    told = zip(entries, zip(*(lines for lines, _, _ in everyone), strict=True), strict=True)
    differing = [entry for entry, lines in told if len(set(lines)) > 1]
    if not differing:
        return
    named = next((init_from for _, init_from, _ in everyone if init_from), "")
    resumes = next((site for site, (_, _, has_loaded) in zip(sites, everyone, strict=True) if has_loaded), sites[0])
    source = next((site for site in sites if site.name == named), resumes)
    size = sum(entry.tensor.numel() * entry.tensor.element_size() for entry in differing)
    if world.is_leader:
        log.warning(
            f"{len(differing)} frozen parameters have other values at other sites ({differing[0].name} is the first): "
            f"all sites take those of {source.name}, {size / 1e6:,.1f} MB. To avoid this, use the same seed everywhere "
            "for frozen parts that are initialised at random, and the same file for those that are loaded "
            "[capture.frozen-differ]"
        )
    for entry in differing:
        values = entry.tensor.detach().contiguous()
        dist.broadcast(values, src=source.leader)
        entry.tensor.detach().copy_(values)


def _all_hold(world: World, lines: list[str], limit: timedelta) -> bool:
    """Whether every rank of the world has the same lines. If a rank is gone, the hub knows it and ends the wait."""
    digest = hashlib.sha256("\n".join(lines).encode()).digest()
    try:
        digests = world.hub.gather("models", digest, limit)
    except RuntimeError as error:
        raise RuntimeError(
            f"collab: not every site has come within {limit.total_seconds():.0f} s (COLLAB_JOIN_TIMEOUT) to its first "
            f"training forward, where models are compared: {str(error).removeprefix('collab: ')} "
            "[capture.sites-late]"
        ) from None
    return set(digests) == {digest}


def _difference(a: list[str], b: list[str], at_a: str, at_b: str, advice: str, code_of_buffers: str) -> str:
    """The first difference, and what to do; for equal models, which buffers either leaves out. Else empty."""
    if a == b:
        return ""
    here, there = _split(a), _split(b)
    ours, theirs = ([tensor.rsplit(" ", 1)[0] for (tensor, _), out in each if out] for each in (here, there))
    if [tensor for tensor, _ in here] == [tensor for tensor, _ in there] and ours != theirs:
        return (
            f"buffers left out of the average: {at_a} {_names(ours, theirs)}; {at_b} {_names(theirs, ours)}. A buffer "
            "is left out if it is not persistent, or holds NaN or infinity when training begins. Start with the same "
            f"model everywhere, or set COLLAB_BUFFERS=0 at all sites {code_of_buffers}"
        )
    pairs = enumerate(itertools.zip_longest(a, b, fillvalue="missing"))
    position, (left, right) = next(each for each in pairs if each[1][0] != each[1][1])
    return f"tensor {position} is {left} {at_a} and {right} {at_b}. {advice}"


def _split(lines: list[str]) -> list[tuple[tuple[str, str], bool]]:
    """((name and dtype, shape), whether it is left out) for each described entry."""
    parts = [line.rpartition(" [") for line in lines]
    return [((tensor, rest.split("]")[0]), rest.endswith("] left out")) for tensor, _, rest in parts]


def _names(names: list[str], others: list[str]) -> str:
    """At most 16 names; if there are more, those that `others` lacks come first."""
    ordered = sorted(names, key=lambda name: name in others) if len(names) > 16 else names
    return listed(ordered) or "none"
