"""Ten thousand openings that are not ours, at the port of a coordinator: it closes them, and serves who belongs."""

from __future__ import annotations

import contextlib
import random
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from commands import Coordinator, collab

pytestmark = pytest.mark.slow

OPENINGS = 10_000
HALF_OPEN = 300


def garbage(kind: int, chance: random.Random) -> bytes:
    return (
        chance.randbytes(chance.randrange(1, 300)),
        b"CLT1" + chance.randbytes(100),
        b"CLT1\x01\0\0\0" + chance.randbytes(100),  # our preface, then no frame of ours
        b"\x16\x03\x01" + chance.randbytes(100),  # TLS, up to there
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2p1\r\n",
        b"",  # a port scan
    )[kind]


def kilobytes(pid: int) -> int:
    return next(
        int(line.split()[1]) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmRSS" in line
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("encrypted", [False, True])
def test_malformed_openings_neither_crash_nor_stall_it(encrypted: bool) -> None:
    environment = {"COLLAB_TRANSPORT": "tcp"}
    if encrypted:
        made = subprocess.run([sys.executable, "-m", "torch_collab.cli", "token"], capture_output=True, text=True)
        environment["COLLAB_TOKEN"] = made.stdout.split()[-1]
    chance = random.Random(1)
    with Coordinator("--sites", "2", **environment) as coordinator, contextlib.ExitStack() as stack:
        host, _, port = coordinator.address.rpartition(":")
        at = (host, int(port))
        pid = coordinator.process.pid
        for _ in range(HALF_OPEN):  # and never a word
            stack.enter_context(socket.create_connection(at, timeout=20))
        assert collab("status", coordinator.address, **environment).returncode == 0
        before = kilobytes(pid)
        for number in range(OPENINGS - HALF_OPEN):
            with socket.create_connection(at, timeout=20) as stranger, contextlib.suppress(ConnectionError):
                what = garbage(number % 7, chance)
                stranger.sendall(what)
                stranger.shutdown(socket.SHUT_WR)
                while stranger.recv(4096):  # what it answers, until it closes
                    pass
        grown = kilobytes(pid) - before
        done = collab("status", coordinator.address, **environment)
        assert done.returncode == 0, done.stderr
        assert coordinator.process.poll() is None
        assert grown < 64 * 1024, f"{grown} KiB more than before"
        assert len(list(Path(f"/proc/{pid}/fd").iterdir())) < HALF_OPEN + 100
