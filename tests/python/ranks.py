"""Runs a script of tests/python/scripts as the ranks of a world, on 127.0.0.1.

The test's own process serves the store on a free port, as torchrun's agent does for its workers, so no port is ever
guessed. Every wait is bounded; ranks that are still there after it are killed and the test fails with their output.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import random
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
import torch.distributed as dist
import turns
from commands import PATIENCE, bare_environment, written
from forks import start

SCRIPTS = Path(__file__).parent / "scripts"


def free_port() -> int:
    """A port nobody has, for who must name it before it is taken: none of those that outgoing connections get."""
    for port in random.sample(range(20000, 30000), 100):
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
    raise OSError("none of a hundred ports between 20000 and 30000 is free")


@dataclass
class Finished:
    """One rank that has ended."""

    status: int
    output: str  # stdout and stderr, interleaved


class Ranks:
    """The running ranks of one world."""

    def __init__(self, script: str, arguments: Sequence[str], environments: Sequence[dict[str, str]]) -> None:
        self.store = dist.TCPStore(
            "127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=120)
        )
        self.outputs = [tempfile.TemporaryFile("w+") for _ in environments]  # noqa: SIM115
        self.processes = []
        for rank, (environment, output) in enumerate(zip(environments, self.outputs, strict=True)):
            whole = self._environment(rank, len(environments), environment)
            self.processes.append(start([str(SCRIPTS / script), *arguments], whole, output, output, rank))

    def _environment(self, rank: int, size: int, extra: dict[str, str]) -> dict[str, str]:
        kept = bare_environment()
        return {
            **kept,
            "OMP_NUM_THREADS": "1",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.store.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(size),
            "COLLAB_JOIN_TIMEOUT": "60s",
            "COLLAB_ROUND_TIMEOUT": "60s",
            "COLLAB_LINGER": "30s",
            **extra,
        }

    def signal(self, rank: int, number: signal.Signals) -> None:
        self.processes[rank].send_signal(number)

    def output(self, rank: int) -> str:
        return written(self.outputs[rank])

    def wait_for_line(self, rank: int, text: str, seconds: float = PATIENCE) -> None:
        deadline = time.monotonic() + seconds
        while text not in self.output(rank):
            assert self.processes[rank].poll() is None, f"rank {rank} ended before {text!r}:\n{self.output(rank)}"
            assert time.monotonic() < deadline, f"rank {rank} never said {text!r}:\n{self.output(rank)}"
            time.sleep(0.05)

    def join(self, seconds: float = PATIENCE) -> list[Finished]:
        deadline = time.monotonic() + seconds
        late = []
        for rank, process in enumerate(self.processes):
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                late.append(rank)
        self.kill()
        finished = [Finished(p.returncode, self.output(rank)) for rank, p in enumerate(self.processes)]
        assert not late, f"ranks {late} were still running after {seconds} s\n" + listing(finished)
        return finished

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for output in self.outputs:
            output.close()


def listing(finished: Sequence[Finished]) -> str:
    return "\n".join(f"--- rank {rank} ended with {f.status}\n{f.output}" for rank, f in enumerate(finished))


def run_ranks(
    script: str,
    sites: Sequence[str],
    *arguments: str,
    environment: dict[str, str] | None = None,
    seconds: float = PATIENCE,
) -> list[Finished]:
    """One world: rank i stands at sites[i]."""
    environments = [{"COLLAB_SITE": site, **(environment or {})} for site in sites]
    with Ranks(script, arguments, environments) as ranks:
        return ranks.join(seconds)


def run_once(folders: pytest.TempPathFactory, name: str, run: Callable[[], Sequence[Finished]]) -> list[Finished]:
    """What the first worker of `pytest -n` that asks for it runs serves all, who share the tests of a file."""
    folder = folders.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with turns.lock(folder / f"{name}.lock", fcntl.LOCK_EX):
        told = folder / f"{name}.json"
        if not told.exists():
            text = json.dumps([dataclasses.asdict(rank) for rank in run()])
            told.write_text(text)
    return [Finished(**rank) for rank in json.loads(told.read_text())]


def expect_success(finished: Sequence[Finished]) -> list[Finished]:
    assert all(f.status == 0 for f in finished), listing(finished)
    return list(finished)


def start_site(
    script: str,
    arguments: Sequence[str],
    site: str,
    index: int,
    coordinator: str,
    events: Path,
    ranks: int = 1,
    **environment: str,
) -> Ranks:
    """A site that is a world of its own, with a round every 20 steps."""
    variables = {
        "COLLAB_SITE": site,
        "COLLAB_SITE_INDEX": str(index),
        "COLLAB_COORDINATOR": coordinator,
        "COLLAB_SYNC_EVERY": "20",
        "COLLAB_EVENTS_FILE": str(events),
        **environment,
    }
    return Ranks(script, arguments, [variables] * ranks)


def run_worlds(folder: Path, coordinator: str, environments: dict[str, list[dict[str, str]]]) -> dict[str, Finished]:
    """worlds.py in sites that are worlds of their own, each with a folder of its own; gives their leaders."""
    worlds = {}
    try:
        for site, ranks in environments.items():
            out = folder / site
            out.mkdir()
            common = {
                "COLLAB_SITE": site,
                "COLLAB_COORDINATOR": coordinator,
                "COLLAB_SYNC_EVERY": "4",
                "COLLAB_EVENTS_FILE": str(out / "events.jsonl"),
            }
            worlds[site] = Ranks("worlds.py", [str(out)], [{**common, **rank} for rank in ranks])
        return {site: expect_success(world.join())[0] for site, world in worlds.items()}
    finally:
        for world in worlds.values():
            world.kill()


def wait_until(holds: Callable[[], bool], seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s"
        time.sleep(0.05)
