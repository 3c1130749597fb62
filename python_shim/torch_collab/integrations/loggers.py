"""Loggers that send rounds to TensorBoard, W&B or MLflow, for scripts with a loop of their own or from a file."""

from __future__ import annotations

from os import PathLike
from typing import Any, Self

from torch_collab import log
from torch_collab.integrations.others import load
from torch_collab.integrations.rounds import Round, RoundReader


class RoundLogger:
    """What the loggers have in common.

    `update()` sends the rounds that came since it was called last; a script calls it where it logs its own numbers, at
    the ranks where it does. One that cannot be sent is warned of, and training goes on. As a context manager it sends
    the rest at its end. `events` and `site` as for RoundReader: a file of a run that is over is sent whole.
    """

    def __init__(self, events: str | PathLike[str] | None = None, site: str | None = None) -> None:
        self._reader = RoundReader(events, site)
        self._told = False

    def _send(self, each: Round) -> None:
        raise NotImplementedError

    def update(self) -> int:
        """How many were sent."""
        sent = 0
        for each in self._reader.read():
            try:
                self._send(each)
                sent += 1
            except Exception as error:  # whatever the other side raises
                if not self._told:
                    log.warning(
                        f"{type(self).__name__} could not send round {each.number}, and gets no more of them: "
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
    """Scalars in a folder of TensorBoard, by the number of the round. Needs tensorboard."""

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
    """A run of W&B: `run`, else the one that is active. Its x-axis is `collab/round`. Needs wandb."""

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
    """The active run of MLflow, by the number of the round. Needs mlflow."""

    def __init__(self, events: str | PathLike[str] | None = None, site: str | None = None) -> None:
        super().__init__(events, site)
        self._mlflow = load("mlflow", "mlflow", "MLflowLogger")

    def _send(self, each: Round) -> None:
        self._mlflow.log_metrics(dict(each.metrics), step=each.number)
