"""How often a script calls collectives between sites, and how much of its time they take."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

WINDOW = 20  # steps that are looked at together
_NEARLY_ALL = 0.9  # of these steps
_WORTH_TELLING = 0.02  # share of the time
_REST = 1000  # steps until the next look; ten times as many after each report


class EveryStep(NamedTuple):
    calls: float  # per step
    seconds: float  # per step
    share: float  # of the time
    names: tuple[str, ...]


class CollectiveTraffic:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.reduced = 0  # elements reduced between sites, including those in backward
        self.in_backward = 0  # of these, the elements in backward
        self._clock = clock
        self._rest = _REST
        self._skip = 1  # the first step begins long before it is counted
        self._begin()

    def _begin(self) -> None:
        self._began = self._clock()
        self._steps = self._with_calls = self._calls = 0
        self._seconds = 0.0
        self._names: set[str] = set()
        self._called = False

    def called(self, name: str, seconds: float) -> None:
        self._called = True
        self._calls += 1
        self._seconds += seconds
        self._names.add(name)

    def reduces(self, elements: int, in_backward: bool) -> None:
        self.reduced += elements
        self.in_backward += elements if in_backward else 0

    def stepped(self) -> EveryStep | None:
        """At a step of the model. Returns a report at the end of a window in which nearly every step had calls."""
        if self._skip:
            self._skip -= 1
            if not self._skip:
                self._begin()
            return None
        self._steps += 1
        self._with_calls += self._called
        self._called = False
        if self._steps < WINDOW:
            return None
        found = None
        share = self._seconds / max(self._clock() - self._began, 1e-9)
        if self._with_calls >= _NEARLY_ALL * WINDOW and share >= _WORTH_TELLING:
            found = EveryStep(self._calls / WINDOW, self._seconds / WINDOW, min(share, 1.0), tuple(sorted(self._names)))
            self._skip = self._rest
            self._rest *= 10
        self._begin()
        return found
