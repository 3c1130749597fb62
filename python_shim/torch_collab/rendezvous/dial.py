"""Dials a TCPStore at an address, and gives up in time if none answers there.

TCPStore's constructor waits without limit for a peer that accepts and never answers, and neither it nor its socket can
be closed from outside. So a socket of our own, which has a limit, asks first. If a constructor still hangs (the peer
fell silent in between), no second one is started for that address: it costs one thread and one socket, however often
the address is dialled.
"""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from torch_collab.torch_compat import TCP_STORE_QUESTION

OPERATION = timedelta(seconds=60)  # the longest time for one operation on a store

_CONNECT_SECONDS = 2.0
# A store resolves the name of each client that connects before it answers anybody. If the name server is silent, this
# takes 10 s by default, and a dial connects twice.
DIAL_SECONDS = 30.0
_lock = threading.Lock()
_making: dict[tuple[str, int], Future[Any]] = {}  # running constructors, and their results until these are taken


def dial_store(host: str, port: int) -> Any | None:
    """The TCPStore of another agent, or None if it does not answer within `DIAL_SECONDS`."""
    try:
        return store_at(host, port, DIAL_SECONDS)
    except (OSError, RuntimeError, ValueError):
        return None


def store_at(host: str, port: int, seconds: float) -> Any | None:
    """A client of the store there, or None if it is silent for so many seconds. Raises what TCPStore raises."""
    deadline = time.monotonic() + seconds
    if not _speaks(host, port, seconds):
        return None
    while True:
        making = _begin(host, port, seconds)
        try:
            making.exception(max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            return None
        with _lock:
            if _making.get((host, port)) is making:
                del _making[host, port]
                return making.result()
        # Another thread waited for this store, too, and has it.


def _begin(host: str, port: int, seconds: float) -> Future[Any]:
    with _lock:
        making = _making.get((host, port))
        if making is None or (making.done() and making.exception() is not None):
            making = _making[host, port] = Future()
            threading.Thread(target=_make, args=(making, host, port, seconds), name="collab-dial", daemon=True).start()
    return making


def _make(making: Future[Any], host: str, port: int, seconds: float) -> None:
    try:
        # This timeout limits only how long it tries to connect.
        store = dist.TCPStore(
            host, port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=max(1.0, seconds))
        )
        store.set_timeout(OPERATION)
        making.set_result(store)
    except Exception as error:
        making.set_exception(error)


def _speaks(host: str, port: int, seconds: float) -> bool:
    """Whether the peer says anything. TCPStore judges what it says, and whether it hangs up.

    Raises OSError if nobody accepts.
    """
    with socket.create_connection((host, port), timeout=min(seconds, _CONNECT_SECONDS)) as line:
        line.settimeout(seconds)
        try:
            line.sendall(TCP_STORE_QUESTION)
            line.recv(16)
        except TimeoutError:
            return False
        except OSError:
            return True  # the peer hung up
    return True
