"""The map of sites: every rank tells its site and host through the store, and all ranks draw the same map.

A site consists of the ranks with the same name, ordered by rank. Its lowest rank is the leader.
"""

from __future__ import annotations

import contextlib
import enum
import json
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from torch_collab import environment, log
from torch_collab.escape import escaped, from_json
from torch_collab.formatting import listed, plural
from torch_collab.network.addresses import as_name
from torch_collab.network.signed_store import SignatureError, SignedStore

if TYPE_CHECKING:
    from torch.distributed import Store

    from torch_collab.native import Settings


_KEY = "collab/place"
_READ = f"{_KEY}/read"
_READING_SECONDS = 5.0
_POLL_SECONDS = 0.05
_WAIT_POLL_SECONDS = 0.25
_SAY_SECONDS = 15.0


@dataclass(frozen=True)
class Site:
    name: str
    ranks: tuple[int, ...]  # ascending; ranks of the group that the map was drawn for

    @property
    def leader(self) -> int:
        return self.ranks[0]


@dataclass(frozen=True)
class Sites:
    """The sites of a group, ordered by lowest rank."""

    sites: tuple[Site, ...]

    def of(self, rank: int) -> Site:
        for site in self.sites:
            if rank in site.ranks:
                return site
        raise ValueError(
            f"collab: rank {rank} belongs to none of the sites {[s.name for s in self.sites]} [ddp.rank-nowhere]"
        )

    def restricted(self, ranks: list[int]) -> Sites:
        """The map of a subgroup; its ranks are positions in `ranks`."""
        found = []
        for site in self.sites:
            inside = tuple(i for i, rank in enumerate(ranks) if rank in site.ranks)
            if inside:
                found.append(Site(site.name, inside))
        return Sites(tuple(sorted(found, key=lambda s: s.leader)))


class Start(enum.Enum):
    """How a world was started (docs/guides/two-sites.md)."""

    ONE_WORLD = "one world"  # its ranks are all the sites there are; the first site serves the coordinator
    # Either several sites, the first of a swarm that others join, or one site of a swarm; the coordinator is outside.
    FIRST_MEMBERS, LONE = environment.FIRST_MEMBERS, environment.LONE


@dataclass(frozen=True, eq=False)
class WorldInfo:
    """What is fixed once a world is made."""

    start: Start
    rank: int
    size: int
    store: Store  # of the world; with several sites of torchrun it may be lost once init_process_group has returned
    told: SignedStore  # the same store, for messages between collab's ranks
    site_store: Store  # for messages within this site
    timeout: timedelta
    config: Settings
    options: dict[str, str]  # the script's pg_options
    sites: Sites
    one_host: bool  # the ranks of this site are on one host

    @property
    def one_world(self) -> bool:
        """Only the ranks of this world take part, and one of them serves the coordinator."""
        return self.start is Start.ONE_WORLD

    @property
    def ranks_tell_sites_apart(self) -> bool:
        return self.start is not Start.LONE

    @property
    def several_sites(self) -> bool:
        return len(self.sites.sites) > 1

    @cached_property
    def site(self) -> Site:
        return self.sites.of(self.rank)

    @property
    def site_number(self) -> int:
        """Index of this site among the sites of this world."""
        return self.sites.sites.index(self.site)

    @property
    def site_rank(self) -> int:
        return self.site.ranks.index(self.rank)

    @property
    def is_leader(self) -> bool:
        return self.rank == self.site.leader


