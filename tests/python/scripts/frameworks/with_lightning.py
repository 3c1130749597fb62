"""Lightning's Trainer: the backend's name goes to its DDPStrategy."""

from __future__ import annotations

from typing import Any

import lightning
import tiny
import torch
import torch.distributed as dist
from lightning.pytorch.loggers import Logger
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data import DataLoader
from torch_collab.integrations import LightningCollabCallback


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = tiny.model()

    def training_step(self, batch: list[torch.Tensor], number: int) -> torch.Tensor:
        inputs, labels = batch
        loss = torch.nn.functional.cross_entropy(self.layers(inputs), labels)
        self.log("loss", loss, sync_dist=True, on_step=False, on_epoch=True)
        self.log("right", (self.layers(inputs).argmax(1) == labels).sum(), sync_dist=True, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


class Kept(Logger):
    """What Lightning's own loggers would have been given."""

    name, version = "kept", 0

    def __init__(self) -> None:
        super().__init__()
        self.rounds: list[tuple[int, float]] = []

    def log_hyperparams(self, *_: object, **__: object) -> None:
        pass

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        if "collab/round" in metrics:
            assert metrics["collab/contributors"] in (1, 2)
            self.rounds.append((step or 0, metrics["collab/round"]))


broadcasts = []  # to other sites
original = dist.broadcast


def counted(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    if kwargs.get("group") is None:
        broadcasts.append(tensor.shape)
    return original(tensor, *args, **kwargs)


dist.broadcast = counted
model = Classifier()
kept = Kept()
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=1,
    num_nodes=2,
    strategy=DDPStrategy(process_group_backend="collab"),
    max_epochs=1,
    logger=kept,
    callbacks=[LightningCollabCallback()],
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(model, DataLoader(tiny.data(), batch_size=8, shuffle=True))
assert trainer.world_size == 2 and trainer.global_rank == tiny.RANK
assert [number for _, number in kept.rounds][:2] == [1, 2] and kept.rounds[0][0] >= 5, kept.rounds
assert not broadcasts, "one before every batch, of Lightning's own, waits for the line between sites"
assert 0 < float(trainer.callback_metrics["loss"]) < 2
tiny.end(model)
