"""Sites that die, stop, leave and come back while the others train on: real torchruns of `--rdzv-backend=collab`."""

from __future__ import annotations

import os
import random
import re
import signal
import time

import pytest
from test_torchrun import Node, Nodes, nodes  # noqa: F401  # a fixture

pytestmark = pytest.mark.slow


def three(nodes: Nodes, *flags: str, **environment: str) -> tuple[Node, Node, Node]:  # noqa: F811
    names = ("paris", "rome", "oslo")
    # The endpoint's is the first: its agent coordinates.
    made = []
    for name in names:
        conf = f"is_host={int(name == 'paris')}"
        made.append(nodes.start(name, "--max-restarts=100", *flags, nnodes="3:4", conf=conf, **environment))
    made[0].wait_for_rounds(2, *names)
    return made[0], made[1], made[2]


def worker(node: Node) -> int:
    return int(node.pids()[-1])


def end_alike(nodes: Nodes) -> None:  # noqa: F811
    nodes.stop_training()
    for node in nodes.all:
        node.join()
    assert len({node.digest() for node in nodes.all}) == 1


def test_a_worker_is_killed_at_random_moments_and_returns(nodes: Nodes) -> None:  # noqa: F811
    paris, rome, oslo = three(nodes)
    chance = random.Random()
    kills = int(os.environ.get("COLLAB_TEST_KILLS", "5"))
    for number in range(kills):
        time.sleep(chance.random() * 0.5)  # of a round of about 0.3 s
        steps = paris.step()
        os.kill(worker(rome), signal.SIGKILL)
        rome.wait_for(f"start lone restart {number + 1}")
        paris.wait_for_rounds(2, "paris", "rome", "oslo")
        assert paris.step() > steps
        assert len(paris.pids()) == len(oslo.pids()) == 1, "a healthy worker was restarted"
    end_alike(nodes)
    # What each committed round led to was the same everywhere.
    told = {}
    for node in (paris, rome, oslo):
        for event in (nodes.folder / f"{node.name}.jsonl").read_text().splitlines():
            found = re.search(r'"event":"round".*"round":(\d+).*"digest":"(\w+)"', event)
            if found:
                assert told.setdefault(found[1], found[2]) == found[2], f"round {found[1]} differs at {node.name}"
    assert len(told) > 2 * kills


def test_the_coordinators_machine_dies_and_the_others_go_on(nodes: Nodes) -> None:  # noqa: F811
    paris, rome, oslo = three(nodes)
    paris.kill()
    rome.wait_for_rounds(2, "rome", "oslo")
    assert len(rome.pids()) == len(oslo.pids()) == 1
    nodes.all.remove(paris)
    end_alike(nodes)


def test_a_short_pause_is_waited_for(nodes: Nodes) -> None:  # noqa: F811
    environment = {"COLLAB_LINK_GRACE": "20s", "COLLAB_STRAGGLER_GRACE": "20s"}
    paris, rome, _ = three(nodes, **environment)
    os.kill(worker(rome), signal.SIGSTOP)
    time.sleep(5)
    os.kill(worker(rome), signal.SIGCONT)
    paris.wait_for_rounds(2, "paris", "rome", "oslo")
    assert not paris.rounds("paris", "oslo"), "nobody was left out"
    assert "is moved onto the new anchor" not in rome.output
    end_alike(nodes)


def test_a_long_pause_is_not_waited_for_and_nothing_trained_is_lost(nodes: Nodes) -> None:  # noqa: F811
    paris, rome, _ = three(nodes)
    os.kill(worker(rome), signal.SIGSTOP)
    paris.wait_for_rounds(3, "paris", "oslo")
    os.kill(worker(rome), signal.SIGCONT)
    paris.wait_for_rounds(2, "paris", "rome", "oslo")
    assert len(rome.pids()) == 1, "it came back by itself"
    end_alike(nodes)


def test_of_two_sites_one_dies_and_comes_back(nodes: Nodes) -> None:  # noqa: F811
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
    end_alike(nodes)


def test_a_fourth_joins_leaves_on_sigterm_and_joins_again(nodes: Nodes) -> None:  # noqa: F811
    paris, rome, oslo = three(nodes)
    for _ in range(2):
        lima = nodes.start("lima", nnodes="3:4", conf="is_host=0")
        lima.wait_for_rounds(2, "paris", "rome", "oslo", "lima")
        lima.process.send_signal(signal.SIGTERM)
        lima.process.wait(40)
        assert "leaves the swarm, because it was asked to end (SIGTERM)" in lima.output
        paris.wait_for_rounds(2, "paris", "rome", "oslo")
        assert re.search(r"lima is no member any more: left: it was asked to end", paris.output)
        nodes.all.remove(lima)
    assert all(len(node.pids()) == 1 for node in (paris, rome, oslo))
    end_alike(nodes)
