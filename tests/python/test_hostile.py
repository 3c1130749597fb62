"""One peer attacks a swarm as fast as it can: all processes live, rounds go on, memory and logs stay within bounds.

COLLAB_HOSTILE_SECONDS is how long the attacks of this file take in all; a fresh seed each run, and the output names it.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import random
import subprocess
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from besieged_worlds import STRANGERS, WorldSiege
from commands import new_token
from forks import start, usual_environment
from hostiles import GRACE, SLOWER, Siege, Watched, binary, is_short, shares
from ranks import Ranks, listing
from torchruns import Node, Nodes, descendants

SECONDS = float(os.environ.get("COLLAB_HOSTILE_SECONDS", "120"))
QUIET_SECONDS = 4.0
TESTS = 5  # of which a short run leaves one out
SWARMS = 3  # which divide the attacks, in a short run
NEWCOMER_SECONDS = 15.0  # an attack that is as long leaves time for one to come
# At rounds: of those that stop all of them nothing shows before the grace is over.
AIMED = ("take-part", "join-and-stall", "churn", "records", "terms", "unanswered", "anchors")
# On a world: by one of its ranks, and by worlds of the attacker's own at its hub.
OF_A_WORLD = (
    "poison", "fail-steps", "squat", "rank-names", "unacknowledged", "promises", "held", "calls", "many-groups",
    "full-hub",
)  # fmt: skip
AT_THE_HUB = ("bring", "unread", "enter-gone")
# Seconds, in a short run: they have to fill something first, or what they do shows once a grace is over.
SLOW_AT_THE_HUB = {"held": 6.0, "many-groups": 6.0, "full-hub": 5.0, "unacknowledged": 5.0}
# The same in all workers, which divide the attacks among them.
SEED = zlib.crc32(os.environ.get("PYTEST_XDIST_TESTRUNUID", str(random.random())).encode())
ONLY = os.environ.get("COLLAB_HOSTILE_ATTACK", "")  # one attack instead of all
KINDS = ("anybody", "member")  # of attackers: where there is no token, and where they have it

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300 + 2 * SECONDS)]
if SECONDS <= 120:  # a long run is a judge: what it finds once, it has found
    pytestmark.append(
        pytest.mark.second_try("the system's scheduler divides the processors between attacker and swarm")
    )

ENVIRONMENT = {
    "COLLAB_TRANSPORT": "tcp",
    "COLLAB_SYNC_EVERY": "10",
    "COLLAB_HEARTBEAT": "200ms",
    "COLLAB_LINK_GRACE": f"{GRACE:.0f}s",
    "COLLAB_STRAGGLER_GRACE": f"{GRACE:.0f}s",
    "COLLAB_JOIN_TIMEOUT": "20s",
    "COLLAB_LISTEN": "127.0.0.1:0",
    "TORCHELASTIC_RESTART_COUNT": "0",
    "TEST_WIDTH": "256",
}


def attacks() -> list[str]:
    listed = subprocess.run([binary(), "--list"], capture_output=True, text=True, check=True).stdout.splitlines()
    names = [line.partition(":")[0] for line in listed]
    assert {*AIMED, *OF_A_WORLD, *AT_THE_HUB} <= set(names)
    return names


@functools.cache
def share() -> float:
    """Seconds of the attacks of each test."""
    return SECONDS / TESTS if not is_short(SECONDS / TESTS, attacks()) else SECONDS / (TESTS - 1)


def planned(test: int) -> dict[str, float]:
    """Seconds of each attack on a swarm. In a short run the tests divide those aimed at rounds, so that each has its
    time, and the others, drawn anew: with what is before and after it, an attack of a second takes four."""
    names = [name for name in attacks() if name not in OF_A_WORLD]
    if ONLY:
        return {name: share() for name in names if name == ONLY}
    if is_short(share(), names):
        others = [name for name in names if name not in AIMED]
        drawn = random.Random(SEED).sample(others, len(others))
        names = [*AIMED, *drawn[test::SWARMS]]
    return shares(names, share(), AIMED, AIMED[test::SWARMS])


def planned_at_the_hub() -> dict[str, float]:
    """Of each attack on a world, and of those that the hub of any world has to bear."""
    names = [name for name in attacks() if name in (*OF_A_WORLD, *AT_THE_HUB)]
    if ONLY:
        return {name: share() for name in names if name == ONLY}
    if is_short(share(), names):
        return {name: SLOW_AT_THE_HUB.get(name, 1.0) for name in names}
    return shares(names, share(), (), ())


def endure_all(siege: Siege, test: int, comes: Callable[[], float] | None = None) -> None:
    """`comes` lets one more honest site come, and gives the seconds until it is in a round."""
    siege.watch_quiet(QUIET_SECONDS)
    for name, seconds in planned(test).items():
        attacked = functools.partial(siege.endure, name, seconds, random.randrange(2**32))
        if comes is None or name != "fetch-names" or seconds < NEWCOMER_SECONDS:
            attacked()
            continue
        usual = comes()
        with ThreadPoolExecutor(1) as beside:
            newcomer = beside.submit(comes)
            attacked()
            took = newcomer.result()
        print(f"  a newcomer: {took:.1f} s, {usual:.1f} s without the attack")
        if took > SLOWER * usual + GRACE:
            siege.faults.append(f"{name}: a newcomer took {took:.1f} s, {usual:.1f} s without the attack")


def time_to_come(siege: Siege, folder: Path, key: dict[str, str], numbers: Iterator[int]) -> float:
    """Of a helper that is away again afterwards."""
    name, begun = f"guest-{next(numbers)}", time.time()
    guest = Tool(folder, name, "helper", "--coordinator", siege.target, "--site", name, **key)
    try:
        seen = wait_for_event(siege.events, lambda event: name in event.get("members", []))
        return float(seen["t"]) - begun
    finally:
        guest.kill()


@pytest.fixture(params=KINDS)
def key(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Without a token anybody may attack; with one it is a member that turned."""
    return key_of(str(request.param), tmp_path)


