"""`torchrun --rdzv-backend=collab`, with real torchrun processes on 127.0.0.1."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ranks import SCRIPTS, free_port

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
    "COLLAB_SYNC_EVERY": "10",
    "COLLAB_HEARTBEAT": "200ms",
    "COLLAB_LINK_GRACE": "2s",
    "COLLAB_JOIN_TIMEOUT": "60s",
    "COLLAB_ROUND_TIMEOUT": "60s",
    "COLLAB_LINGER": "30s",
}
KEY = {"COLLAB_TOKEN": "k" * 40}


def descendants(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                parents.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for each in found:
        found.extend(parents.get(each, []))
    return found


class Node:
    """One torchrun and what it said."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        self.name = name
        self._output = tempfile.TemporaryFile("w+")  # noqa: SIM115
        kept = {key: value for key, value in os.environ.items() if not key.startswith("COLLAB_")}
        self.process = subprocess.Popen(
            command,
            env={**kept, **ENVIRONMENT, **environment},
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def output(self) -> str:
        self._output.seek(0)
        return self._output.read()

    def wait_for(self, what: str | Callable[[str], object], seconds: float = 60) -> None:
        """Until a regular expression is found, or a condition on the output holds."""
        deadline = time.monotonic() + seconds
        while True:
            output = self.output
            if re.search(what, output) if isinstance(what, str) else what(output):
                return
            assert self.process.poll() is None, f"{self.name} ended before {what}:\n{output}"
            assert time.monotonic() < deadline, f"{self.name} never said {what}:\n{output}"
            time.sleep(0.05)

    def wait_for_rounds(self, more: int, *members: str) -> None:
        """Until so many more rounds of exactly these members have been committed."""
        wanted = len(self.rounds(*members)) + more
        self.wait_for(lambda _: len(self.rounds(*members)) >= wanted)

    def rounds(self, *members: str) -> list[str]:
        found = re.findall(r"collab\[\S+?\]: (round \d+): (.*?) averaged", self.output)
        return [number for number, who in found if set(who.split(", ")) == set(members)]

    def wait_for_steps(self, more: int) -> None:
        """Until a worker here has trained so many more steps, rounds or not."""
        wanted = self.step() + more
        self.wait_for(lambda _: self.step() >= wanted)

    def step(self) -> int:
        return int(([0, *re.findall(r"\] step (\d+) round", self.output)])[-1])

    def starts(self) -> list[str]:
        return re.findall(r"started pid \d+ (rank .*)", self.output)

    def pids(self) -> list[str]:
        return re.findall(r"started pid (\d+)", self.output)

    def digest(self) -> str:
        return re.findall(r"ended step \d+ digest (\w+)", self.output)[-1]

    def join(self, seconds: float = 60) -> str:
        """Waits for a clean end and gives the output."""
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} is still running:\n{self.output}") from None
        output = self.output
        assert status == 0, f"{self.name} ended with {status}:\n{output}"
        assert "Traceback" not in output and "exit barrier" not in output, output
        return output

    def kill(self) -> None:
        """The machine is gone: agent and workers at once."""
        for pid in descendants(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


class Nodes:
    """The torchruns of one test, at one endpoint."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.script = "torchrun.py"
        self.all: list[Node] = []

    def flag(self, name: str) -> Path:
        """A file the workers look at."""
        path = self.folder / name
        path.touch()
        return path

    def start(
        self, site: str, *flags: str, nnodes: str = "2", nproc: int = 1, conf: str = "", **environment: str
    ) -> Node:
        command = [
            sys.executable, "-m", "torch.distributed.run", "--rdzv-backend=collab", f"--nnodes={nnodes}",
            f"--rdzv-endpoint=127.0.0.1:{self.port}", f"--nproc-per-node={nproc}", "--rdzv-id=test",
            "--monitor-interval=0.1",
            "--rdzv-conf=last_call_timeout=1,join_timeout=60" + ("," + conf if conf else ""), *flags,
            str(SCRIPTS / self.script), str(self.folder),
        ]  # fmt: skip
        events = str(self.folder / f"{site}.jsonl")
        node = Node(site, command, {"COLLAB_SITE": site, "COLLAB_EVENTS": events, **environment})
        self.all.append(node)
        return node

    def stop_training(self) -> None:
        self.flag("stop")

    def crash(self, site: str) -> None:
        told = self.flag(f"crash-{site}")
        deadline = time.monotonic() + 30
        while told.exists():
            assert time.monotonic() < deadline, f"{site} does not crash"
            time.sleep(0.05)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    made = Nodes(tmp_path)
    try:
        yield made
    finally:
        for node in made.all:
            node.kill()


@pytest.mark.slow
def test_two_nodes_are_one_world_and_a_third_joins_late(nodes: Nodes) -> None:
    paris, rome = nodes.start("paris", nnodes="2:3"), nodes.start("rome", nnodes="2:3")
    paris.wait_for_rounds(2, "paris", "rome")
    starts = sorted(paris.starts() + rome.starts())
    assert starts == ["rank 0 of 2 start cohort restart 0", "rank 1 of 2 start cohort restart 0"]
    oslo = nodes.start("oslo", nnodes="2:3")
    oslo.wait_for_rounds(2, "paris", "rome", "oslo")
    assert oslo.starts() == ["rank 0 of 1 start lone restart 0"]
    nodes.stop_training()
    for node in nodes.all:
        node.join()
    assert len(paris.pids()) == len(rome.pids()) == 1
    assert len({node.digest() for node in nodes.all}) == 1


@pytest.mark.slow
def test_a_crashed_worker_comes_back_alone_and_a_failed_site_goes_on_coordinating(nodes: Nodes) -> None:
    paris = nodes.start("paris", conf="is_host=1")
    rome = nodes.start("rome", "--max-restarts=1", conf="is_host=0")
    paris.wait_for_rounds(2, "paris", "rome")
    nodes.crash("rome")
    rome.wait_for("start lone restart 1")
    rome.wait_for_rounds(2, "paris", "rome")
    assert len(paris.pids()) == 1, "the healthy worker was restarted"
    nodes.crash("paris")  # and has no restart left
    paris.wait_for("the workers here are done; the coordinator stays")
    rome.wait_for_steps(100)  # alone, half of the swarm moves no anchor
    assert len(rome.pids()) == 2
    nodes.stop_training()
    rome.join()
    assert paris.process.wait(30) == 1, "torchrun tells of the failure"


@pytest.mark.slow
def test_the_endpoints_node_dies_and_the_other_trains_on(nodes: Nodes) -> None:
    short = {"COLLAB_JOIN_TIMEOUT": "8s"}
    paris = nodes.start("paris", conf="is_host=1", **short)
    rome = nodes.start("rome", "--max-restarts=1", conf="is_host=0", **short)
    rome.wait_for_rounds(2, "paris", "rome")
    paris.kill()
    rome.wait_for_steps(100)  # alone, half of the swarm moves no anchor
    assert len(rome.pids()) == 1
    nodes.crash("rome")
    rome.wait_for("start lone restart 1")
    rome.wait_for_steps(100)
    nodes.stop_training()
    assert "training goes on without it" in rome.join()


@pytest.mark.slow
def test_a_site_needs_only_its_own_store_after_init(nodes: Nodes) -> None:
    hold = nodes.flag("hold")
    nodes.flag("groups")
    paris, rome = nodes.start("paris", conf="is_host=1"), nodes.start("rome", nproc=2, conf="is_host=0")
    paris.wait_for("started pid")
    rome.wait_for(lambda output: output.count("started pid") == 2)
    paris.kill()
    hold.unlink()
    assert rome.join().count("groups are made") == 2


@pytest.mark.slow
def test_the_endpoints_node_is_started_again(nodes: Nodes) -> None:
    paris, rome = nodes.start("paris", conf="is_host=1", **KEY), nodes.start("rome", conf="is_host=0", **KEY)
    rome.wait_for_rounds(2, "paris", "rome")
    paris.kill()
    again = nodes.start("paris", conf="is_host=1", **KEY)
    again.wait_for("is served again, here")
    rome.wait_for_rounds(2, "paris", "rome")
    assert again.starts() == ["rank 0 of 1 start lone restart 0"]
    assert len(rome.pids()) == 1
    nodes.stop_training()
    rome.join()
    again.join()
    assert again.digest() == rome.digest()


@pytest.mark.slow
def test_two_nodes_of_one_site_come_back_together(nodes: Nodes) -> None:
    first = nodes.start("paris", "--max-restarts=1", nnodes="3", conf="is_host=1", **KEY)
    second = nodes.start("paris", "--max-restarts=1", nnodes="3", conf="is_host=0", **KEY)
    rome = nodes.start("rome", nnodes="3", conf="is_host=0", **KEY)
    rome.wait_for_rounds(2, "paris", "rome")
    assert rome.starts() == ["rank 2 of 3 start cohort restart 0"]
    nodes.crash("paris")  # one of its two workers; the other fails with it, as DDP does
    for node in (first, second):
        node.wait_for(r"rank \d of 2 start lone restart 1")
    rome.wait_for_rounds(2, "paris", "rome")
    nodes.stop_training()
    rome.join()
    for node in (first, second):
        assert node.process.wait(60) == 0, node.output
    assert first.digest() == second.digest() == rome.digest()


@pytest.mark.slow
def test_a_node_without_the_key_ends_both_in_words(nodes: Nodes) -> None:
    paris, rome = nodes.start("paris", conf="is_host=1", **KEY), nodes.start("rome", conf="is_host=0")
    assert paris.process.wait(40) == rome.process.wait(40) == 1
    assert "was signed with a swarm key, and this node has none: give it COLLAB_TOKEN" in rome.output
    assert "node rome has neither a swarm key nor certificates" in paris.output
    assert not paris.pids() and not rome.pids()
