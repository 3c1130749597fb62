"""When several optimizers train one model, a step of the model ends with the last of them.

The order is learned as the script runs: optimizers are noted as they step, and when the first of them steps again the
cycle is known. Pure bookkeeping on keys; the hooks decide what to do.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from typing import Any

# So many steps of another without the last one of the cycle, or so many times those that were usual between two of its
# steps, and that one is taken to have left it.
LAST_ABSENT_STEPS = 20
LAST_ABSENT_TURNS = 4


class OptimizerNumbers:
    """By which optimizers are known. Ranks of a site must give the same, and they free what the script has dropped at
    different times: so it is neither an address nor whether an older one still lives.

    An optimizer keeps its number while it lives. A new one takes the number and the place of the optimizer that trained
    the same before it.
    """

    def __init__(self) -> None:
        self._of: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._trained: dict[frozenset[int], int] = {}

    def of(self, optimizer: Any, places: frozenset[int]) -> int:
        """`places`: of the parameters that it trains, in the vector; they count when it is seen first."""
        number = self._of.get(optimizer)
        if number is None:
            number = self._of[optimizer] = self._trained.setdefault(places, len(self._trained) + 1)
        return number


class OptimizerCycle:
    """States: learning (`_last` is None) → known. A newcomer becomes the last of the cycle. One that trains the whole
    model ends a step whenever it has stepped, and is no part of the order.

    learning --first steps again--> known --newcomer--> known (newcomer last)
    any --one of the whole model steps--> known (that one last) --newcomer--> learning
    known --the wait ends--> known (the one before the last is last) --that one comes back--> known (it is last again)
    """

    def __init__(self) -> None:
        self._order: list[Hashable] = []
        self._last: Hashable | None = None
        self._whole = False  # the last trains the whole model
        self._owed = False  # something has stepped since the last step of the model that was counted
        self._steps: dict[Hashable, int] = {}  # of each of the others since the last one's step
        self._left: Hashable | None = None  # who was taken to have left; it may come seldom
        self._steps_left: dict[Hashable, int] = {}  # of the others since its step
        self._most_left = (1, 1)  # as it was when it left
        self._left_after = 0  # that many steps, which was not told yet
        self._told_of: set[Hashable] = set()
        self._most = (1, 1)  # of one of the others, before each of the last one's latest two steps
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
                # The step that ended with the former last one has been counted already.
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
        """The last one has stepped, after those of the others."""
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
        """Whose step ends a step of the model; None while that is learned."""
        return self._last

    @property
    def owes_step(self) -> bool:
        """Something has stepped since the last step of the model was counted."""
        return self._owed

    def counted(self) -> None:
        """What was owed is counted, without waiting for the last of the cycle."""
        self._owed = False

    def to_introduce(self) -> tuple[int, Hashable] | None:
        """How many there are and the last of them, once, when that is known of several or has changed."""
        if self._last is None or self._whole or len(self._order) < 2:
            return None
        known = (len(self._order), self._last)
        if known == self._introduced:
            return None
        self._introduced = known
        return known

    def to_tell_of_who_left(self) -> tuple[int, Hashable] | None:
        """After how many steps of another who was taken to have left; once of each."""
        after, self._left_after = self._left_after, 0
        if not after or self._left is None or self._left in self._told_of:
            return None
        self._told_of.add(self._left)
        return after, self._left

    def to_warn_of(self) -> int:
        """So many steps of another to one of the last's, twice running; said once, 0 else."""
        steps = min(self._most)
        if steps < 2 or self._warned:
            return 0
        self._warned = True
        return steps

    def _begin_cycle(self) -> None:
        self._steps = {}
