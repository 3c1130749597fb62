"""The rendezvous handler without torchrun: who meets whom, and what is said when nobody comes."""

from __future__ import annotations

import os
import socket
import time

import pytest
from handlers import handler, ranks, rendezvous
from logs import said
from ranks import free_port
from torch.distributed import HashStore, PrefixStore
from torch.distributed.elastic.rendezvous import RendezvousError, RendezvousInfo, RendezvousParameters
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler
from torch_collab import log
from torch_collab.network.keys import NO_KEY
from torch_collab.network.signed_store import SignedStore
from torch_collab.rendezvous import candidate, late
from torch_collab.rendezvous.agent_store import AgentStore
from torch_collab.rendezvous.first_members import Node, draw
from torch_collab.rendezvous.gathering import Gathered, Gathering, GatheringError, Terms
from torch_collab.rendezvous.handler import CollabRendezvous
from torch_collab.rendezvous.settings import own_address, read_settings

pytestmark = pytest.mark.usefixtures("serves_none")


def test_the_first_members_then_late_ones_then_one_that_comes_back() -> None:
    port = free_port()
    first, second = handler(port), handler(port)
    infos = rendezvous(first, second)
    assert ranks(infos) == [(0, 2), (1, 2)]
    assert all(info.bootstrap_store_info.master_port == port for info in infos)
    assert os.environ["COLLAB_START"] == "first-members" and os.environ["COLLAB_COORDINATOR"] == "127.0.0.1:9"
    assert os.environ["COLLAB_ENDPOINT"] == f"127.0.0.1:{port}"
    assert "COLLAB_MIN_SITES" not in os.environ
    later = handler(port)
    (info,) = rendezvous(later)
    assert os.environ["COLLAB_MIN_SITES"] == "2", "it founds no swarm beside the one that is there"
    assert (info.rank, info.world_size) == (0, 1) and info.bootstrap_store_info.master_port != port
    assert os.environ["COLLAB_START"] == "lone"
    (again,) = rendezvous(second)
    assert (again.rank, again.world_size) == (0, 1)
    assert all(each.num_nodes_waiting() == 0 and not each.is_closed() for each in (first, second, later))
    for each in (later, second, first):
        each.shutdown()


class _AllClosed:
    """A store in which every list of late nodes is closed."""

    def __init__(self) -> None:
        self.asked = 0

    def part(self, name: str) -> _AllClosed:
        return self

    def check(self, keys: list[str]) -> bool:
        self.asked += 1
        return True


def test_late_nodes_look_for_an_open_list_no_longer_than_their_limit() -> None:
    store = _AllClosed()
    mine = Node("1", "paris", "host", "host:1")
    with pytest.raises(GatheringError, match=r"rendezvous\.in-no-list"):
        late.meet(store, "paris", mine, None, Terms(2, 2, 0.0, 0.2), lambda there: None)
    assert store.asked > 1


def test_the_number_of_first_sites_may_be_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    first = handler(port, (1, 1))
    rendezvous(first)
    monkeypatch.setenv("COLLAB_MIN_SITES", "1")
    rendezvous(handler(port))
    assert os.environ["COLLAB_START"] == "lone" and os.environ["COLLAB_MIN_SITES"] == "1"


def test_nodes_of_the_only_site_wait_for_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLLAB_SITE", "paris")
    port = free_port()
    first = [handler(port), handler(port)]  # who serve the endpoint, for as long as they live
    rendezvous(*first)
    again = [handler(port), handler(port)]
    assert all(isinstance(info, RendezvousInfo) for info in rendezvous(*again))
    assert os.environ["COLLAB_START"] == "lone" and "COLLAB_MIN_SITES" not in os.environ
    for each in (*again, *first):
        each.shutdown()


@pytest.mark.parametrize(
    ("hosts", "said", "told"),
    [(["here", "there"], "1", True), (["here", "there"], "2", False), (["here", "here"], "1", False)],
)
def test_machines_under_one_name_are_told_that_they_are_one_site(
    monkeypatch: pytest.MonkeyPatch, hosts: list[str], said: str, told: bool
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(log, "_say", lambda level, message: lines.append(f"{level} {message}"))
    monkeypatch.setenv("COLLAB_SITE", "paris")
    port, made = free_port(), []
    for host in hosts:
        monkeypatch.setattr(socket, "gethostname", lambda name=host: name)
        made.append(handler(port, site_nodes=said))
    rendezvous(*made)
    found = [line for line in lines if "[rendezvous.site-of-several]" in line]
    assert len(found) == (2 if told else 0), lines
    for line in found:
        assert line.startswith("warning site paris is 2 machines"), line
        assert "here (127.0.0.1)" in line and "there (127.0.0.1)" in line and "--site" in line, line
    for each in reversed(made):
        each.shutdown()


def test_an_agents_log_names_its_site(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, int | None]] = []
    monkeypatch.setattr(log, "set_source", lambda site, rank: told.append((site, rank)))
    monkeypatch.setenv("COLLAB_SITE", "paris")
    handler(free_port())
    monkeypatch.delenv("COLLAB_SITE")
    monkeypatch.setattr(socket, "gethostname", lambda: "host")
    port = free_port()
    made = [handler(port), handler(port)]
    assert told == [("paris", None), ("host", None), ("host", None)]
    ranks(rendezvous(*made))
    assert {site for site, _ in told[3:]} == {"host", "host-2"}
    for each in reversed(made):
        each.shutdown()


