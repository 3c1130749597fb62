"""A run has the rendezvous' id for its name where COLLAB_RUN gives none: two jobs do not meet on one host."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from commands import collab
from handlers import handler, rendezvous
from ranks import expect_success, free_port, run_ranks
from torch_collab import environment, native
from torch_collab.network import links

_SET_BY_AGENTS = (*environment.FROM_AGENT, "COLLAB_SITE", "COLLAB_COORDINATOR", "COLLAB_ADVERTISE")


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*_SET_BY_AGENTS, "COLLAB_RUN", "TORCHELASTIC_RUN_ID"):
        monkeypatch.setenv(name, "")  # so that what a handler sets is undone
        monkeypatch.delenv(name)


def run_and_source(variables: dict[str, str] | None = None, options: dict[str, str] | None = None) -> tuple[str, str]:
    config = native.load_config(variables or {}, options or {})
    source = next(source for name, _, source in config.values if name == "run")
    return config.run, source


@pytest.mark.parametrize(
    ("run_id", "run"),
    [("job-7", "job-7"), ("none", ""), ("", ""), ("2026.1_a", "2026.1_a"), ("x" * 64, "x" * 64)],
)
def test_an_id_that_is_a_name_is_the_run(run_id: str, run: str) -> None:
    assert environment.as_run(run_id) == run


@pytest.mark.parametrize("run_id", ["my job", "a/b", ".hidden", "x" * 65, "früh", "a\nb"])
def test_any_other_id_becomes_a_name_of_its_own(run_id: str) -> None:
    name = environment.as_run(run_id)
    assert native.load_config({"COLLAB_RUN": name}, {}).run == name, "the knob takes it"
    assert name != environment.as_run(run_id + "!")


def test_a_worker_of_torchrun_has_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_and_source() == ("default", "default")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert run_and_source() == ("default", "default")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job-7")
    assert run_and_source() == ("job-7", "rendezvous")
    assert run_and_source({"COLLAB_RUN": "night"}) == ("night", "environment")
    assert run_and_source(options={"run": "night"}) == ("night", "options")


def test_separate_worlds_meet_by_their_coordinator_whatever_their_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "0d5c6ed0-random-of-standalone")
    assert run_and_source({"COLLAB_COORDINATOR": "10.0.0.1:29500"}) == ("default", "default")
    assert run_and_source(options={"coordinator": "10.0.0.1:29500"}) == ("default", "default")


def served_run(address: str) -> str:
    told = native.query_status(links.make(native.load_config({}, {}), "127.0.0.1"), address, timedelta(seconds=5))
    return str(json.loads(told)["swarm"])


def test_agent_coordinator_and_workers_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    first = handler(free_port(), (1, 1), run_id="job-7", standby="1")
    (info,) = rendezvous(first)
    assert (info.rank, info.world_size) == (0, 1)
    coordinator = os.environ["COLLAB_COORDINATOR"]
    assert served_run(coordinator) == "job-7"
    # As a worker has it: the agent's variables and torchrun's.
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job-7")
    assert run_and_source(environment.collab_variables()) == ("job-7", "rendezvous")
    # Its workers crashed: a world of their own, of the same run.
    (again,) = rendezvous(first)
    assert again.world_size == 1 and os.environ["COLLAB_START"] == "lone"
    assert run_and_source(environment.collab_variables()) == ("job-7", "rendezvous")
    first.shutdown()


@pytest.mark.usefixtures("serves_none")
def test_a_given_coordinator_keeps_the_id_out_of_the_runs_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLLAB_COORDINATOR", "127.0.0.1:9")
    made = handler(free_port(), (1, 1), run_id="job-7")
    rendezvous(made)
    assert run_and_source(environment.collab_variables()) == ("default", "default")
    made.shutdown()


def test_a_run_that_is_given_wins_at_the_agent_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLLAB_RUN", "night")
    made = handler(free_port(), (1, 1), run_id="job-7")
    rendezvous(made)
    assert served_run(os.environ["COLLAB_COORDINATOR"]) == "night"
    assert run_and_source(environment.collab_variables())[0] == "night"
    made.shutdown()


@pytest.mark.slow
def test_the_next_job_goes_on_with_the_state_of_the_last(tmp_path: Path) -> None:
    for job in ("job-7", "job-8"):
        told = {"TORCHELASTIC_RUN_ID": job, "COLLAB_STATE_DIR": str(tmp_path)}
        finished = expect_success(run_ranks("one_word.py", ["a", "b"], environment=told))
    assert any("the state of run job-7" in rank.output and "as run job-8" in rank.output for rank in finished)
    other = run_ranks("one_word.py", ["a", "b"], environment={**told, "COLLAB_RUN": "other"})
    assert any("belongs to run job-8, but this is run other" in rank.output for rank in other)


def test_config_says_where_the_name_comes_from() -> None:
    done: Any = collab("config", TORCHELASTIC_RUN_ID="job-7")
    assert "COLLAB_RUN = job-7   [rendezvous]   name\n" in done.stdout, done.stdout + done.stderr
