"""Who is where: maps of sites from what ranks tell."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch.distributed as dist
from logs import said
from torch_collab import native
from torch_collab.backend import factory
from torch_collab.network.keys import NO_KEY, SwarmKey
from torch_collab.network.signed_store import SignedStore
from torch_collab.world import topology
from torch_collab.world.topology import Place, Site, draw_lone_site, draw_map, exchange, give_up


def place(
    site: str | None = None, node: str | None = None, host: str = "m", boot: str = "b0", **settings: str
) -> Place:
    return Place(site, node, host, boot, "1", settings)


def names(places: list[Place]) -> dict[str, tuple[int, ...]]:
    return {site.name: site.ranks for site in draw_map(places).sites}


def test_a_given_name_wins_over_the_node_and_the_node_over_the_machine() -> None:
    assert names([place(site="x", node="0"), place(node="0"), place()]) == {"x": (0,), "node0": (1,), "m": (2,)}


def test_knobs_that_only_a_coordinator_goes_by_may_differ_between_ranks() -> None:
    alike = factory._settings_of_world(native.load_config({}, {}, ""))
    assert "link_grace" in alike and {"straggler_grace", "forget_after"}.isdisjoint(alike)


def test_sites_are_ordered_by_their_lowest_rank_and_led_by_it() -> None:
    sites = draw_map([place(site="z"), place(site="a"), place(site="z"), place(site="a")])
    assert [s.name for s in sites.sites] == ["z", "a"]
    assert [s.leader for s in sites.sites] == [0, 1]
    assert sites.of(3).name == "a"


def test_machines_of_one_name_are_told_apart_by_their_boot() -> None:
    found = names([place(boot="0123456789"), place(boot="abcdefghij"), place(boot="0123456789")])
    assert found == {"m-01234567": (0, 2), "m-abcdefgh": (1,)}


def test_a_subgroup_sees_its_own_ranks() -> None:
    sites = draw_map([place(site=s) for s in "aabb"]).restricted([3, 1, 2])
    assert sites.sites == (Site("b", (0, 2)), Site("a", (1,)))


def test_a_world_of_its_own_is_one_site() -> None:
    assert draw_lone_site([place(), place()]).sites == (Site("m", (0, 1)),)
    assert draw_lone_site([place(), place(site="paris")]).sites[0].name == "paris"


def test_a_world_of_its_own_has_one_name() -> None:
    with pytest.raises(ValueError, match="rank 0 has COLLAB_SITE=a and rank 2 has COLLAB_SITE=b"):
        draw_lone_site([place(site="a"), place(site="a"), place(site="b")])


def exchange_of(places: list[Place], *keys: SwarmKey) -> list[object]:
    store = dist.HashStore()

    def run(rank: int) -> object:
        try:
            told = SignedStore(store, keys[rank] if keys else NO_KEY, ("ranks",), "the world's store")
            return exchange(told, rank, len(places), places[rank], timedelta(seconds=20))
        except ValueError as error:
            return error

    with ThreadPoolExecutor(len(places)) as pool:
        return list(pool.map(run, range(len(places))))


def test_everyone_learns_every_place() -> None:
    places = [place(site="a"), place(site="b")]
    assert exchange_of(places) == [places, places]


def test_settings_that_differ_are_named_at_every_rank() -> None:
    for result in exchange_of([place(codec="fp16"), place(codec="int8")]):
        assert "COLLAB_CODEC differs between ranks: rank 0 of m has 'fp16', rank 1 of m has 'int8'" in str(result)


def test_a_rank_that_gave_up_is_heard_everywhere() -> None:
    gone = Place(None, None, "m", "b", "1", {}, error="COLLAB_CODEC=zip")
    results = exchange_of([place(), gone, place()])
    assert "rank 1 on m could not start: COLLAB_CODEC=zip" in str(results[0])
    assert "rank 1 on m could not start" in str(results[2])


OF_ANOTHER_RELEASE = [
    "no JSON",
    "[]",
    '{"settings": []}',
    json.dumps({**json.loads(place().encode()), "gpu": "0"}),
    json.dumps({name: text for name, text in json.loads(place().encode()).items() if name != "boot"}),
    json.dumps({**json.loads(place().encode()), "hostname": ["m"]}),
]


@pytest.mark.parametrize("told", OF_ANOTHER_RELEASE)
def test_a_rank_of_another_release_is_named(told: str) -> None:
    store = SignedStore(dist.HashStore(), NO_KEY, ("ranks",), "the world's store")
    store.set("collab/place/1", told)
    store.add("collab/place/read", 1)  # it waits for nobody
    words = r"rank 1 describes itself.* runs another release of torch_collab; install the same.*\[ddp\.rank-release\]"
    with pytest.raises(ValueError, match=words):
        exchange(store, 0, 2, place(), timedelta(seconds=20))


def test_a_rank_of_another_release_does_not_end_the_wait_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology, "_SAY_SECONDS", 0.01)
    store = SignedStore(dist.HashStore(), NO_KEY, ("ranks",), "the world's store")
    store.set("collab/place/1", OF_ANOTHER_RELEASE[0])
    with pytest.raises(RuntimeError, match=r"rank 2 of 3 missing.*\[ddp\.ranks-late\]"):
        exchange(store, 0, 3, place(), timedelta(milliseconds=200))


def test_a_rank_that_knows_other_knobs_is_of_another_release() -> None:
    for result in exchange_of([place(codec="fp16"), place(codec="fp16", speed="2")]):
        assert "rank 1 and rank 0 know different knobs (speed): that rank runs another release" in str(result)


def test_another_key_is_reported_at_every_rank() -> None:
    key, other = SwarmKey("token", b"a" * 32), SwarmKey("token", b"b" * 32)
    both = [place(site="a"), place(site="b")]
    assert exchange_of(both, key, key) == [both, both]
    for result in exchange_of(both, key, other):
        assert "was not signed with this swarm's token (another signature)" in str(result)
    ours, theirs = exchange_of(both, key, NO_KEY)
    words = "collab: the world's store holds an entry (collab/place/1) that was not signed with this swarm's token"
    assert words in str(ours)
    assert "was signed with a token, and this node has none. Give it the COLLAB_TOKEN" in str(theirs)


def test_sites_that_would_link_by_different_transports_are_named_at_every_rank() -> None:
    def at(site: str, transport: str) -> Place:
        return Place(site, None, "m", "b", "1", {}, transport)

    for result in exchange_of([at("paris", "tcp"), at("tokyo", "ucx")]):
        assert "paris (rank 0) uses tcp, tokyo (rank 1) uses ucx: set COLLAB_TRANSPORT to the same value" in str(result)
    one_site = [at("paris", "tcp"), at("paris", "ucx")]
    assert exchange_of(one_site) == [one_site, one_site]
    unsure = [at("paris", "tcp"), at("tokyo", "")]
    assert exchange_of(unsure) == [unsure, unsure]


def test_ranks_that_do_not_come_are_named_while_it_waits_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    told = said(monkeypatch)
    monkeypatch.setattr(topology, "_SAY_SECONDS", 0.01)
    monkeypatch.setattr(topology, "_WAIT_POLL_SECONDS", 0.005)
    store = SignedStore(dist.HashStore(), NO_KEY, (), "")
    store.set("collab/place/2", place(site="tokyo", host="t").encode())
    with pytest.raises(RuntimeError, match=r"within 0 s \(its timeout=.*\[ddp\.ranks-late\]") as raised:
        exchange(store, 0, 4, place(site="paris"), timedelta(milliseconds=200))
    missing = "ranks 1, 3 of 4 missing, here: 0 (paris), 2 (tokyo)"
    assert missing in str(raised.value)
    assert missing in "\n".join(told)
    for late in (1, 3):  # the others have given up, so no world comes of it
        store.set("collab/place/1", place(site="oslo").encode())
        store.set("collab/place/3", place(site="oslo").encode())
        with pytest.raises(ValueError, match=r"rank 0 on .* could not start: not all ranks.*\[ddp\.rank-failed\]"):
            exchange(store, late, 4, place(site="oslo"), timedelta(seconds=20))


def test_a_rank_that_gives_up_leaves_its_own_error() -> None:
    store = SignedStore(dist.HashStore(), NO_KEY, (), "")
    give_up(store, 0, "no such codec")
    assert Place.decode(store.get("collab/place/0")).error == "no such codec"