def test_fewer_than_the_maximum_begin_after_the_last_call() -> None:
    (info,) = rendezvous(handler(free_port(), (1, 3)))
    assert (info.rank, info.world_size) == (0, 1)
    assert os.environ["COLLAB_START"] == "first-members"


def test_no_more_than_the_maximum_begin_together() -> None:
    port = free_port()
    found = ranks(rendezvous(*(handler(port, (1, 2), last_call_timeout="60") for _ in range(3))))
    assert found == [(0, 1), (0, 2), (1, 2)]


def test_nodes_with_other_nnodes_are_told_the_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    told = said(monkeypatch)
    port = free_port()
    rendezvous(handler(port, (2, 2), is_host="1"), handler(port, (3, 4), is_host="0"))
    assert "\n".join(told).count("[rendezvous.nnodes-differ]") == 1
    assert "begins with 2 nodes" in "\n".join(told) and "--nnodes here says 3:4" in "\n".join(told)
    monkeypatch.setattr("torch_collab.rendezvous.handler.SAY_EVERY", 0.1)
    port = free_port()
    first = handler(port, (3, 3), is_host="1", join_timeout="2")
    rendezvous(first, handler(port, (2, 2), is_host="0", join_timeout="2"))
    waits = "2 nodes so far; as many as --nnodes says here, but the machine at the endpoint waits for more"
    assert any(waits in line for line in told)


def expect_error(made: CollabRendezvous, *words: str) -> None:
    (error,) = rendezvous(made)
    assert isinstance(error, RendezvousError), error
    for word in words:
        assert word in str(error), str(error)


def test_no_answer_at_the_endpoint() -> None:
    port = free_port()
    expect_error(
        handler(port, join_timeout="1", is_host="0"),
        f"--rdzv-endpoint=127.0.0.1:{port}", "tried for 1 s", "refused", "loopback",
    )  # fmt: skip


def test_a_second_first_machine_is_told_of_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    told = said(monkeypatch)
    monkeypatch.setattr("torch_collab.rendezvous.endpoint.is_this_machine", lambda host: False)
    monkeypatch.setenv("COLLAB_SITE", "paris")
    port = free_port()
    first = handler(port, (1, 2), is_host="1")  # behind a router, as it cannot tell
    rendezvous(first)
    assert "--site NAME" in "\n".join(told) and "[rendezvous.endpoint-elsewhere]" in "\n".join(told)
    expect_error(
        handler(port, is_host="1"),
        "is already served by paris", "an earlier start on this machine", "--site NAME", "[rendezvous.two-first]",
    )  # fmt: skip
    first.shutdown()


def test_another_program_at_the_endpoint_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch_collab.rendezvous.endpoint.DIAL_SECONDS", 2.0)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        expect_error(handler(other.getsockname()[1]), "something else listens", "choose a port")


def test_another_run_at_the_endpoint_is_reported() -> None:
    port = free_port()
    first = handler(port, (1, 1), run_id="a")
    rendezvous(first)
    expect_error(handler(port, run_id="b"), "--rdzv-id=a", "--rdzv-id=b")


def test_too_few_nodes_are_an_error_after_the_timeout() -> None:
    port = free_port()
    expect_error(handler(port, (2, 2), join_timeout="1"), f"127.0.0.1:{port}, served here", "1 of 2 nodes came")


def test_a_bad_option_and_a_missing_endpoint() -> None:
    with pytest.raises(ValueError, match="join_timeout=soon"):
        handler(free_port(), join_timeout="soon")
    with pytest.raises(ValueError, match="--rdzv-endpoint=HOST:PORT"):
        get_rendezvous_handler(RendezvousParameters("collab", "", "a", 1, 1))


def test_sites_of_the_first_members() -> None:
    told = [
        Node("1", "", "host", "h:1").tell(),
        Node("2", "rome", "x", "x:1").tell(),
        Node("3", "", "host", "h:2").tell(),
        Node("4", "rome", "y", "y:1").tell(),
    ]
    drawn = draw(Gathered("", "g", "3", tuple(told)))
    assert [(site.name, [node.id for node in site.nodes]) for site in drawn.sites] == [
        ("host", ["3"]),
        ("host-2", ["1"]),
        ("rome", ["2", "4"]),
    ]
    assert [drawn.rank_of(each) for each in "3124"] == [0, 1, 2, 3]


