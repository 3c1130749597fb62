"""`collab` and other programs as processes: run to their end, or while a test goes on."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Self

from forks import bare_environment, start

PATIENCE = 120.0  # seconds for what must come: who takes longer hangs, however busy the machine is


def written(output: IO[str]) -> str:
    """What processes have written to a file that was opened for them, so far.

    Read at a place of its own: with seek() and read() the place at which they write would move, for they share it, and
    what they say then would stand over what they have said.
    """
    size = os.fstat(output.fileno()).st_size
    return os.pread(output.fileno(), size, 0).decode(errors="replace")


class Started:
    """A Python program (forks.py), what it writes and its errors apart."""

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], number: int = 0, folder: Path | None = None
    ) -> None:
        self._output, self._errors = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = start(arguments, environment, self._output, self._errors, number, folder)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        self.process.wait(timeout)
        return written(self._output), written(self._errors)

    @property
    def returncode(self) -> int | None:
        return self.process.returncode

    def kill(self) -> None:
        self.process.kill()


def collab(*arguments: str, folder: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    whole = {**bare_environment(), "OMP_NUM_THREADS": "1", **environment}
    started = Started(["-m", "torch_collab.cli", *arguments], whole, folder=folder)
    try:
        output, errors = started.communicate(PATIENCE)
    finally:
        started.kill()
    return subprocess.CompletedProcess(arguments, started.process.wait(), output, errors)


def new_token() -> str:
    return collab("token", "--print").stdout.split()[-1]


class Piped:
    """A process with what the tests use of one that was started with its output in a pipe."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        reader, writer = os.pipe()
        with open(writer, "w") as output:
            self._process = start(arguments, environment, output, output)
        self.stdout = open(reader)  # noqa: SIM115
        self.pid = self._process.pid
        self.poll, self.wait = self._process.poll, self._process.wait
        self.kill, self.send_signal = self._process.kill, self._process.send_signal

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """What nobody has read yet; it is to end within so many seconds of the end of its output."""
        rest = self.stdout.read()
        self.wait(timeout)
        return rest, None


class Running:
    """`collab` with these arguments, killed at the end if it still runs."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        whole = {**kept, "OMP_NUM_THREADS": "1", **environment}
        self.process = Piped(["-m", "torch_collab.cli", *arguments], whole)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        self.process.stdout.close()


class Coordinator(Running):
    """`collab coordinator` on a free port."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        super().__init__("coordinator", "--listen", "127.0.0.1:0", *arguments, **environment)
        self.first_line = ""
        self.before = ""  # what it said before that line
        while " at " not in self.first_line:
            self.before += self.first_line
            self.first_line = self.process.stdout.readline()
            assert self.first_line, "the coordinator ended before it said where it is"
        found = re.search(r" at (127\.0\.0\.1:\d+)", self.first_line)
        assert found, self.first_line
        self.address = found[1]
