"""Thousands of openings that are not ours, at the port of a coordinator: it closes them, and lets in who belongs."""

from __future__ import annotations

import contextlib
import itertools
import queue
import random
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from commands import Coordinator, collab, new_token

pytestmark = pytest.mark.slow

OPENINGS = 10_000
HALF_OPEN = 300
NEWCOMERS = 20


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
        environment["COLLAB_TOKEN"] = new_token()
    chance = random.Random(1)
    with Coordinator("--sites", "2", **environment) as coordinator, contextlib.ExitStack() as stack:
        host, _, port = coordinator.address.rpartition(":")
        at = (host, int(port))
        pid = coordinator.process.pid
        for _ in range(HALF_OPEN):  # and never a word
            stack.enter_context(socket.create_connection(at, timeout=60))
        assert collab("status", coordinator.address, **environment).returncode == 0
        before = kilobytes(pid)
        for number in range(OPENINGS - HALF_OPEN):
            with socket.create_connection(at, timeout=60) as stranger, contextlib.suppress(ConnectionError):
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


class FarAway:
    """Newcomers come through here from hosts of their own, with a round trip of so many seconds."""

    def __init__(self, to: tuple[str, int], round_trip: float) -> None:
        self.to, self.half = to, round_trip / 2
        self.hosts = (f"127.200.{number // 250}.{number % 250 + 1}" for number in itertools.count())
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with contextlib.suppress(OSError), near:
            first = near.recv(65536)
            time.sleep(self.half)
            with socket.create_connection(self.to, timeout=60, source_address=(next(self.hosts), 0)) as far:
                far.settimeout(None)
                far.sendall(first)
                back = threading.Thread(target=self._carry, args=(far, near), daemon=True)
                back.start()
                self._carry(near, far)
                back.join()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        due: queue.Queue[tuple[float, bytes]] = queue.Queue()

        def deliver() -> None:
            with contextlib.suppress(OSError):
                while True:
                    at, data = due.get()
                    time.sleep(max(0.0, at - time.monotonic()))
                    if not data:
                        return sink.shutdown(socket.SHUT_WR)
                    sink.sendall(data)

        later = threading.Thread(target=deliver, daemon=True)
        later.start()
        data = b"-"
        while data:
            data = b""
            with contextlib.suppress(OSError):
                data = source.recv(65536)
            due.put((time.monotonic() + self.half, data))
        later.join()


SLOW_HANDSHAKES = """
import random, select, socket, sys, time
host, port, chance = sys.argv[1], int(sys.argv[2]), random.Random(1)
kept, opened = [], 0
while True:
    if len(kept) >= 800:
        kept.pop(0).close()
    one = socket.socket()
    try:
        one.bind((f"127.{chance.randrange(1, 100)}.{chance.randrange(256)}.{chance.randrange(1, 255)}", 0))
        one.connect((host, port))
        one.send((b"", b"\\x16", b"\\x16\\x03\\x01\\x01\\x00\\x01\\x00")[opened % 3])
    except OSError:
        one.close()
        continue
    kept.append(one)
    opened += 1
    if opened % 1000 == 0:
        print(opened, flush=True)
"""


@pytest.mark.second_try("the system's scheduler divides the processors between attacker and coordinator")
def test_newcomers_from_afar_get_in_among_slow_handshakes_of_thousands_of_hosts() -> None:
    token = {"COLLAB_TRANSPORT": "tcp", "COLLAB_TOKEN": new_token()}
    with Coordinator("--sites", "2", **token) as coordinator:
        host, _, port = coordinator.address.rpartition(":")
        far = FarAway((host, int(port)), round_trip=0.1)
        with subprocess.Popen(
            [sys.executable, "-c", SLOW_HANDSHAKES, host, port], stdout=subprocess.PIPE, text=True
        ) as attacker:
            assert attacker.stdout is not None
            assert attacker.stdout.readline().strip() == "1000"  # it is at work
            begun = time.monotonic()
            done = [collab("status", far.address, **token) for _ in range(NEWCOMERS)]
            took = time.monotonic() - begun
            attacker.kill()
            opened = int(attacker.stdout.read().split()[-1])
        got_in = [one.returncode == 0 for one in done]
        print(f"{sum(got_in)} of {NEWCOMERS} got in, beside {opened / took:.0f} handshakes a second")
        assert opened > 2000
        assert all(got_in), [one.stderr for one in done if one.returncode != 0]
