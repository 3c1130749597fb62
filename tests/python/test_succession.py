"""A coordinator commits a round to one member, and both die at once: the others settle on that very result."""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
import threading
import time

import pytest
from commands import Coordinator
from ranks import SCRIPTS
from test_elastic import rounds_alike, rounds_told
from torchruns import Node, Nodes

pytestmark = pytest.mark.slow

SITES = ("paris", "rome", "oslo")
COMMIT = 13  # in docs/protocol/wire.md, as the offsets below are


class Gate:
    """Passes a coordinator's connections on to a site, until the Commit of one round comes: from there on nothing."""

    def __init__(self, coordinator: str) -> None:
        host, _, port = coordinator.rpartition(":")
        self._behind = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.shut_at = 1 << 62  # the round
        self.shut = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                site, _ = self._listener.accept()
                try:
                    behind = socket.create_connection(self._behind)
                except OSError:
                    site.close()  # as if this were the coordinator's own port
                    continue
                threading.Thread(target=self._pass, args=(site, behind, False), daemon=True).start()
                threading.Thread(target=self._pass, args=(behind, site, True), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, looks: bool) -> None:
        held = b""  # the start of a frame whose rest has not come
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                data, held = held + data, b""
                if looks and self._commits(data):
                    self.shut.set()
                if looks and self.shut.is_set():
                    continue
                last = data.rfind(b"CLB1")
                if (
                    looks
                    and last >= 0
                    and data[last + 16 : last + 18] in (b"", b"\r", b"\r\0")
                    and len(data) < last + 56
                ):
                    data, held = data[:last], data[last:]  # it may be a Commit
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _commits(self, data: bytes) -> bool:
        at = data.find(b"CLB1")
        while at >= 0:
            if len(data) >= at + 56 and struct.unpack_from("<H", data, at + 16) == (COMMIT,):
                (number,) = struct.unpack_from("<Q", data, at + 48)
                if number >= self.shut_at:
                    return True
            at = data.find(b"CLB1", at + 4)
        return False


def start(nodes: Nodes, site: str, coordinators: str) -> Node:
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1",
        str(SCRIPTS / "torchrun.py"), str(nodes.folder),
    ]  # fmt: skip
    environment = {
        "COLLAB_SITE": site, "COLLAB_COORDINATOR": coordinators, "COLLAB_MIN_SITES": str(len(SITES)),
        "COLLAB_SITE_INDEX": str(SITES.index(site)), "COLLAB_TRANSPORT": "tcp", "TEST_MODEL": "gpt2",
        "COLLAB_EVENTS_FILE": str(nodes.folder / f"{site}.jsonl"),
    }  # fmt: skip
    node = Node(site, command, environment, number=SITES.index(site))
    nodes.all.append(node)
    return node


def test_a_commit_seen_only_by_a_dead_site_is_settled(nodes: Nodes) -> None:
    tcp = {"COLLAB_TRANSPORT": "tcp", "COLLAB_HEARTBEAT": "200ms", "COLLAB_LINK_GRACE": "2s"}
    with Coordinator("--sites", "3", **tcp) as first, Coordinator("--sites", "3", **tcp) as second:
        gate = Gate(first.address)
        paris = start(nodes, "paris", f"{first.address},{second.address}")
        others = [start(nodes, site, f"{gate.address},{second.address}") for site in SITES[1:]]
        paris.wait_for_rounds(2, *SITES)
        gate.shut_at = int(str(rounds_told(nodes, "paris")[-1]["round"])) + 3
        paris.wait_for(lambda _: int(str(rounds_told(nodes, "paris")[-1]["round"])) >= gate.shut_at)
        paris.kill()
        first.process.kill()
        gate.close()
        died = time.time()
        for node in others:
            node.wait_for_rounds(2, "rome", "oslo")
        assert gate.shut.is_set()
        (contested,) = [event for event in rounds_told(nodes, "paris") if event["round"] == gate.shut_at]
        for site in SITES[1:]:
            (settled,) = [event for event in rounds_told(nodes, site) if event["round"] == gate.shut_at]
            assert settled["t"] > died, f"{site} was told of round {gate.shut_at} before"  # type: ignore[operator]
            assert settled["digest"] == contested["digest"]
            assert settled["contributors"] == contested["contributors"]
        nodes.all.remove(paris)
        nodes.end_together()
        assert rounds_alike(nodes, *SITES) > gate.shut_at
