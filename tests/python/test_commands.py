"""What the tests say of processes is what these have written."""

from __future__ import annotations

import subprocess
import sys
import tempfile

from commands import PATIENCE, written

LINES = 20_000
WRITER = f"""
import os, sys
for number in range({LINES}):
    os.write(1, b"line %d\\n" % number)
    if number == {LINES // 2}:
        sys.stdin.read(1)
"""


def test_reading_while_a_process_writes_loses_nothing() -> None:
    with tempfile.TemporaryFile("w+") as output:
        with subprocess.Popen([sys.executable, "-c", WRITER], stdin=subprocess.PIPE, stdout=output) as writer:
            seen = [written(output), written(output)]
            assert writer.stdin is not None
            writer.stdin.close()
            while writer.poll() is None:
                seen.append(written(output))
            assert writer.wait(PATIENCE) == 0
        whole = written(output)
    assert whole.splitlines() == [f"line {number}" for number in range(LINES)]
    assert all(whole.startswith(part) for part in seen)
