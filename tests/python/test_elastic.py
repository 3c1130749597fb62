"""Sites that die, stop, leave and come back while the others train on: real torchruns of `--rdzv-backend=collab`."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import signal
import statistics
import time
from typing import Any

import pytest
from commands import PATIENCE
from torchruns import Node, Nodes, descendants

pytestmark = pytest.mark.slow

GPT2 = {"TEST_MODEL": "gpt2"}
WAN = {"COLLAB_PRESET": "wan"}  # rounds behind the training
LARGE = {"TEST_WIDTH": "300"}  # a tensor that is large enough to travel as int4
KILLS = int(os.environ.get("COLLAB_TEST_KILLS", "3"))
SOAK_SECONDS = float(os.environ.get("COLLAB_SOAK_SECONDS", "20"))


def three(nodes: Nodes, **environment: str) -> tuple[Node, Node, Node]:
    names = ("paris", "rome", "oslo")
    # The endpoint's is the first: its agent coordinates.
    made = []
    for name in names:
        conf = f"is_host={int(name == 'paris')}"
        made.append(nodes.start(name, "--max-restarts=100", nnodes="3:4", conf=conf, **environment))
    made[0].wait_for_rounds(2, *names)
    return made[0], made[1], made[2]


def worker(node: Node) -> int:
    return int(node.pids()[-1])


def events(nodes: Nodes, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (nodes.folder / f"{name}.jsonl").read_text().splitlines()]


def first_after(at: float, told: list[dict[str, Any]], **fields: str) -> float:
    """Seconds."""
    return min(event["t"] for event in told if event["t"] > at and fields.items() <= event.items()) - at


def rounds_told(nodes: Nodes, name: str) -> list[dict[str, Any]]:
    return [event for event in events(nodes, name) if event["event"] == "round" and event["site"] == name]


def rounds_alike(nodes: Nodes, *names: str) -> int:
    """What each committed round led to was the same everywhere; how many there were."""
    told: dict[object, object] = {}
    for name in names:
        for event in rounds_told(nodes, name):
            assert told.setdefault(event["round"], event["digest"]) == event["digest"], f"{event} at {name}"
    return len(told)


@pytest.mark.timeout(120 + 120 * KILLS)  # a worker starts in 8 s, beside other tests in 60
def test_a_worker_is_killed_at_random_moments_and_returns(nodes: Nodes) -> None:
    paris, rome, oslo = three(nodes, **GPT2)
    chance = random.Random()
    kills: list[float] = []
    for number in range(KILLS):
        time.sleep(chance.random() * 0.5)  # of a round of about 0.3 s
        steps = paris.step()
        victim = worker(rome)
        kills.append(time.time())
        os.kill(victim, signal.SIGKILL)
        rome.wait_for(f"start lone restart {number + 1}")
        paris.wait_for_rounds(2, "paris", "rome", "oslo")
        assert paris.step() > steps
        assert len(paris.pids()) == len(oslo.pids()) == 1, "a healthy worker was restarted"
    nodes.end_together()
    assert rounds_alike(nodes, "paris", "rome", "oslo") > 2 * KILLS
    told = events(nodes, "paris")
    missed = [first_after(at, told, event="leave", who="rome") for at in kills]
    rounds = [first_after(at, told, event="round", site="paris") for at in kills]
    for what, waits in (("missed", missed), ("followed by a round", rounds)):
        print(f"a killed worker was {what} within {statistics.median(waits):.2f} s, at most {max(waits):.2f} s")


def test_the_coordinators_machine_dies_and_the_others_go_on(nodes: Nodes) -> None:
    paris, rome, oslo = three(nodes)
    paris.kill()
    rome.wait_for_rounds(2, "rome", "oslo")
    assert len(rome.pids()) == len(oslo.pids()) == 1
    nodes.all.remove(paris)
    nodes.end_together()


def test_a_short_pause_is_waited_for(nodes: Nodes) -> None:
    environment = {"COLLAB_LINK_GRACE": "20s", "COLLAB_STRAGGLER_GRACE": "20s"}
    paris, rome, _ = three(nodes, **environment)
    os.kill(worker(rome), signal.SIGSTOP)
    time.sleep(5)
    os.kill(worker(rome), signal.SIGCONT)
    paris.wait_for_rounds(2, "paris", "rome", "oslo")
    assert not paris.rounds("paris", "oslo"), "nobody was left out"
    assert "is moved onto the new anchor" not in rome.output
    nodes.end_together()


def test_a_long_pause_is_not_waited_for_and_nothing_trained_is_lost(nodes: Nodes) -> None:
    paris, rome, _ = three(nodes)
    os.kill(worker(rome), signal.SIGSTOP)
    paris.wait_for_rounds(3, "paris", "oslo")
    os.kill(worker(rome), signal.SIGCONT)
    paris.wait_for_rounds(2, "paris", "rome", "oslo")
    assert len(rome.pids()) == 1, "it came back by itself"
    nodes.end_together()


def test_a_lone_site_goes_on_once_the_others_are_forgotten(nodes: Nodes) -> None:
    paris, *others = three(nodes, COLLAB_FORGET_AFTER="6s")
    for node in others:
        node.kill()
        nodes.all.remove(node)
    paris.wait_for(r"they are forgotten \(collab forget, or COLLAB_FORGET_AFTER\)")
    paris.wait_for_rounds(2, "paris")
    assert len(paris.pids()) == 1
    nodes.end_together()


def test_one_of_two_sites_dies_and_comes_back(nodes: Nodes) -> None:
    paris = nodes.start("paris", "--max-restarts=3", conf="is_host=1")
    rome = nodes.start("rome", "--max-restarts=3", conf="is_host=0")
    paris.wait_for_rounds(2, "paris", "rome")
    rome.kill()
    paris.wait_for_steps(100)
    assert not paris.rounds("paris"), "half of the swarm moved the anchor"
    nodes.all.remove(rome)
    again = nodes.start("rome", conf="is_host=0")
    again.wait_for_rounds(2, "paris", "rome")
    assert len(paris.pids()) == 1
    nodes.end_together()


def test_a_fourth_joins_leaves_on_sigterm_and_joins_again(nodes: Nodes) -> None:
    paris, rome, oslo = three(nodes, **LARGE, **WAN)
    for _ in range(2):
        lima = nodes.start("lima", nnodes="3:4", conf="is_host=0", **LARGE, **WAN)
        lima.wait_for_rounds(2, "paris", "rome", "oslo", "lima")
        lima.process.send_signal(signal.SIGTERM)
        lima.process.wait(PATIENCE)
        assert "leaves the swarm, because it was asked to end (SIGTERM)" in lima.output
        paris.wait_for_rounds(2, "paris", "rome", "oslo")
        assert re.search(r"lima is no longer a member: left: it was asked to end", paris.output)
        nodes.all.remove(lima)
    assert all(len(node.pids()) == 1 for node in (paris, rome, oslo))
    nodes.end_together()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_all_processes_of_a_site_are_asked_at_once(nodes: Nodes, number: signal.Signals) -> None:
    """As systemd, a shutdown and a closed terminal do: torchrun then passes on to its workers what they have had. Those
    of a DataLoader are asked too, and go on loading."""
    paris = nodes.start("paris", conf="is_host=1")
    rome = nodes.start("rome", conf="is_host=0", TEST_LOADER="1")
    paris.wait_for_rounds(2, "paris", "rome")
    for pid in descendants(rome.process.pid):
        os.kill(pid, number)
    rome.process.wait(PATIENCE)
    last = rome.rounds("paris", "rome")[-1]
    assert f"leaves the swarm, because it was asked to end ({number.name})" in rome.output
    paris.wait_for_rounds(2, "paris")
    assert paris.rounds("paris", "rome")[-1] == last
    assert f"rome is no longer a member: left: it was asked to end ({number.name})" in paris.output
    nodes.all.remove(rome)
    nodes.end_together()


def test_a_site_whose_last_round_is_far_away_leaves_without_it(nodes: Nodes) -> None:
    paris = nodes.start("paris", conf="is_host=1", COLLAB_SYNC_EVERY="100000")
    rome = nodes.start("rome", conf="is_host=0", COLLAB_SYNC_EVERY="100000")
    rome.wait_for_steps(50)
    rome.process.send_signal(signal.SIGTERM)
    rome.process.wait(PATIENCE)
    assert "[round.none-in-time]" in rome.output
    paris.wait_for(r"rome is no longer a member: left: it was asked to end \(SIGTERM\)")
    nodes.all.remove(rome)
    nodes.stop_training()
    paris.join()
    assert paris.rounds("paris"), "it goes on by itself"


def test_a_site_of_several_hosts_leaves_with_its_next_round(nodes: Nodes) -> None:
    paris = nodes.start("paris", nnodes="3", conf="is_host=1")
    hosts = [nodes.start("rome", nnodes="3", conf="is_host=0", TEST_HOST=f"rome-{host}") for host in range(2)]
    paris.wait_for_rounds(2, "paris", "rome")
    for host in hosts:
        host.process.send_signal(signal.SIGTERM)
    for host in hosts:
        host.process.wait(PATIENCE)
        assert "[rank" not in host.output, "no rank failed"
        nodes.all.remove(host)
    told = "".join(host.output for host in hosts)
    assert told.count("leaves the swarm, because it was asked to end (SIGTERM)") == 1
    paris.wait_for_rounds(2, "paris")
    assert "rome is no longer a member: left: it was asked to end (SIGTERM)" in paris.output
    nodes.end_together()


@pytest.mark.timeout(480 + SOAK_SECONDS)
def test_sites_come_and_go_for_long(nodes: Nodes) -> None:
    """COLLAB_SOAK_SECONDS (`ci/soak.sh`: ten minutes) of sites that join, leave in good order, or are killed."""
    seconds = SOAK_SECONDS
    paris, rome, oslo = three(nodes, **GPT2)
    chance = random.Random()
    begun = time.monotonic()
    changes = 0
    for number in itertools.count():
        if time.monotonic() - begun > seconds and changes >= 4:  # one that left and one that was killed, at least
            break
        lima = nodes.start("lima", nnodes="3:4", conf="is_host=0", **GPT2)
        lima.wait_for_rounds(1, "paris", "rome", "oslo", "lima")
        time.sleep(chance.random() * seconds / 20)
        if number % 2:
            lima.kill()
        else:
            lima.process.send_signal(signal.SIGTERM)
            lima.process.wait(PATIENCE)
        nodes.all.remove(lima)
        changes += 2
        paris.wait_for_rounds(1, "paris", "rome", "oslo")
    nodes.end_together(paris, rome, oslo)
    for node in (paris, rome, oslo):
        assert len(node.pids()) == 1, f"{node.name} was restarted"
        trained = 5 * int(re.findall(r"ended step (\d+)", node.output)[-1])
        assert rounds_told(nodes, node.name)[-1]["samples"] == trained, "each sample counts once"
    took = time.monotonic() - begun
    rounds = rounds_alike(nodes, "paris", "rome", "oslo")
    print(f"{changes} joins and leaves and {rounds} rounds in {took:.0f} s")
    assert rounds >= changes
