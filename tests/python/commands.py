"""`collab` as a process: run to its end, or while a test goes on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
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


def collab(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    whole = {**bare_environment(), "OMP_NUM_THREADS": "1", **environment}
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = start(["-m", "torch_collab.cli", *arguments], whole, output, errors)
        try:
            status = process.wait(PATIENCE)
        finally:
            process.kill()
        return subprocess.CompletedProcess(process.args, status, written(output), written(errors))


class Running:
    """`collab` with these arguments, killed at the end if it still runs."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "torch_collab.cli", *arguments],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


class Coordinator(Running):
    """`collab coordinator` on a free port."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        super().__init__("coordinator", "--listen", "127.0.0.1:0", *arguments, **environment)
        assert self.process.stdout is not None
        self.first_line = ""
        self.before = ""  # what it said before that line
        while " at " not in self.first_line:
            self.before += self.first_line
            self.first_line = self.process.stdout.readline()
            assert self.first_line, "the coordinator ended before it said where it is"
        found = re.search(r" at (127\.0\.0\.1:\d+)", self.first_line)
        assert found, self.first_line
        self.address = found[1]
