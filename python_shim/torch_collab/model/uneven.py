"""Steps inside `with ddp.join():` at a site of several ranks, some of which run out of inputs before the others."""

from __future__ import annotations


class UnevenInputs:
    """A round takes all ranks of the site, so none runs until they have left `join()` together."""

    def __init__(self) -> None:
        self.inside: object | None = None  # the torch.distributed.algorithms.Join that is entered
        self._steps = 0
        self._samples = 0

    def enter(self, join: object) -> None:
        self.inside = join

    def leave(self) -> None:
        self.inside = None

    def hold(self, samples: int) -> None:
        """A step of this rank, which is counted once all ranks have left."""
        self._steps += 1
        self._samples += samples

    def take(self) -> tuple[int, int]:
        """Steps and samples of this rank."""
        held = self._steps, self._samples
        self._steps, self._samples = 0, 0
        return held
