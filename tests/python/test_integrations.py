"""Rounds in the logs of others. The callbacks run in their own frameworks (test_frameworks.py); TensorBoard, W&B and
MLflow, which are not installed here, are small fakes of what is called of them."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from ranks import Ranks, expect_success
from torch_collab import integrations, log

NAMES = ("bytes_received", "bytes_sent", "contributors", "members", "round", "seconds", "stall_seconds")


def event(number: int, t: float, site: str = "paris", **more: Any) -> str:
    told = {"t": t, "site": site, "event": "round", "round": number, "members": ["paris", "tokyo"]}
    told |= {"contributors": ["paris"], "stall_seconds": 2.0, "seconds": 1.5, "bytes_sent": 10, "bytes_received": 20}
    return json.dumps({**told, **more}) + "\n"


@pytest.fixture
def events(tmp_path: Path) -> Path:
    file = tmp_path / "paris.jsonl"
    logged = {
        "event": "metrics",
        "t": 121,
        "site": "paris",
        "round": 2,
        "step": 40,
        "metrics": {"loss": 1.5, "nan": None},
    }
    other = {"t": 111, "site": "coordinator", "event": "round", "round": 1}
    join = {"t": 100, "site": "paris", "event": "join", "reason": "came"}
    text = json.dumps(join) + "\n" + event(1, 110) + json.dumps(other) + "\n{cut\n" + event(2, 120) + json.dumps(logged)
    file.write_text(text + "\n" + event(3, 130)[:20])
    return file


def test_each_round_is_read_once_and_the_line_on_its_way_later(events: Path) -> None:
    reader = integrations.RoundReader(events)
    first, second, logged = reader.read()
    assert first.metrics == {f"collab/{n}": v for n, v in zip(NAMES, (20, 10, 1, 2, 1, 1.5, 2), strict=True)}
    assert second.number == 2 and second.metrics["collab/waiting_share"] == pytest.approx(0.2)
    assert logged.metrics == {"collab/step": 40, "loss": 1.5} and logged.number == 2
    assert reader.read() == []
    with events.open("a") as file:
        file.write(event(3, 130)[20:])
    assert [each.number for each in reader.read()] == [3]


def test_a_file_of_several_sites_wants_a_name(events: Path) -> None:
    events.write_text(event(1, 110) + event(1, 110, "tokyo"))
    with pytest.raises(ValueError, match=r"paris and of tokyo.*\[integrations.several-sites\]"):
        integrations.RoundReader(events).read()
    assert len(integrations.RoundReader(events, "tokyo").read()) == 1
    assert integrations.RoundReader(events.with_name("not-there")).read() == []


def test_a_reader_without_a_world_and_a_file_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"\[ddp.no-world\]"):
        integrations.RoundReader().read()


def fake(monkeypatch: pytest.MonkeyPatch, name: str, **content: Any) -> None:
    module = ModuleType(name)
    module.__dict__.update(content)
    monkeypatch.setitem(sys.modules, name, module)


def test_tensorboard_gets_scalars(monkeypatch: pytest.MonkeyPatch, events: Path) -> None:
    written: list[tuple[Any, ...]] = []

    class SummaryWriter:
        def __init__(self, folder: str) -> None:
            written.append((folder,))

        def add_scalar(self, *scalar: Any) -> None:
            written.append(scalar)

        def close(self) -> None:
            written.append(("closed",))

    fake(monkeypatch, "torch.utils.tensorboard", SummaryWriter=SummaryWriter)
    with integrations.TensorBoardLogger("runs", events):
        pass
    assert written[0] == ("runs",) and written[-1] == ("closed",)
    assert ("collab/contributors", 1.0, 2) in written and ("loss", 1.5, 2) in written


def test_wandb_gets_rounds(monkeypatch: pytest.MonkeyPatch, events: Path) -> None:
    sent: list[Any] = []
    run = SimpleNamespace(define_metric=lambda name, step_metric: sent.append((name, step_metric)), log=sent.append)
    fake(monkeypatch, "wandb", run=None)
    with pytest.raises(RuntimeError, match=r"wandb.init\(\) first \[integrations.no-wandb-run\]"):
        integrations.WandbLogger(events=events)
    assert integrations.WandbLogger(run, events).update() == 3
    fake(monkeypatch, "wandb", run=run)
    integrations.WandbLogger(events=events).close()
    assert sent[0] == ("collab/*", "collab/round") and sent[3] == {"collab/step": 40, "loss": 1.5, "collab/round": 2}
    assert sent[:4] == sent[4:]


def test_mlflow_gets_rounds_and_each_refusal_is_reported_once(monkeypatch: pytest.MonkeyPatch, events: Path) -> None:
    sent: list[Any] = []
    fake(monkeypatch, "mlflow", log_metrics=lambda metrics, step: sent.append((step, metrics["collab/round"])))
    said: list[str] = []
    monkeypatch.setattr(log, "_say", lambda level, message: said.append(f"{level}: {message}"))
    assert integrations.MLflowLogger(events).update() == 2  # what the script logged has no such key: the fake raises
    assert sent == [(1, 1.0), (2, 2.0)]
    fake(monkeypatch, "mlflow", log_metrics=lambda metrics, step: 1 / 0)
    assert integrations.MLflowLogger(events).update() == 0
    assert len(said) == 2 and all("[integrations.not-sent]" in line for line in said), said
    assert said[1].startswith("warning: MLflowLogger could not send round 1 ") and "ZeroDivisionError" in said[1]


@pytest.mark.parametrize(
    ("name", "module", "package"),
    [
        ("TensorBoardLogger", "torch.utils.tensorboard", "tensorboard"),
        ("WandbLogger", "wandb", "wandb"),
        ("MLflowLogger", "mlflow", "mlflow"),
        ("CollabCallback", "transformers", "transformers"),
        ("LightningCollabCallback", "pytorch_lightning", "lightning"),
    ],
)
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, name: str, module: str, package: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)  # an import of it fails
    monkeypatch.delitem(sys.modules, "torch_collab.integrations.huggingface", raising=False)
    expected = re.escape(f"pip install {package} [integrations.not-installed]")
    with pytest.raises(ImportError, match=f"{name} needs {package}.*{expected}"):
        getattr(importlib.import_module("torch_collab.integrations"), name)(*["runs"] * (name == "TensorBoardLogger"))


def test_a_script_sends_its_rounds_from_its_events_or_from_its_status(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text(event(77, 110))  # of an earlier run: not sent
    sites = [{"COLLAB_SITE": site, "COLLAB_SYNC_EVERY": "5"} for site in ("paris", "tokyo")]
    sites[0]["COLLAB_EVENTS_FILE"] = str(file)
    with Ranks("logs_rounds.py", [], sites) as ranks:
        finished = expect_success(ranks.join())
    for rank, with_events in zip(finished, (True, False), strict=True):
        sent = re.findall(r"sent (\d+) (.*)", rank.output)
        numbers = [int(number) for number, names in sent if "collab/round" in names]
        assert numbers == sorted(set(numbers)) and numbers[0] <= 1 and numbers[-1] == 3, rank.output
        assert all(("collab/contributors" in names) == with_events for _, names in sent if "collab/round" in names)
        assert any("'loss'" in names for _, names in sent) == with_events
        assert rank.output.count("[integrations.no-events]") == (not with_events)
