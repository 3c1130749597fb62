"""Collectives over the world when sites die or are elsewhere: real torchruns of `--rdzv-backend=collab`."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import PATIENCE, new_token
from ranks import SCRIPTS, Ranks, expect_success
from torchruns import ENVIRONMENT, Node, Nodes

pytestmark = pytest.mark.slow

COLLAB = [sys.executable, "-m", "torch_collab.cli"]
GRACE = float(ENVIRONMENT["COLLAB_LINK_GRACE"].removesuffix("s"))
SLACK = 20.0  # of a busy machine; what else would end the wait takes a minute


def three(nodes: Nodes, **environment: str) -> dict[str, Node]:
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


def survive(nodes: Nodes, made: dict[str, Node], killed: float, limit: float) -> None:
    for node in made.values():
        output = node.join()
        assert output.count("survived") == len(came_out(node)), output
        assert all(when - killed < limit + SLACK for when in came_out(node)), (killed, output)
        nodes.all.remove(node)


@pytest.mark.parametrize("call", ["sum", "barrier"])
def test_a_site_dies_while_the_others_are_in_a_call(nodes: Nodes, call: str) -> None:
    made = three(nodes, TEST_WHAT="lose_a_site", TEST_VICTIM="rome", TEST_CALL=call)
    rome = made.pop("rome")
    rome.wait_for(lambda output: output.count("stands by") == 2)
    made["paris"].wait_for("goes into the call")
    made["oslo"].wait_for(lambda output: output.count("goes into the call") == 2)
    rome.kill()
    survive(nodes, made, time.time(), GRACE + 0.2)


def test_a_site_dies_before_the_others_make_a_call(nodes: Nodes) -> None:
    hold = nodes.flag("hold")
    made = three(nodes, TEST_WHAT="lose_a_site", TEST_VICTIM="rome", TEST_CALL="sum")
    rome = made.pop("rome")
    rome.wait_for(lambda output: output.count("stands by") == 2)
    rome.kill()
    killed = time.time()
    hold.unlink()
    survive(nodes, made, killed, GRACE + 0.2)


def test_the_site_of_the_coordinator_dies_while_the_others_are_in_a_call(nodes: Nodes) -> None:
    made = three(nodes, TEST_WHAT="lose_a_site", TEST_VICTIM="paris", TEST_CALL="sum")
    paris = made.pop("paris")
    paris.wait_for("stands by")
    for node in made.values():
        node.wait_for(lambda output: output.count("goes into the call") == 2)
    paris.kill()
    survive(nodes, made, time.time(), 2 * GRACE + 0.2)


@pytest.mark.parametrize(("first", "second"), [("25", "35"), ("35", "25")])
def test_a_call_in_one_site_while_another_waits_in_a_round(nodes: Nodes, first: str, second: str) -> None:
    nodes.script = "worldwide.py"
    common = {"TEST_WHAT": "uneven", "COLLAB_STRAGGLER_GRACE": "2s"}
    paris = nodes.start("paris", conf="is_host=1", TEST_STEPS=first, **common)
    rome = nodes.start("rome", conf="is_host=0", TEST_STEPS=second, **common)
    told = "".join(node.join() for node in (paris, rome))
    assert "is in all_reduce (sum) of 1000 Float [1000], which waits for" in told


def test_uneven_steps_before_a_barrier_do_not_wait_for_each_other() -> None:
    # With a heartbeat of 6 s five of them are half a minute.
    common = {"COLLAB_SYNC_EVERY": "8", "COLLAB_HEARTBEAT": "6s", "COLLAB_LINK_GRACE": "20s"}
    environments = [{"COLLAB_SITE": s, "TEST_STEPS": n, **common} for s, n in (("paris", "7"), ("rome", "10"))]
    with Ranks("uneven.py", ["4"], environments) as ranks:
        finished = expect_success(ranks.join())
    for rank in finished:
        seconds = [float(text) for text in re.findall(r"barrier \d after ([\d.]+) s", rank.output)]
        assert len(seconds) == 4 and all(each < 25 for each in seconds[1:]), rank.output
    told = "".join(rank.output for rank in finished)
    assert "which waits for rome" in told or "which waits for paris" in told, told
    assert told.count("which waits for paris") == 0, "rome stands in no barrier while paris waits in a round"


@pytest.mark.wan
@pytest.mark.usefixtures("allowed")
def test_all_but_one_can_only_dial_out_and_links_are_encrypted(tmp_path: Path) -> None:
    token = new_token()
    done = subprocess.run(
        [
            *COLLAB, "lab", "--sites", "paris:100", "rome:100,nat", "oslo:100,nat", "--rtt", "20",
            "--env", "TEST_WHAT=meet", "--env", "OMP_NUM_THREADS=1", "--env", f"COLLAB_TOKEN={token}", "--",
            sys.executable, "-m", "torch.distributed.run", "--nnodes=3", "--node-rank={index}", "--nproc-per-node=1",
            "--master-addr=paris", "--master-port=29500", str(SCRIPTS / "worldwide.py"), str(tmp_path),
        ],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("met oslo paris rome") == 3, done.stdout