def key_of(attacker: str, folder: Path) -> dict[str, str]:
    if attacker == "anybody":
        return {}
    path = folder / "token"
    path.write_text(new_token() + "\n")
    path.chmod(0o600)
    return {"COLLAB_TOKEN_FILE": str(path)}


class Tool:
    """`collab` with these arguments, its output in a file: a pipe that nobody reads would stop it."""

    def __init__(self, folder: Path, name: str, *arguments: str, **environment: str) -> None:
        self.log, self.events = folder / f"{name}.log", folder / f"{name}.jsonl"
        whole = {**usual_environment(), **ENVIRONMENT, **environment, "COLLAB_EVENTS_FILE": str(self.events)}
        with self.log.open("w") as output:
            self.process = start(["-m", "torch_collab.cli", *arguments], whole, output, output)
        self.name = name

    def watched(self) -> Watched:
        return Watched(self.name, self.process.pid, [self.log, self.events])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def wait_for_event(events: Path, wanted: Callable[[dict[str, Any]], bool], seconds: float = 90) -> dict[str, Any]:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        lines = events.read_text().splitlines(keepends=True) if events.exists() else []
        for line in lines:
            if line.endswith("\n") and wanted(event := json.loads(line)):
                return dict(event)
        time.sleep(0.05)
    raise AssertionError(f"no such event in {events}")


def coordinator_in(events: Path) -> str:
    """Its address, once it has told it."""
    return str(wait_for_event(events, lambda event: event["event"] == "coordinator")["address"])


@contextlib.contextmanager
def swarm_of_two(folder: Path, key: dict[str, str]) -> Iterator[tuple[Siege, dict[str, Ranks]]]:
    """A coordinator, a helper, and two sites that train until FOLDER/stop is there."""
    with contextlib.ExitStack() as stack:
        coordinator = Tool(folder, "coordinator", "coordinator", "--listen", "127.0.0.1:0", "--sites", "2", **key)
        stack.callback(coordinator.kill)
        address = coordinator_in(coordinator.events)
        helper = Tool(folder, "helper", "helper", "--coordinator", address, "--site", "helper", **key)
        stack.callback(helper.kill)
        sites, watched = {}, [coordinator.watched(), helper.watched()]
        for number, site in enumerate(("paris", "rome")):
            events = folder / f"{site}.jsonl"
            environment = {**ENVIRONMENT, **key, "COLLAB_SITE": site, "COLLAB_COORDINATOR": address}
            environment["TEST_DATA"] = str(number)
            sites[site] = stack.enter_context(
                Ranks("torchrun.py", [str(folder)], [{**environment, "COLLAB_EVENTS_FILE": str(events)}])
            )
            pid = sites[site].processes[0].pid
            watched.append(Watched(site, pid, [events], functools.partial(sites[site].output, 0)))
        sites["paris"].wait_for_line(0, "round 5")
        # What it takes for the model and its links is no attack's.
        wait_for_event(folder / "paris.jsonl", lambda event: "helper" in event.get("members", []))
        yield Siege(address, watched, folder / "paris.jsonl", key, [folder / "rome.jsonl"]), sites


