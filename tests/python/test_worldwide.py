"""Collectives over the world when sites die or are elsewhere: real torchruns of `--rdzv-backend=collab`."""

from __future__ import annotations

import re
import subprocess
import sys
import time

import pytest
from ranks import SCRIPTS
from test_torchrun import ENVIRONMENT, Node, Nodes, nodes  # noqa: F401  # a fixture

pytestmark = pytest.mark.slow

GRACE = float(ENVIRONMENT["COLLAB_LINK_GRACE"].removesuffix("s"))
SLACK = 5.0  # processes wait for the machine's processors, too


def three(nodes: Nodes, **environment: str) -> dict[str, Node]:  # noqa: F811
    nodes.script = "worldwide.py"
    made = {
        name: nodes.start(name, nnodes="3", nproc=ranks, conf=f"is_host={int(name == 'paris')}", **environment)
        for name, ranks in (("paris", 1), ("rome", 2), ("oslo", 2))
    }
    for node in made.values():
        node.wait_for("started pid")
    return made


def came_out(node: Node) -> list[float]:
    return [float(when) for when in re.findall(r"came out at ([\d.]+)", node.output)]


def survive(nodes: Nodes, made: dict[str, Node], killed: float, limit: float) -> None:  # noqa: F811
    for node in made.values():
        output = node.join()
        assert output.count("survived") == len(came_out(node)), output
        assert all(when - killed < limit + SLACK for when in came_out(node)), (killed, output)
        nodes.all.remove(node)


@pytest.mark.parametrize("call", ["sum", "barrier"])
def test_a_site_dies_while_the_others_are_in_a_call(nodes: Nodes, call: str) -> None:  # noqa: F811
    made = three(nodes, TEST_WHAT="lose_a_site", TEST_VICTIM="rome", TEST_CALL=call)
    rome = made.pop("rome")
    rome.wait_for(lambda output: output.count("stands by") == 2)
    made["paris"].wait_for("goes into the call")
    made["oslo"].wait_for(lambda output: output.count("goes into the call") == 2)
    rome.kill()
    survive(nodes, made, time.time(), GRACE + 0.2)


@pytest.mark.parametrize("call", ["sum", "barrier"])
def test_a_site_dies_before_the_others_make_a_call(nodes: Nodes, call: str) -> None:  # noqa: F811
    hold = nodes.flag("hold")
    made = three(nodes, TEST_WHAT="lose_a_site", TEST_VICTIM="rome", TEST_CALL=call)
    rome = made.pop("rome")
    rome.wait_for(lambda output: output.count("stands by") == 2)
    rome.kill()
    killed = time.time()
    hold.unlink()
    survive(nodes, made, killed, GRACE + 0.2)


def test_the_site_of_the_coordinator_dies_while_the_others_are_in_a_call(nodes: Nodes) -> None:  # noqa: F811
    made = three(nodes, TEST_WHAT="lose_a_site", TEST_VICTIM="paris", TEST_CALL="sum")
    paris = made.pop("paris")
    paris.wait_for("stands by")
    for node in made.values():
        node.wait_for(lambda output: output.count("goes into the call") == 2)
    paris.kill()
    survive(nodes, made, time.time(), 2 * GRACE + 0.2)


@pytest.mark.parametrize(("first", "second"), [("25", "35"), ("35", "25")])
def test_a_call_in_one_site_while_another_waits_in_a_round(nodes: Nodes, first: str, second: str) -> None:  # noqa: F811
    nodes.script = "worldwide.py"
    common = {"TEST_WHAT": "uneven", "COLLAB_STRAGGLER_GRACE": "2s"}
    paris = nodes.start("paris", conf="is_host=1", TEST_STEPS=first, **common)
    rome = nodes.start("rome", conf="is_host=0", TEST_STEPS=second, **common)
    for node in (paris, rome):
        node.join(90)
