"""Tests that run beside others, and those that do not (tests/python/turns.py)."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))

import turns

PATIENCE = 60


class Turn:
    """Takes its turn in a thread, as a worker does in its process, and keeps it until it is told to end."""

    def __init__(self, run: str, alone: bool) -> None:
        self.inside, self.may_end = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._take, args=(run, alone), daemon=True)
        self._thread.start()

    def _take(self, run: str, alone: bool) -> None:
        with turns.turn(run, alone):
            self.inside.set()
            assert self.may_end.wait(PATIENCE)

    def end(self) -> None:
        assert self.inside.wait(PATIENCE)
        self.may_end.set()
        self._thread.join(PATIENCE)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(turns.tempfile, "gettempdir", lambda: str(tmp_path))
    return "run"


def test_the_long_ones_come_first_and_those_that_are_alone_last() -> None:
    marks = [(), ("alone", "slow"), ("wan",), ("second_try", "wan"), ("slow",), ("timeout",)]
    items: list[Any] = [SimpleNamespace(marks=of, get_closest_marker=lambda name, of=of: name in of) for of in marks]
    turns.in_order(items)
    assert [item.marks for item in items] == [marks[at] for at in (2, 4, 0, 5, 1, 3)]


def test_others_run_side_by_side(run: str) -> None:
    first, second = Turn(run, False), Turn(run, False)
    assert first.inside.wait(PATIENCE) and second.inside.wait(PATIENCE)
    first.end()
    second.end()


def test_an_exclusive_test_waits_for_others_and_others_for_it(run: str) -> None:
    first = Turn(run, False)
    assert first.inside.wait(PATIENCE)
    alone = Turn(run, True)
    assert not alone.inside.wait(0.5)
    last = Turn(run, False)
    assert not last.inside.wait(0.5), "it came after the one that waits to be alone"
    first.end()
    assert alone.inside.wait(PATIENCE) and not last.inside.wait(0.5)
    alone.end()
    last.end()