@dataclass(frozen=True)
class Place:
    """What each rank tells the others before anything else."""

    site: str | None  # COLLAB_SITE, if given
    node: str | None  # torchrun's node, if there is one
    hostname: str
    boot: str  # tells apart machines with the same name
    shared_memory: str  # ranks with the same value can share an arena
    settings: Mapping[str, str]  # knobs that must not differ between ranks
    transport: str = ""  # of the links between sites, if there are any
    error: str | None = None  # why this rank gives up

    def encode(self) -> str:
        return json.dumps({**self.__dict__, "settings": dict(self.settings)})

    @staticmethod
    def decode(text: bytes | str) -> Place:
        """Reads a rank's place. Without a token anybody may have written it, and its text is printed. Raises ValueError
        for text that no rank of this release writes."""
        told: Any = from_json(text)
        if not isinstance(told, dict) or not isinstance(told.get("settings"), dict):
            raise ValueError("not an object with settings")
        if differing := told.keys() ^ {each.name for each in fields(Place)}:
            raise ValueError(f"unknown or missing: {listed(sorted(differing))}")
        words = {name: word for name, word in told.items() if name != "settings"}
        if not all(word is None or isinstance(word, str) for word in (*words.values(), *told["settings"].values())):
            raise ValueError("a field is not a text")
        return Place(**{**told, **{name: word and escaped(word) for name, word in words.items()}})

    @property
    def host(self) -> str:
        return f"{self.hostname}/{self.boot}/{self.shared_memory}"


def my_place(site: str | None, settings: Mapping[str, str], transport: str = "", error: str | None = None) -> Place:
    return Place(
        site=site or None,
        node=os.environ.get("GROUP_RANK"),
        hostname=as_name(socket.gethostname()),
        boot=_read("/proc/sys/kernel/random/boot_id") or "unknown",
        shared_memory=_device_of("/dev/shm"),
        settings=settings,
        transport=transport,
        error=error,
    )


def exchange(store: SignedStore, rank: int, size: int, mine: Place, limit: timedelta) -> list[Place]:
    """Every rank's place. If a rank gave up, all ranks report it in its words. Ranks with another token or release,
    settings that differ, and ranks that have not come within `limit` are reported, too."""
    store.set(f"{_KEY}/{rank}", mine.encode())
    keys = [f"{_KEY}/{other}" for other in range(size)]
    _wait_for_all(store, rank, keys, limit)
    try:
        texts = store.multi_get(keys)
    except SignatureError as error:
        _wait_until_read(store, size)
        raise ValueError(str(error)) from None
    try:
        places = [_read_place(other, text) for other, text in enumerate(texts)]
        for other, place in enumerate(places):
            if place.error is not None and other != rank:
                raise ValueError(
                    f"collab: rank {other} on {place.hostname} could not start: {place.error} [ddp.rank-failed]"
                )
        _check_settings(places)
        _check_transports(places)
    except ValueError:
        _wait_until_read(store, size)
        raise
    store.add(_READ, 1)
    return places


def _read_place(rank: int, text: bytes) -> Place:
    try:
        return Place.decode(text)
    except ValueError as problem:
        raise _of_another_release(
            f"rank {rank} describes itself in a form that is not known here ({problem})"
        ) from None


def _of_another_release(what: str) -> ValueError:
    return ValueError(
        f"collab: {escaped(what)}: that rank runs another release of torch_collab; install the same one everywhere "
        "[ddp.rank-release]"
    )


def _wait_for_all(store: SignedStore, rank: int, keys: list[str], limit: timedelta) -> None:
    """Logs now and then which ranks have not come. Most often their script failed before it came here."""
    missing = dict(enumerate(keys))
    here: dict[int, Place] = {}  # those that this rank's token verifies
    deadline = time.monotonic() + limit.total_seconds()
    say_at = time.monotonic() + _SAY_SECONDS
    while missing and not store.check(list(missing.values())):
        now = time.monotonic()
        if now < min(say_at, deadline):
            time.sleep(min(_WAIT_POLL_SECONDS, max(0.0, deadline - now)))
            continue
        say_at = now + _SAY_SECONDS
        for other in [other for other, key in missing.items() if store.check([key])]:
            with contextlib.suppress(SignatureError, ValueError):
                here[other] = Place.decode(store.get(missing[other]))
            del missing[other]
        words = _who_is_missing(here, list(missing), len(keys))
        if now >= deadline and missing:
            text = (
                f"not all ranks have come to init_process_group within {limit.total_seconds():.0f} s (its timeout=, or "
                f"COLLAB_JOIN_TIMEOUT if that is set and shorter): {words}. The script of a missing one may have "
                "failed before that call: look at its output [ddp.ranks-late]"
            )
            give_up(store, rank, text)  # a rank that comes late must not count this one as a member
            raise RuntimeError(f"collab: {text}")
        own = here.get(rank)
        if missing and own and rank == min(other for other, place in here.items() if place.host == own.host):
            log.info(f"in init_process_group, for at most {deadline - now:.0f} s more: {words}")


