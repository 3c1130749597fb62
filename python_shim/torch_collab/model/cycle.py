"""Finds where a step of the model ends when several optimizers train it: at the last of them.

The order is learned as the script runs. Optimizers are noted as they step; the cycle is known when the first of them
steps again. This is pure bookkeeping on keys; the hooks decide what to do.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from typing import Any

# The last optimizer of the cycle is taken to have left it after so many steps of another optimizer, or after so many
# times the usual number between two of its steps.
LAST_ABSENT_STEPS = 20
LAST_ABSENT_TURNS = 4


class OptimizerNumbers:
    """The numbers by which optimizers are known, the same at all ranks of a site.

    Ranks free what the script has dropped at different times. So a number depends neither on an address nor on whether
    an older optimizer still lives. An optimizer keeps its number while it lives. A new optimizer takes over the number
    and the place of the one that trained the same parameters before it.
    """

    def __init__(self) -> None:
        self._of: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._trained: dict[frozenset[int], int] = {}

    def of(self, optimizer: Any, places: frozenset[int]) -> int:
        """`places`: positions in the vector of the parameters that it trains. They count only at its first call."""
        number = self._of.get(optimizer)
        if number is None:
            number = self._of[optimizer] = self._trained.setdefault(places, len(self._trained) + 1)
        return number


class OptimizerCycle:
    """States: learning (`_last` is None) → known. A new optimizer becomes the last of the cycle. One that trains the
    whole model ends a step whenever it has stepped, and is not part of the order.

    learning --first steps again--> known --new optimizer--> known (the new one is last)
    any --optimizer of the whole model steps--> known (it is last) --new optimizer--> learning
    known --the wait ends--> known (the one before the last is last) --that one comes back--> known (it is last again)
    """

    def __init__(self) -> None:
        self._order: list[Hashable] = []
        self._last: Hashable | None = None
        self._whole = False  # the last optimizer trains the whole model
        self._owed = False  # something has stepped since the last step of the model that was counted
        self._steps: dict[Hashable, int] = {}  # steps of each other optimizer since the last one's step
        self._left: Hashable | None = None  # the optimizer that was taken to have left; perhaps it only steps seldom
        self._steps_left: dict[Hashable, int] = {}  # steps of the others since the step of the one that left
        self._most_left = (1, 1)  # `_most` at the time when it left
        self._left_after = 0  # after how many steps it was taken to have left, until this is reported
        self._told_of: set[Hashable] = set()
        self._most = (1, 1)  # the most steps of any other optimizer before each of the last one's latest two steps
        self._introduced: tuple[int, Hashable] | None = None
        self._warned = False

    def before(self, key: Hashable) -> bool:
        """An optimizer is about to step. True: a cycle that was not known yet has ended just before it."""
        if self._last is None and key in self._order:
            self._last = self._order[-1]
            self._begin_cycle()
            owed, self._owed = self._owed, False
            return owed
        return False

    def after(self, key: Hashable, whole: bool = False) -> bool:
        """An optimizer has stepped; `whole`: it trains the whole model. True: this ends a step of the model."""
        if self._left is not None and key != self._left:
            self._steps_left[key] = self._steps_left.get(key, 0) + 1
        if whole:
            self._last, self._whole = key, True
            if key == self._left:
                self._left = None
        elif key not in self._order:
            if self._whole:
                self._order, self._last, self._whole = [], None, False
            self._order.append(key)
            if self._last is not None:
                self._last = key
                if key == self._left:
                    self._left, self._most = None, self._most_left
                    self._turn(self._steps_left)
                self._begin_cycle()
                # The former last optimizer ended a step, which has been counted already.
                self._owed = True
                return False
        if key == self._last:
            self._turn(self._steps)
            self._begin_cycle()
            self._owed = False
            return True
        self._owed = True
        if self._last is None:
            return False
        self._steps[key] = self._steps.get(key, 0) + 1
        if self._steps[key] >= max(LAST_ABSENT_STEPS, LAST_ABSENT_TURNS * min(self._most)):
            self._go_on_without_last()
        return False

    def _turn(self, steps: dict[Hashable, int]) -> None:
        """The last optimizer has stepped; `steps` are those of the others before it."""
        self._most = (self._most[1], max(steps.values(), default=1))

    def _go_on_without_last(self) -> None:
        self._left, self._steps_left = self._last, dict(self._steps)
        self._most_left, self._most = self._most, (1, 1)
        self._left_after = max(self._steps.values())
        self._order = [key for key in self._order if key != self._last]
        self._last, self._whole = self._order[-1], False
        self._begin_cycle()

    @property
    def last(self) -> Hashable | None:
        """The optimizer whose step ends a step of the model; None while the cycle is being learned."""
        return self._last

    @property
    def owes_step(self) -> bool:
        """Something has stepped since the last step of the model was counted."""
        return self._owed

    def counted(self) -> None:
        """The owed step has been counted, without waiting for the last optimizer of the cycle."""
        self._owed = False

    def to_introduce(self) -> tuple[int, Hashable] | None:
        """(number of optimizers, the last one) of a cycle of several; once when it is known, and after each change."""
        if self._last is None or self._whole or len(self._order) < 2:
            return None
        known = (len(self._order), self._last)
        if known == self._introduced:
            return None
        self._introduced = known
        return known

    def to_tell_of_who_left(self) -> tuple[int, Hashable] | None:
        """(steps of another optimizer, the one that was then taken to have left); once for each that leaves."""
        after, self._left_after = self._left_after, 0
        if not after or self._left is None or self._left in self._told_of:
            return None
        self._told_of.add(self._left)
        return after, self._left

    def to_warn_of(self) -> int:
        """How many steps of another optimizer come before each of the last one's, twice in a row; only once, else 0."""
        steps = min(self._most)
        if steps < 2 or self._warned:
            return 0
        self._warned = True
        return steps

    def _begin_cycle(self) -> None:
        self._steps = {}
