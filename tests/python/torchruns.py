"""`torchrun --rdzv-backend=collab` as real processes on 127.0.0.1, each a node of one test."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from commands import PATIENCE, bare_environment, written
from forks import start
from ranks import SCRIPTS, free_port

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "COLLAB_SYNC_EVERY": "10",
    "COLLAB_HEARTBEAT": "200ms",
    "COLLAB_LINK_GRACE": "4s",  # a busy machine may leave a process without a processor for a second or two
    "COLLAB_JOIN_TIMEOUT": "60s",
    "COLLAB_ROUND_TIMEOUT": "60s",
    "COLLAB_LINGER": "30s",
}


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

    def __init__(
        self,
        name: str,
        command: list[str],
        environment: dict[str, str],
        common: dict[str, str] = ENVIRONMENT,
        folder: Path | None = None,
        number: int = 0,
    ) -> None:
        self.name = name
        self._output = tempfile.TemporaryFile("w+")  # noqa: SIM115
        python, *arguments = command
        assert python == sys.executable, command
        whole = {**bare_environment(), **common, **environment}
        self.process = start(arguments, whole, self._output, self._output, number, folder)

    @property
    def output(self) -> str:
        return written(self._output)

    def wait_for(self, what: str | Callable[[str], object], seconds: float = PATIENCE) -> None:
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

    def join(self, seconds: float = PATIENCE) -> str:
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
        self.script, self.argument = "torchrun.py", str(folder)
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
            str(SCRIPTS / self.script), self.argument,
        ]  # fmt: skip
        events = str(self.folder / f"{site}.jsonl")
        chosen = {"COLLAB_SITE": site, "COLLAB_EVENTS_FILE": events, **environment}
        node = Node(site, command, chosen, number=len(self.all))
        self.all.append(node)
        return node

    def start_pairs(self, *sites: str, **environment: str) -> list[Node]:
        """Sites of two ranks, of which the first is the host, until they have made two rounds together."""
        started = [
            self.start(
                site, "--max-restarts=10", nnodes=f"{len(sites)}:4", nproc=2, conf=f"is_host={int(site == sites[0])}",
                **environment,
            )
            for site in sites
        ]  # fmt: skip
        started[0].wait_for_rounds(2, *sites)
        return started

    def rounds(self, site: str) -> list[dict[str, Any]]:
        """The events of a site's rounds."""
        told = (json.loads(line) for line in (self.folder / f"{site}.jsonl").read_text().splitlines())
        return [event for event in told if event["event"] == "round"]

    def stop_training(self) -> None:
        self.flag("stop")

    def stop_together(self) -> None:
        """After the same round; with `stop_training` one may train a step more, once the others have left."""
        newest = max(int(of) for node in self.all for of in re.findall(r"round (\d+): .*? averaged", node.output))
        written = self.folder / "stop.new"
        written.write_text(str(newest + 3))
        written.rename(self.folder / "stop")

    def end_together(self, *nodes: Node) -> None:
        """These, or all, with one model."""
        self.stop_together()
        for node in nodes or self.all:
            node.join()
        assert len({node.digest() for node in nodes or self.all}) == 1

    def crash(self, site: str) -> None:
        told = self.flag(f"crash-{site}")
        deadline = time.monotonic() + PATIENCE
        while told.exists():
            assert time.monotonic() < deadline, f"{site} does not crash"
            time.sleep(0.05)
