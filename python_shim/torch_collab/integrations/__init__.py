"""Rounds in the logs of other tools: callbacks for trainers, and loggers for TensorBoard, W&B and MLflow.

    trainer.add_callback(integrations.CollabCallback(trainer))                # Hugging Face
    lightning.Trainer(callbacks=[integrations.LightningCollabCallback()], ...)
    logger = integrations.TensorBoardLogger("runs/paris")                     # or WandbLogger(), MLflowLogger()

Nothing of these tools is imported before its name is used here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch_collab.integrations.huggingface import CollabCallback
    from torch_collab.integrations.lightning_callback import LightningCollabCallback
    from torch_collab.integrations.loggers import MLflowLogger, RoundLogger, TensorBoardLogger, WandbLogger
    from torch_collab.integrations.rounds import Round, RoundReader

__all__ = [
    "CollabCallback",
    "LightningCollabCallback",
    "MLflowLogger",
    "Round",
    "RoundLogger",
    "RoundReader",
    "TensorBoardLogger",
    "WandbLogger",
]


_ELSEWHERE = {"CollabCallback": "huggingface", "LightningCollabCallback": "lightning_callback"}
_ELSEWHERE |= dict.fromkeys(("Round", "RoundReader"), "rounds")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'torch_collab.integrations' has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_ELSEWHERE.get(name, 'loggers')}"), name)
