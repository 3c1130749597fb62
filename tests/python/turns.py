"""Of the tests that run side by side (`pytest -n 3`), those that must not run beside others.

Most tests wait for processes to start and for graces to pass, so three at a time take little longer than one. Those
that need a second try keep real time: they run alone, as does what is marked `alone`. The emulated network keeps real
time as well, but what most tests on it say is as true of one that is late.

Each worker has a /dev/shm of its own, which needs root: sites of one name, run and model would find each other there.
It also asks no name server: a TCPStore looks up the name of each that connects, and some drop such questions.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

ALONE = ("alone", "second_try")
LONG = ("slow", "wan")
# Of the system's mount(2) and unshare(2).
CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 0x1000, 0x4000, 0x40000
NAMES = Path("/etc/nsswitch.conf")  # where the system looks for names


def have_own_mounts() -> None:
    """For this thread, and all that it starts."""
    libc = ctypes.CDLL(None, use_errno=True)
    if (
        libc.unshare(CLONE_NEWNS)
        or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None)
        or libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"size=50%")
    ):
        why = os.strerror(ctypes.get_errno())
        raise pytest.UsageError(f"a worker of `pytest -n` cannot have a /dev/shm of its own ({why}): leave -n out")
    if not NAMES.exists():
        return
    with tempfile.NamedTemporaryFile("w") as names:  # the mount keeps it
        kept = [line for line in NAMES.read_text().splitlines() if not line.startswith("hosts:")]
        print(*kept, "hosts: files", sep="\n", file=names, flush=True)
        # Where this is refused, tests are slower if the name server is.
        libc.mount(names.name.encode(), bytes(NAMES), None, MS_BIND, None)


@contextlib.contextmanager
def lock(path: Path, how: int) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, how)
        yield  # closing the file lets go


@contextlib.contextmanager
def turn(run: str, alone: bool) -> Iterator[None]:
    """A test's turn in the run of this name, whose workers share two locks: one for the turn to enter, one to be in."""
    folder = Path(tempfile.gettempdir())
    with contextlib.ExitStack() as inside:
        # A test that waits to be alone stands in the door, so that no other enters before it.
        with lock(folder / f"collab-tests-{run}-door", fcntl.LOCK_EX):
            how = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
            inside.enter_context(lock(folder / f"collab-tests-{run}-room", how))
        yield


def is_any(item: pytest.Item, marks: tuple[str, ...]) -> bool:
    return any(item.get_closest_marker(name) for name in marks)


def is_alone(item: pytest.Item) -> bool:
    return is_any(item, ALONE)


def in_order(items: list[pytest.Item]) -> None:
    """Those that are alone last: among the others each would wait for two tests to end, while all that come after it
    wait for it. The long ones first, so that the others end at about the same time."""
    items.sort(key=lambda item: (is_alone(item), not is_any(item, LONG)))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Around the whole test, its limit of time included: waiting for a turn is no part of that."""
    worker = getattr(item.config, "workerinput", None)
    if worker is None:
        return (yield)
    with turn(worker["testrunuid"], is_alone(item)):
        return (yield)
