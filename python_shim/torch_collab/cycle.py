"""When several optimisers train one model, a step of the model ends with the last of them.

The order is learned as the script runs: optimisers are noted as they step, and when the first of them steps again the
cycle is known. Pure bookkeeping on keys; the hooks decide what to do.
"""

from __future__ import annotations

from collections.abc import Hashable

# So many steps of the others without the last one of the cycle, and that one is taken to have left it.
PATIENCE = 1000


class OptimizerCycle:
    """States: learning (`_last` is None) → known. A newcomer becomes the last of the cycle.

    learning --first steps again--> known --newcomer--> known (newcomer last)
    known --PATIENCE steps without the last--> learning
    """

    def __init__(self) -> None:
        self._order: list[Hashable] = []
        self._last: Hashable | None = None
        self._since_last = 0

    def alone(self, key: Hashable) -> None:
        """`key` is known to train everything: no need to learn."""
        if self._last is None and not self._order:
            self._order, self._last = [key], key

    def before(self, key: Hashable) -> bool:
        """An optimiser is about to step. True: a cycle that was not known yet has ended just before it."""
        if self._last is None and key in self._order:
            self._last = self._order[-1]
            self._since_last = 0
            return True
        return False

    def after(self, key: Hashable) -> bool:
        """An optimiser has stepped. True: this ends a step of the model."""
        if key not in self._order:
            self._order.append(key)
            if self._last is not None:
                self._last = key
                self._since_last = 0
                # The step that ended with the former last one has been counted already.
                return False
        if self._last is None:
            return False
        if key == self._last:
            self._since_last = 0
            return True
        self._since_last += 1
        if self._since_last >= PATIENCE:
            self._order, self._last, self._since_last = [key], None, 0
        return False

    def unfinished(self) -> bool:
        """True: something has stepped, but no step of the model was ever counted."""
        return self._last is None and bool(self._order)
