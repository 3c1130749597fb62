"""Rounds in the logs of Hugging Face's Trainer."""

from __future__ import annotations

from os import PathLike
from typing import Any

from torch_collab.integrations.others import load
from torch_collab.integrations.rounds import RoundReader

_Base: Any = load("transformers", "transformers", "CollabCallback").TrainerCallback


class CollabCallback(_Base):  # type: ignore[misc]
    """Logs each round with `trainer.log`: its number, contributors, the share of time spent waiting, bytes.

        trainer.add_callback(CollabCallback(trainer))

    They reach whatever the Trainer reports to, and `trainer.state.log_history`. They are the rounds of this rank's
    site; nothing is called between sites. `events` and `site` are as for RoundReader.
    """

    def __init__(self, trainer: Any, events: str | PathLike[str] | None = None, site: str | None = None) -> None:
        self._trainer = trainer
        self._reader = RoundReader(events, site)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        for each in self._reader.read():
            self._trainer.log(dict(each.metrics))

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.on_step_end(args, state, control)
