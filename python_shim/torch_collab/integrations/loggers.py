"""Loggers that send rounds to TensorBoard, W&B or MLflow: for scripts with their own training loop, or from a file."""

from __future__ import annotations

from os import PathLike
from typing import Any, Self

from torch_collab import log
from torch_collab.integrations.others import load
from torch_collab.integrations.rounds import Round, RoundReader


class RoundLogger:
    """The base of the loggers.

    `update()` sends the rounds that came since its last call. Call it where the script logs its own numbers, on the
    same ranks. The first round that cannot be sent causes a warning, and training goes on. As a context manager, the
    logger sends the rest when it closes. `events` and `site` are as for RoundReader. The file of a finished run is sent
    whole.
    """

    def __init__(self, events: str | PathLike[str] | None = None, site: str | None = None) -> None:
        self._reader = RoundReader(events, site)
        self._told = False

    def _send(self, each: Round) -> None:
        raise NotImplementedError

    def update(self) -> int:
        """Sends new rounds. Returns how many were sent."""
        sent = 0
        for each in self._reader.read():
            try:
                self._send(each)
                sent += 1
            except Exception as error:  # the other side may raise anything
                if not self._told:
                    log.warning(
                        f"{type(self).__name__} could not send round {each.number} (later failures are not reported): "
                        f"{type(error).__name__}: {error} [integrations.not-sent]"
                    )
                self._told = True
        return sent

    def close(self) -> None:
        self.update()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class TensorBoardLogger(RoundLogger):
    """Scalars in a TensorBoard folder, by round number. Needs tensorboard."""

    def __init__(
        self, folder: str | PathLike[str], events: str | PathLike[str] | None = None, site: str | None = None
    ) -> None:
        super().__init__(events, site)
        self._writer = load("torch.utils.tensorboard", "tensorboard", "TensorBoardLogger").SummaryWriter(str(folder))

    def _send(self, each: Round) -> None:
        for name, value in each.metrics.items():
            self._writer.add_scalar(name, value, each.number)

    def close(self) -> None:
        super().close()
        self._writer.close()


class WandbLogger(RoundLogger):
    """A run of W&B: `run`, or the active one. Its x-axis is `collab/round`. Needs wandb."""

    def __init__(self, run: Any = None, events: str | PathLike[str] | None = None, site: str | None = None) -> None:
        super().__init__(events, site)
        wandb = load("wandb", "wandb", "WandbLogger")
        self._run = run if run is not None else wandb.run
        if self._run is None:
            raise RuntimeError("collab: WandbLogger found no run: call wandb.init() first [integrations.no-wandb-run]")
        self._run.define_metric("collab/*", step_metric="collab/round")

    def _send(self, each: Round) -> None:
        self._run.log({**each.metrics, "collab/round": float(each.number)})


class MLflowLogger(RoundLogger):
    """The active MLflow run, by round number. Needs mlflow."""

    def __init__(self, events: str | PathLike[str] | None = None, site: str | None = None) -> None:
        super().__init__(events, site)
        self._mlflow = load("mlflow", "mlflow", "MLflowLogger")

    def _send(self, each: Round) -> None:
        self._mlflow.log_metrics(dict(each.metrics), step=each.number)
