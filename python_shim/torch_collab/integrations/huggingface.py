"""Rounds in the logs of Hugging Face's Trainer."""

from __future__ import annotations

from os import PathLike
from typing import Any

from torch_collab.integrations.others import load
from torch_collab.integrations.rounds import RoundReader

_Base: Any = load("transformers", "transformers", "CollabCallback").TrainerCallback


class CollabCallback(_Base):  # type: ignore[misc]
    """Logs each round by `trainer.log`: its number, contributors, the share of time that was waited, bytes.

        trainer.add_callback(CollabCallback(trainer))

    Whatever the Trainer reports to has them, and `trainer.state.log_history`. They are those of this rank's site; a
    round calls nothing between sites. `events` as for RoundReader.
    """

    def __init__(self, trainer: Any, events: str | PathLike[str] | None = None, site: str | None = None) -> None:
        self._trainer = trainer
        self._reader = RoundReader(events, site)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        for each in self._reader.read():
            self._trainer.log(dict(each.metrics))

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.on_step_end(args, state, control)