def _who_is_missing(here: Mapping[int, Place], missing: list[int], size: int) -> str:
    known = [f"{rank} ({place.site or place.hostname})" for rank, place in sorted(here.items())]
    ranks = listed([str(rank) for rank in missing])
    return f"{plural('rank', len(missing))} {ranks} of {size} missing, here: {listed(known)}"


def give_up(store: SignedStore, rank: int, why: str) -> None:
    store.set(f"{_KEY}/{rank}", my_place(None, {}, error=why).encode())
    store.add(_READ, 1)  # this rank waits for nobody, and nobody waits for it


def _wait_until_read(store: SignedStore, size: int) -> None:
    """This rank gives up. If it serves the store, the others must read the reason first."""
    deadline = time.monotonic() + _READING_SECONDS
    with contextlib.suppress(RuntimeError):
        count = store.add(_READ, 1)
        while count < size and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
            count = store.add(_READ, 0)


def _check_settings(places: list[Place]) -> None:
    first = places[0]
    for rank, place in enumerate(places):
        if differing := first.settings.keys() ^ place.settings.keys():
            raise _of_another_release(f"rank {rank} and rank 0 know different knobs ({listed(sorted(differing))})")
        for name in first.settings:
            ours, theirs = first.settings[name], place.settings[name]
            if ours != theirs:
                own, other = first.site or first.hostname, place.site or place.hostname
                raise ValueError(
                    f"collab: COLLAB_{name.upper()} differs between ranks: rank 0 of {own} has {ours!r}, rank {rank} "
                    f"of {other} has {theirs!r}; give every rank the same value [knob.ranks-differ]"
                )


def _check_transports(places: list[Place]) -> None:
    if len(draw_map(places).sites) == 1:
        return
    known = [(rank, place) for rank, place in enumerate(places) if place.transport]
    for rank, place in known[1:]:
        first_rank, first = known[0]
        if place.transport != first.transport:
            raise ValueError(
                f"collab: links between sites: {first.site or first.hostname} (rank {first_rank}) uses "
                f"{first.transport}, {place.site or place.hostname} (rank {rank}) uses {place.transport}: set "
                "COLLAB_TRANSPORT to the same value, and give all sites the same token [knob.transport-differs]"
            )


def draw_map(places: list[Place]) -> Sites:
    """For one world: sites by COLLAB_SITE, else by torchrun's node, else by machine."""
    names = _machine_names(places)
    ranks: dict[str, list[int]] = {}
    for rank, place in enumerate(places):
        name = place.site or (f"node{place.node}" if place.node is not None else names[rank])
        ranks.setdefault(name, []).append(rank)
    return Sites(tuple(Site(name, tuple(members)) for name, members in ranks.items()))


def draw_lone_site(places: list[Place]) -> Sites:
    """For a world that is one site: all its ranks belong to that site."""
    given = {place.site: rank for rank, place in reversed(list(enumerate(places))) if place.site}
    if len(given) > 1:
        (a, rank_a), (b, rank_b) = sorted(given.items(), key=lambda item: item[1])[:2]
        raise ValueError(
            f"collab: with COLLAB_COORDINATOR all ranks of a world are one site, but rank {rank_a} has "
            f"COLLAB_SITE={a} and rank {rank_b} has COLLAB_SITE={b}; give all ranks the same name [knob.site-differs]"
        )
    name = next(iter(given), None) or places[0].hostname
    return Sites((Site(name, tuple(range(len(places)))),))


def _machine_names(places: list[Place]) -> list[str]:
    boots: dict[str, set[str]] = {}
    for place in places:
        boots.setdefault(place.hostname, set()).add(place.boot)
    return [p.hostname if len(boots[p.hostname]) == 1 else f"{p.hostname}-{p.boot[:8]}" for p in places]


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _device_of(path: str) -> str:
    try:
        return str(os.stat(path).st_dev)
    except OSError:
        return "none"