def test_a_swarm_endures_a_hostile_peer(tmp_path: Path, key: dict[str, str]) -> None:
    binary()
    with swarm_of_two(tmp_path, key) as (siege, sites):
        endure_all(siege, 1 if key else 0, functools.partial(time_to_come, siege, tmp_path, key, itertools.count()))
        siege.stop(tmp_path / "stop")
        digests = set()
        for site in sites.values():
            ended = site.join()[0]
            assert ended.status == 0, ended.output[-5000:]
            digests.add(ended.output.rpartition(" digest ")[2].strip())
        siege.verdict()
        assert len(digests) == 1


@contextlib.contextmanager
def world_of_three(folder: Path) -> Iterator[tuple[WorldSiege, Ranks]]:
    """One world of three sites, whose ranks train and are in collectives until FOLDER/stop is there."""
    names = ("paris", "rome", "oslo")
    events = [folder / f"{name}.jsonl" for name in names]
    environments = [
        {**ENVIRONMENT, "COLLAB_SITE": name, "COLLAB_EVENTS_FILE": str(file), "TEST_STRANGERS": str(STRANGERS)}
        for name, file in zip(names, events, strict=True)
    ]
    with Ranks("besieged.py", [str(folder)], environments) as ranks:
        for rank in range(len(names)):
            ranks.wait_for_line(rank, "trains")
        watched = [
            Watched(name, ranks.processes[rank].pid, [events[rank]], functools.partial(ranks.output, rank))
            for rank, name in enumerate(names)
        ]
        siege = WorldSiege(folder, names, watched)
        with siege.kept():
            yield siege, ranks


def test_a_worlds_collectives_endure_a_hostile_rank(tmp_path: Path) -> None:
    binary()
    left = list(planned_at_the_hub().items())
    faults: list[str] = []
    while left:
        folder = tmp_path / str(len(left))
        folder.mkdir()
        with world_of_three(folder) as (siege, ranks):
            siege.watch_quiet(QUIET_SECONDS)
            while left and not siege.faults:
                attack, seconds = left.pop(0)
                siege.endure(attack, seconds, random.randrange(2**32))
            if siege.faults:  # the others are tried on another world, that each fault has one cause
                faults += siege.faults
                continue
            siege.stop(folder / "stop")
            ended = ranks.join()
            assert all(each.status == 0 for each in ended), listing(ended)
            assert len({each.output.rpartition(" digest ")[2].strip() for each in ended}) == 1
            siege.verdict()
    assert not faults, "bounds that were not held:\n" + "\n".join(faults)


def watched_nodes(nodes: Nodes) -> list[Watched]:
    """Each agent with what its node tells, and its workers."""
    found = []
    for node in nodes.all:
        events = nodes.folder / f"{node.name}.jsonl"
        found.append(Watched(f"{node.name}'s agent", node.process.pid, [events], functools.partial(output_of, node)))
        for number, pid in enumerate(node.pids()):
            assert int(pid) in descendants(node.process.pid)
            found.append(Watched(f"{node.name}'s worker {number}", int(pid)))
    return found


def output_of(node: Node) -> str:
    return node.output


@pytest.mark.parametrize("attacker", KINDS)
def test_torchruns_endure_a_hostile_peer(nodes: Nodes, attacker: str) -> None:
    binary()
    if is_short(share(), attacks()) and not ONLY and attacker != KINDS[SEED % 2]:
        pytest.skip("a short run draws one kind of attacker, and this is the other")
    key = key_of(attacker, nodes.folder)
    environment = {name: value for name, value in ENVIRONMENT.items() if name.startswith(("COLLAB_", "TEST_"))} | key
    paris = nodes.start("paris", conf="is_host=1", nproc=2, **environment)
    rome = nodes.start("rome", conf="is_host=0", **environment)
    paris.wait_for_rounds(5, "paris", "rome")
    events = nodes.folder / "paris.jsonl"
    siege = Siege(coordinator_in(events), watched_nodes(nodes), events, key)
    endure_all(siege, 2)
    siege.stop(nodes.folder / "stop")
    for node in (paris, rome):
        node.join()
    siege.verdict()
    assert paris.digest() == rome.digest()
