"""The rendezvous with a token: who lacks it is refused within seconds, in words at both ends."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from handlers import handler, ranks, rendezvous
from ranks import free_port, wait_until
from test_rotation import write
from torch.distributed import HashStore, TCPStore
from torch.distributed.elastic.rendezvous import RendezvousError, RendezvousInfo
from torch_collab.cli import token
from torch_collab.network.keys import NO_KEY, SwarmKey, read_key
from torch_collab.network.signed_store import SignatureError, SignedStore
from torch_collab.rendezvous.endpoint import reconnect
from torch_collab.rendezvous.handler import CollabRendezvous
from torch_collab.rendezvous.heartbeat import LivenessView

KEY, OTHER = {"COLLAB_TOKEN": "k" * 40}, {"COLLAB_TOKEN": "o" * 40}
NONE: dict[str, str] = {}
LIST = "collab/rendezvous/first/list"
SECONDS = 10.0  # of a join limit of 20, and of 600 by default


pytestmark = pytest.mark.usefixtures("serves_none")


def node(
    monkeypatch: pytest.MonkeyPatch,
    port: int,
    knobs: dict[str, str],
    site: str,
    nnodes: tuple[int, int] = (2, 2),
    **conf: str,
) -> CollabRendezvous:
    with monkeypatch.context() as set_here:
        for name, value in {**knobs, "COLLAB_SITE": site}.items():
            set_here.setenv(name, value)
        return handler(port, nnodes, **conf)


def errors(*nodes: CollabRendezvous) -> list[str]:
    started = time.monotonic()
    found = rendezvous(*nodes)
    assert time.monotonic() - started < SECONDS
    assert all(isinstance(each, RendezvousError) for each in found), found
    return [str(each) for each in found]


def stranger(port: int) -> TCPStore:
    return TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=60))


def when_served(port: int, act: Callable[[TCPStore], object]) -> threading.Thread:
    def run() -> None:
        store = stranger(port)
        store.wait(["collab/rendezvous/first/arrivals"])
        act(store)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_nodes_with_one_key_rendezvous(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    both = [node(monkeypatch, port, KEY, site) for site in ("paris", "tokyo")]
    infos = rendezvous(*both)
    assert ranks(infos) == [(0, 2), (1, 2)]
    seen = stranger(port).get(LIST)
    assert seen.startswith(b"CLS1") and KEY["COLLAB_TOKEN"].encode() not in seen
    assert os.environ["COLLAB_WORLD"] == json.loads(seen[68:])["id"]
    for info in infos:  # torchrun's own bookkeeping
        assert isinstance(info, RendezvousInfo)
        info.store.set(f"role/{info.rank}", str(info.rank))
    assert infos[0].store.multi_get(["role/0", "role/1"]) == [b"0", b"1"]
    (late,) = rendezvous(node(monkeypatch, port, KEY, "oslo"))
    assert isinstance(late, RendezvousInfo) and late.world_size == 1
    (refused,) = errors(node(monkeypatch, port, OTHER, "rome"))
    assert "was not signed with this swarm's token" in refused


@pytest.mark.parametrize(
    ("knobs", "words", "heard"),
    [
        (OTHER, "not signed with this swarm's token (another signature)", "node tokyo has another token than this"),
        (
            NONE,
            "was signed with a token, and this node has none. Give it the COLLAB_TOKEN",
            "tokyo has neither a token",
        ),
    ],
)
def test_another_key_or_none_is_reported_at_both_ends(
    monkeypatch: pytest.MonkeyPatch, knobs: dict[str, str], words: str, heard: str
) -> None:
    port = free_port()
    paris = node(monkeypatch, port, KEY, "paris")
    wrong = node(monkeypatch, port, knobs, "tokyo", is_host="0")
    at_paris, at_tokyo = errors(paris, wrong)
    assert f"collab: the rendezvous at 127.0.0.1:{port} holds an entry (collab/rendezvous/run)" in at_tokyo
    assert words in at_tokyo
    assert f"the rendezvous at 127.0.0.1:{port}" in at_paris and heard in at_paris and "COLLAB_TOKEN" in at_paris


def test_a_key_that_the_first_node_lacks_is_reported_at_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    paris = node(monkeypatch, port, NONE, "paris")
    wrong = node(monkeypatch, port, KEY, "tokyo", is_host="0")
    at_paris, at_tokyo = errors(paris, wrong)
    assert "(no signature)" in at_tokyo
    assert "node tokyo has a token (COLLAB_TOKEN), and this node (paris) has neither a token" in at_paris


def test_enough_nodes_continue_without_the_refused_one(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    paris = node(monkeypatch, port, KEY, "paris", (1, 3), last_call_timeout="3")
    thread = when_served(port, lambda store: errors(node(monkeypatch, port, OTHER, "tokyo", (1, 3))))
    (info,) = rendezvous(paris)
    thread.join()
    assert isinstance(info, RendezvousInfo) and info.world_size == 1


def test_nodes_with_different_transports_are_refused_with_both_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch_collab.native.ucx_problem", lambda: None)
    port = free_port()
    paris = node(monkeypatch, port, {"COLLAB_TRANSPORT": "tcp"}, "paris")
    tokyo = node(monkeypatch, port, {"COLLAB_TRANSPORT": "ucx"}, "tokyo")
    both = errors(paris, tokyo)
    assert all(
        "uses tcp" in each and "uses ucx" in each and "set COLLAB_TRANSPORT to the same value" in each for each in both
    )


RUN = {"run": "none", "nonce": "n", "node": "paris", "key": "none", "transport": "tcp"}


@pytest.mark.parametrize(("layout", "told"), [({}, "0"), ({"layout": "7"}, "7")])
def test_a_node_refuses_a_store_of_another_layout(
    monkeypatch: pytest.MonkeyPatch, layout: dict[str, str], told: str
) -> None:
    """Of another release, whose node would wait at other keys."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    tokyo = node(monkeypatch, store.port, {"COLLAB_TRANSPORT": "tcp"}, "tokyo", is_host="0")
    store.set("collab/rendezvous/run", json.dumps({**RUN, "run": tokyo.get_run_id(), **layout}))
    (refused,) = errors(tokyo)
    assert f"node paris uses layout {told} of this store, and this node (tokyo) uses layout 1" in refused
    assert "[rendezvous.settings-differ]" in refused
    assert json.loads(store.get("collab/rendezvous/refused"))["layout"] == "1"


