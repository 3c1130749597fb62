"""Rounds in the logs of Lightning's Trainer."""

from __future__ import annotations

import importlib.util
from os import PathLike
from typing import Any

from torch_collab.integrations.others import load
from torch_collab.integrations.rounds import RoundReader

_NAME = "lightning.pytorch" if importlib.util.find_spec("lightning") else "pytorch_lightning"
_Base: Any = load(_NAME, "lightning", "LightningCollabCallback").Callback


class LightningCollabCallback(_Base):  # type: ignore[misc]
    """Gives each round to the Trainer's loggers: its number, contributors, the share of time spent waiting, bytes.

        Trainer(callbacks=[LightningCollabCallback()], logger=..., ...)

    A round is logged at the step after which it was seen, whatever `log_every_n_steps` is. They are the rounds of this
    rank's site; nothing is called between sites. `events` and `site` are as for RoundReader.
    """

    def __init__(self, events: str | PathLike[str] | None = None, site: str | None = None) -> None:
        super().__init__()
        self._reader = RoundReader(events, site)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        for each in self._reader.read():
            for logger in trainer.loggers:
                logger.log_metrics(dict(each.metrics), step=trainer.global_step)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self.on_train_batch_end(trainer, pl_module)
