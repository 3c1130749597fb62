"""One run of `collab lab` whose sites train, and what they tell of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from commands import PATIENCE, new_token
from torchruns import ENVIRONMENT

# The lab's clock is the machine's: faults come, and packets are due, whether or not those who wait for them have run.
BY_THE_CLOCK = "the emulated network keeps real time, and the machine decides how far the sites have come by then"
COLLAB = [sys.executable, "-m", "torch_collab.cli"]


class Lab:
    """Runs the command in each site, encrypted; a site's events are in FOLDER/SITE.jsonl."""

    def __init__(
        self, folder: Path, network: Sequence[str], command: Sequence[str], environment: dict[str, str]
    ) -> None:
        self.folder = folder
        self._output = (folder / "output").open("w+")
        token = new_token()
        given = {**ENVIRONMENT, "COLLAB_TOKEN": token, "COLLAB_EVENTS_FILE": f"{folder}/{{site}}.jsonl", **environment}
        variables = (part for name, value in given.items() for part in ("--env", f"{name}={value}"))
        self.begun = time.time()
        self.process = subprocess.Popen(
            [*COLLAB, "lab", *network, *variables, "--", *command],
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def output(self) -> str:
        return (self.folder / "output").read_text()

    def events(self, site: str, kind: str) -> list[dict[str, Any]]:
        with contextlib.suppress(FileNotFoundError):
            told = map(json.loads, (self.folder / f"{site}.jsonl").read_text().splitlines())
            return [event for event in told if event["event"] == kind]
        return []

    def rounds(self, site: str, members: tuple[str, ...], since: float = 0) -> list[dict[str, Any]]:
        """Rounds of exactly these members that ended there after so many seconds of the lab."""
        return [
            event
            for event in self.events(site, "round")
            if set(event["members"]) == set(members) and event["t"] - self.begun > since
        ]

    def wait(self, what: str, holds: Callable[[], object], until: float) -> None:
        while not holds():
            assert self.process.poll() is None, f"ended before {what}:\n{self.output}"
            assert time.time() - self.begun < until, f"never {what}:\n{self.output}"
            time.sleep(0.2)

    def end(self) -> None:
        (self.folder / "stop").touch()
        self.process.wait(PATIENCE)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait(PATIENCE)
        self._output.close()


L = TypeVar("L", bound=Lab)


def killed_after(make: Callable[..., L]) -> Iterator[Callable[..., L]]:
    """For a fixture: what makes labs, each killed when the test is over."""
    made: list[L] = []

    def start(*arguments: Any, **variables: str) -> L:
        made.append(make(*arguments, **variables))
        return made[-1]

    yield start
    for lab in made:
        lab.kill()
