"""Dialling a store: what answers, what never does, and what a peer that never does costs."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from torch_collab.rendezvous import dial, endpoint
from torch_collab.rendezvous.endpoint import serve_store

_TRIES = 25


class Peer:
    """Accepts everybody, says its one word, is silent from then on, and never closes."""

    def __init__(self, word: bytes = b"") -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._word = word
        self.lines: list[socket.socket] = []
        self._accepted = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="peer", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                line, _ = self._listener.accept()
                with contextlib.suppress(OSError):  # it may have gone before it was accepted
                    line.sendall(self._word)
                with self._accepted:
                    self.lines.append(line)
                    self._accepted.notify_all()

    def wait_accepted(self, count: int) -> None:
        """Until so many were accepted: the kernel connects those that dial before this thread runs."""
        with self._accepted:
            assert self._accepted.wait_for(lambda: len(self.lines) >= count, 30.0)

    def open_lines(self) -> int:
        """Of those accepted, how many the other side holds open still."""
        held = 0
        for line in self.lines:
            line.settimeout(0.2)
            try:
                while line.recv(4096):
                    pass
            except TimeoutError:
                held += 1
            except OSError:
                pass
        return held

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5.0)
        for line in self.lines:
            line.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dial, "DIAL_SECONDS", 0.05)


@contextlib.contextmanager
def leaves_no_more_than(threads: int, sockets: int, peer: Peer) -> Iterator[None]:
    """Of what the dialling made. What other tests left in this process comes and goes meanwhile, and does not count."""
    before = threading.enumerate()
    yield
    dialling = [each for each in threading.enumerate() if each.name == "collab-dial" and each not in before]
    assert len(dialling) <= threads
    peer.wait_accepted(_TRIES + sockets)
    assert peer.open_lines() == sockets


@pytest.mark.usefixtures("quick")
def test_a_peer_that_never_answers_costs_nothing_that_stays() -> None:
    peer = Peer()
    with leaves_no_more_than(threads=0, sockets=0, peer=peer):
        for _ in range(_TRIES):
            assert dial.dial_store("127.0.0.1", peer.port) is None
    peer.close()


@pytest.mark.usefixtures("quick")
def test_a_peer_that_falls_silent_in_between_costs_one_thread_and_one_socket() -> None:
    # It answers whatever only wants a word, and a store's constructor never.
    peer = Peer(word=b"\0")
    with leaves_no_more_than(threads=1, sockets=1, peer=peer):
        for _ in range(_TRIES):
            assert dial.dial_store("127.0.0.1", peer.port) is None
    peer.close()  # which ends that thread
    assert dial._making.pop(("127.0.0.1", peer.port)).exception(30.0) is not None


def test_a_store_that_was_silent_is_found_when_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    served = serve_store()
    served.set("a", "1")
    monkeypatch.setattr(dial, "TCP_STORE_QUESTION", struct.pack("=BI", 0, 0x3C85F7CE))  # asks nothing: no answer comes
    monkeypatch.setattr(dial, "DIAL_SECONDS", 0.05)
    assert dial.dial_store("127.0.0.1", served.port) is None
    monkeypatch.undo()
    store = dial.dial_store("127.0.0.1", served.port)
    assert store is not None and store.get("a") == b"1"
    assert store.timeout == dial.OPERATION


def test_a_store_of_this_torch_answers_the_question() -> None:
    served = serve_store()
    with socket.create_connection(("127.0.0.1", served.port), timeout=5.0) as line:
        line.sendall(dial.TCP_STORE_QUESTION)
        assert line.recv(16) == struct.pack("=q", served.num_keys())


def test_an_earlier_failure_is_tried_again() -> None:
    served = serve_store()
    failed = dial._making["127.0.0.1", served.port] = Future()
    failed.set_exception(RuntimeError("was not there yet"))
    assert dial.dial_store("127.0.0.1", served.port) is not None


def test_there_is_no_store_without_a_listener() -> None:
    peer = Peer()
    peer.close()
    assert dial.dial_store("127.0.0.1", peer.port) is None


def test_a_late_store_is_given_to_the_next_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    served = serve_store()
    go_on = threading.Event()
    made = dial._make

    def late(*asked: object) -> None:
        go_on.wait(30.0)
        made(*asked)  # type: ignore[arg-type]

    monkeypatch.setattr(dial, "_make", late)
    assert dial.store_at("127.0.0.1", served.port, 0.05) is None
    going = dial._making["127.0.0.1", served.port]
    go_on.set()
    going.result(30.0)
    monkeypatch.setattr(dial, "_make", lambda *_: pytest.fail("a second one was begun"))
    assert dial.store_at("127.0.0.1", served.port, 5.0) is going.result()
    assert ("127.0.0.1", served.port) not in dial._making


def test_each_of_several_threads_gets_one_of_its_own() -> None:
    served = serve_store()
    with ThreadPoolExecutor(4) as pool:
        stores = list(pool.map(lambda _: dial.dial_store("127.0.0.1", served.port), range(4)))
    assert None not in stores and len({id(store) for store in stores}) == 4


def test_an_endpoint_that_cannot_be_served_or_reached_is_explained() -> None:
    server = serve_store()
    with pytest.raises(RuntimeError) as taken:
        serve_store(server.port)
    why = endpoint._why_not_served(server.port, str(taken.value))
    assert why.startswith(f"port {server.port} of this machine is in use")
    assert endpoint._why_not_served(80, "no permission") == "no permission"
    with pytest.raises(OSError) as unknown:
        dial.store_at("no-such-machine.invalid", 29400, 1.0)
    assert "is it spelt right?" in endpoint._why_not_reached("no-such-machine.invalid", unknown.value)
    assert endpoint._why_not_reached("host", ConnectionRefusedError(111, "Connection refused")) == "Connection refused"
