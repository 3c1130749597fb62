"""tests/bench/bench_learning.py: what it keeps, what it reports, and that its sites average as those of a run do."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import expect_success, run_ranks

BENCH = Path(__file__).parents[1] / "bench"
sys.path.insert(0, str(BENCH))
import bench_learning  # noqa: E402
from bench_learning import Course, Results  # noqa: E402

COURSE = Course(steps=70)  # two rounds of 30, and the last one
LOSSES = {"ddp": 2.0, "h30": 2.02, "h30-int8": 2.03, "h30-int4": 2.03}


def pretend(name: str, size: str, seed: int, course: Course) -> dict[str, Any]:
    return {"loss": LOSSES[name] + 0.1 * seed, "digest": "", "seconds": 0.0}


def run_pretended(file: Path, *given: str) -> Results:
    results = Results(file)
    bench_learning.run_all(bench_learning.parse_args(given), COURSE, results, pretend)
    return results


def test_existing_results_are_not_run_again(tmp_path: Path) -> None:
    file = tmp_path / "out" / "learning.jsonl"
    run_pretended(file, "--settings", "ddp", "h30", "--sizes", "36k", "--seeds", "2")
    assert len(file.read_text().splitlines()) == 4
    run_pretended(file, "--settings", "ddp", "h30", "--sizes", "36k", "--seeds", "3")
    runs = [(line["setting"], line["seed"]) for line in map(json.loads, file.read_text().splitlines())]
    assert runs == [("ddp", 0), ("h30", 0), ("ddp", 1), ("h30", 1), ("ddp", 2), ("h30", 2)]


def test_a_run_of_other_steps_or_knobs_is_another_one(tmp_path: Path) -> None:
    file = tmp_path / "learning.jsonl"
    run = bench_learning.asked("h30", "36k", 0, Course(steps=69)) | {"loss": 1.0}
    old = bench_learning.asked("h30", "36k", 0, COURSE) | {"loss": 1.0, "knobs": {"sync_every": "29"}}
    file.write_text(json.dumps(run) + "\n" + json.dumps(old) + "\n")
    results = run_pretended(file, "--settings", "h30", "--sizes", "36k", "--seeds", "1")
    assert results.losses("h30", "36k", COURSE) == {0: 2.02}


@pytest.mark.parametrize(("option", "word"), [("--settings", "h30-int7"), ("--sizes", "7b")])
def test_unknown_words_are_refused(option: str, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        bench_learning.parse_args([option, word])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert word in said and ("h30-int8" if option == "--settings" else "36k") in said


def test_the_table_of_given_results(tmp_path: Path) -> None:
    names = list(LOSSES)
    results = run_pretended(tmp_path / "learning.jsonl", "--settings", *names, "--sizes", "36k", "--seeds", "1")
    (_, ddp, plain, int8, int4), met = bench_learning.table_of(results, ["36k", "121k"], names, COURSE)
    assert ddp[2:] == ["2.000", "", "", "", "1"]
    assert plain[2:5] == ["2.020", "+1.00 (+1.00 to +1.00)", ""]
    assert int8[4:] == ["+0.50 (+0.50 to +0.50)", "0.3 %: MISSED, too few seeds", "1"]
    assert int4[4:6] == ["+0.50 (+0.50 to +0.50)", "1 %: held, too few seeds"]
    assert not met


def test_a_run_is_compared_with_the_other_of_its_seed() -> None:
    assert bench_learning.differences({0: 2.02, 1: 3.0, 3: 1.0}, {1: 2.0, 0: 2.0}) == pytest.approx([1.0, 50.0])


@pytest.mark.parametrize(
    ("percent", "said"),
    [
        ([0.1, 0.1, 0.2, 0.2, 0.3, 0.3], "0.3 %: held"),
        ([0.1, 0.1, 0.2, 0.2, 0.4, 0.4], "0.3 %: held, interval wider"),
        ([0.2, 0.2, 0.4, 0.4, 0.5, 0.5], "0.3 %: MISSED, interval wider"),
        ([0.4, 0.4, 0.5, 0.5, 0.6, 0.6], "0.3 %: MISSED"),
        ([0.1, 0.1, 0.2, 0.2, 0.3], "0.3 %: held, too few seeds"),
    ],
)
def test_a_bound_is_held_or_missed_and_the_interval_may_lie_on_both_sides(percent: list[float], said: str) -> None:
    assert bench_learning.verdict(percent, 0.3) == said


@pytest.fixture
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
def test_sites_end_with_the_model_that_the_benchmark_simulates() -> None:
    """Bit for bit."""
    here = bench_learning.train("h30-int8", "36k", 0, COURSE)["digest"]
    knobs = {"shares": "equal", **bench_learning.SETTINGS["h30-int8"].knobs}
    environment = {f"COLLAB_{name.upper()}": value for name, value in knobs.items()}
    ranks = expect_success(run_ranks("learning.py", ["a", "b"], "36k", str(COURSE.steps), environment=environment))
    assert [re.findall(r"digest (\w+)", rank.output) for rank in ranks] == [[here], [here]]


@pytest.mark.usefixtures("one_thread")
def test_a_round_behind_the_training_is_merged_at_the_same_step_each_time() -> None:
    runs = [bench_learning.train("h30-rebase0.5-7", "36k", 0, COURSE)["digest"] for _ in range(2)]
    other = bench_learning.train("h30-rebase0.5-15", "36k", 0, COURSE)["digest"]
    assert runs[0] == runs[1] != other