def test_a_lost_node_is_not_waited_for() -> None:
    store = PrefixStore("g", HashStore())
    store.add("arrivals", 1)  # it came, told its name, and died
    store.set("node/0", '{"id": "dead"}')
    terms = Terms(least=2, most=2, last_call=0.1, limit=1.0, content_with_fewer=True)
    started = time.monotonic()
    gathered = Gathering(store).come({"id": "living"}, True, terms, lambda _: None)
    assert gathered.nodes == ({"id": "living"},) and time.monotonic() - started >= 1.0


@pytest.mark.parametrize("told", ["no JSON", "7", b"\xff"])
def test_an_anonymous_node_ends_the_gathering_with_the_reason(told: str | bytes) -> None:
    store = PrefixStore("g", HashStore())
    store.add("arrivals", 1)
    store.set("node/0", told)
    terms = Terms(least=2, most=2, last_call=0.1, limit=20.0)
    with pytest.raises(GatheringError, match=r"node 0 .* does not say who it is.*\[rendezvous\.bad-arrival\]"):
        Gathering(store).come({"id": "living"}, True, terms, lambda _: store.add("beat/0", 1))


def test_a_late_node_of_another_release_is_an_error() -> None:
    store = SignedStore(HashStore(), NO_KEY, (), "here")
    there = store.part("late/paris/0")

    def come(_: int) -> None:
        if not there.check(["node/1"]):
            there.add("arrivals", 1)
            there.set("node/1", '{"name": "tokyo"}')
        there.add("beat/1", 1)

    mine = Node("1", "paris", "host", "host:1")
    with pytest.raises(GatheringError, match=r"does not say who it is.*\[rendezvous\.bad-node\]"):
        late.meet(store, "paris", mine, None, Terms(2, 2, 0.0, 20.0), come)


def test_the_exit_barrier_is_the_sites() -> None:
    site, meeting = HashStore(), HashStore()
    one = AgentStore(meeting, site, 1)
    one.add("torchelastic/agent/terminal_state/num_members", 1)
    one.wait(["torchelastic/agent/terminal_state/last_member"])  # nobody else is of this site
    two = [AgentStore(meeting, site, 2) for _ in range(2)]
    for each in two:
        each.add("torchelastic/agent/terminal_state/num_members", 1)
    two[0].wait(["torchelastic/agent/terminal_state/last_member"])


def test_the_join_command_has_the_settings_that_all_sites_share(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("PRESET", "wan"), ("CODEC", "int8"), ("LISTEN", "127.0.0.1:0"), ("RUN", "night")):
        monkeypatch.setenv(f"COLLAB_{name}", value)
    words = candidate.join_command(read_settings(RendezvousParameters("collab", "paris:29400", "a", 1, 2))).split()
    given = words[: words.index("collab")]
    assert words[len(given) :] == [
        "collab",
        "run",
        "--site",
        "NAME",
        "--join",
        "paris:29400",
        "--run",
        "night",
        "train.py",
    ]
    assert "COLLAB_CODEC=int8" in given and "COLLAB_OVERLAP=1" in given, "of the preset too"
    assert not any("LISTEN" in word or "PRESET" in word for word in given)


def test_a_machine_without_ucx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch_collab.native.ucx_problem", lambda: "no libucp.so")
    monkeypatch.setenv("COLLAB_TRANSPORT", "ucx")
    with pytest.raises(RuntimeError, match=r"COLLAB_TRANSPORT=ucx, and no libucp.so; then look at `collab doctor`"):
        handler(free_port())


def test_an_endpoint_name_that_means_loopback_here(monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = RendezvousParameters("collab", "head:29400", "a", 1, 2)
    settings = read_settings(parameters)
    monkeypatch.setattr("torch_collab.rendezvous.settings.is_loopback", lambda host: host in ("head", "127.0.1.1"))
    routes = {"192.0.2.1": "10.1.2.3"}
    monkeypatch.setattr("torch_collab.rendezvous.settings.local_address_towards", routes.__getitem__)
    assert own_address(settings) == "10.1.2.3"  # not 127.0.1.1, which no other machine could dial
    routes["192.0.2.1"] = "127.0.1.1"
    with pytest.raises(ValueError, match="--local-addr=ADDRESS"):
        own_address(settings)
    parameters.local_addr = "10.9.9.9"
    assert own_address(read_settings(parameters)) == "10.9.9.9"


def test_a_site_that_cannot_be_dialled_has_a_local_address_and_serves_no_standby(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("COLLAB_COORDINATOR")
    port, made = free_port(), []
    for advertise, is_host in (("", "1"), ("none", "0")):
        monkeypatch.setenv("COLLAB_ADVERTISE", advertise)
        made.append(handler(port, is_host=is_host))
    assert own_address(read_settings(RendezvousParameters("collab", f"127.0.0.1:{port}", "a", 1, 2))) == "127.0.0.1"
    ranks(rendezvous(*made))
    (served,) = os.environ["COLLAB_COORDINATOR"].split(",")
    assert served.startswith("127.0.0.1:")
    for each in reversed(made):
        each.shutdown()