def test_a_node_that_was_refused_for_its_layout_is_told_where_the_store_is(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    left = json.dumps({**RUN, "node": "oslo", "layout": "2", "entry": ""})
    thread = when_served(port, lambda store: store.set("collab/rendezvous/refused", left))
    (refused,) = errors(node(monkeypatch, port, {"COLLAB_TRANSPORT": "tcp"}, "paris"))
    thread.join()
    assert "node oslo uses layout 2 of this store, and this node (paris) uses layout 1" in refused


@pytest.mark.parametrize("knobs", [KEY, NONE])
def test_a_stranger_closes_the_list(monkeypatch: pytest.MonkeyPatch, knobs: dict[str, str]) -> None:
    """And nobody trains alone."""
    port = free_port()
    empty = '{"id": "x", "closer": "", "nodes": []}'
    thread = when_served(port, lambda store: store.compare_set(LIST, "", empty))
    (alone,) = errors(node(monkeypatch, port, knobs, "paris"))
    thread.join()
    unsigned = f"({LIST}) that was not signed with this swarm's token (no signature)"
    words = unsigned if knobs else "the list of nodes there"
    assert words in alone


def test_a_stranger_closes_the_list_while_two_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    three = [node(monkeypatch, port, KEY, site, (3, 3)) for site in ("paris", "tokyo")]

    def close(store: TCPStore) -> None:
        store.wait(["collab/rendezvous/first/node/1"])
        store.compare_set(LIST, "", "{}")

    thread = when_served(port, close)
    both = errors(*three)
    thread.join()
    assert all("not signed with" in each for each in both), both


@pytest.mark.parametrize("text", ["{}", "[]", '{"id": 1, "closer": "", "nodes": [{}]}', b"\xff"])
def test_nonsense_in_the_list_without_a_key(monkeypatch: pytest.MonkeyPatch, text: str | bytes) -> None:
    port = free_port()
    thread = when_served(port, lambda store: store.compare_set(LIST, "", text))
    (alone,) = errors(node(monkeypatch, port, NONE, "paris"))
    thread.join()
    assert "in the list there" in alone or "the list of nodes there" in alone


def test_a_list_signed_in_an_earlier_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    first = node(monkeypatch, port, KEY, "paris", (1, 1))
    rendezvous(first)
    seen = stranger(port).get(LIST)
    again = free_port()
    thread = when_served(again, lambda store: store.compare_set(LIST, "", seen))
    (refused,) = errors(node(monkeypatch, again, KEY, "paris"))
    thread.join()
    assert "(another signature)" in refused
    first.shutdown()


def test_a_missing_coordinator_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other site was given one, and so serves none."""
    port = free_port()
    tokyo = node(monkeypatch, port, KEY, "tokyo", is_host="1")
    monkeypatch.delenv("COLLAB_COORDINATOR")
    paris = node(monkeypatch, port, KEY, "paris", standby="0", is_host="0")
    found = rendezvous(tokyo, paris)
    assert isinstance(found[0], RendezvousInfo)
    assert isinstance(found[1], RendezvousError) and "no site there serves a coordinator" in str(found[1])


def test_an_endpoint_started_again_with_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    paris = node(monkeypatch, port, KEY, "paris", (1, 1))
    rendezvous(paris)
    assert reconnect("127.0.0.1", port, "a", paris._settings.key) is not None
    assert reconnect("127.0.0.1", port, "b", paris._settings.key) is None
    with pytest.raises(SignatureError, match="signed with a token, and this node has none"):
        reconnect("127.0.0.1", port, "a", NO_KEY)


def test_a_token_is_replaced_at_the_endpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Who comes later has the new one alone, and finds nothing that the one before has signed."""
    files = {site: tmp_path / f"{site}.key" for site in ("paris", "tokyo", "lima")}
    old, new = token.make(), token.make()
    for file in files.values():
        write(file, old)
    port = free_port()
    paris, tokyo = (
        node(monkeypatch, port, {"COLLAB_TOKEN_FILE": str(files[site])}, site, is_host=str(int(site == "paris")))
        for site in ("paris", "tokyo")
    )
    assert ranks(rendezvous(paris, tokyo)) == [(0, 2), (1, 2)]
    token.rotate(files["paris"], new)
    write(files["tokyo"], files["paris"].read_text())
    assert paris._endpoint is not None
    board = LivenessView(paris._endpoint.part("agents"), 60.0)
    with_new = read_key({"COLLAB_TOKEN": new}, {})
    entries = SignedStore(stranger(port), with_new, paris._endpoint.store._scope, "here", "collab/rendezvous")
    wait_until(lambda: is_signed(entries, "first/list") and is_signed(entries, "agents/who/0"))
    for file in files.values():
        write(file, new)
    (late,) = rendezvous(node(monkeypatch, port, {"COLLAB_TOKEN_FILE": str(files["lima"])}, "lima", is_host="0"))
    assert isinstance(late, RendezvousInfo) and late.world_size == 1
    wait_until(lambda: [each.split()[0] for each in board.living()] == ["tokyo", "lima"])
    for each in (tokyo, paris):
        each.shutdown()


def is_signed(store: SignedStore, name: str) -> bool:
    try:
        return bool(store.get(name))
    except SignatureError:
        return False


def test_a_stranger_says_nothing_about_live_nodes() -> None:
    store = HashStore()
    swarm = SignedStore(store, SwarmKey("token", b"k" * 32), (), "here")
    store.add("count", 3)
    store.set("who/0", '"stranger"')
    swarm.set("who/1", '"tokyo"')
    store.set("done/1", "1")
    swarm.set("who/2", '"oslo"')
    swarm.set("done/2", "1")
    board = LivenessView(swarm, 5.0)
    assert board.living() == ["tokyo"]
    for word in ("no JSON", "7", "[" * 100_000, b"\xff"):  # of another release
        swarm.set("who/1", word)
        assert board.living() == []
    swarm.set("who/1", '"tokyo"')
    assert board.living() == ["tokyo"]
    store.add("count", 1 << 40)
    assert board.living() == []


def test_a_stranger_that_counts_ends_a_start_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    first = node(monkeypatch, port, KEY, "paris")
    begun = when_served(port, lambda store: store.add("collab/rendezvous/first/arrivals", 1 << 40))
    (error,) = rendezvous(first)
    begun.join()
    assert isinstance(error, RendezvousError)
    assert "the counter 'arrivals' in the endpoint's store says 1099511627777; at most 65536 were" in str(error)
