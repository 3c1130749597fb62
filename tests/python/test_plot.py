"""`collab plot`: what sites did when, from events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import collab
from torch_collab.planning import timeline
from torch_collab.planning.timeline import Span


def line(t: float, site: str, event: str, **more: Any) -> str:
    return json.dumps({"t": t, "site": site, "event": event, **more}) + "\n"


def one_round(t: float, site: str, **more: Any) -> str:
    fields = {"seconds": 1.0, "stall_seconds": 3.0, "members": ["paris", "tokyo"], **more}
    return line(t, site, "round", **fields)


PARIS = line(100, "paris", "join") + one_round(110, "paris") + one_round(120, "paris", stall_seconds=1.5)
BEHIND = one_round(110, "tokyo", overlap_seconds=4, seconds=3, stall_seconds=0.5)
OTHERS = (
    line(99, "coordinator", "join", who="rome")
    + line(105, "coordinator", "leave", who="rome")
    + line(111, "coordinator", "join", who="rome")
    + line(121, "coordinator", "round", members=["rome", "paris"], seconds=1)
)


def make(text: str, folder: Path) -> timeline.Timeline:
    (folder / "e.jsonl").write_text(text)
    return timeline.make(timeline.read([folder / "e.jsonl"])[0])


def test_a_site_computes_waits_and_exchanges(tmp_path: Path) -> None:
    (paris, tokyo) = make(PARIS, tmp_path).rows
    assert paris.present == [(100, 120)] and paris.rounds == 2
    assert paris.spans == [
        Span("compute", 100, 107), Span("waiting", 107, 109), Span("exchange", 109, 110),
        Span("compute", 110, 118.5), Span("waiting", 118.5, 119), Span("exchange", 119, 120),
    ]  # fmt: skip
    assert tokyo.present == [(110, 120)] and tokyo.spans == [], "seen as a member alone"


def test_a_round_behind_the_training_costs_the_wait_for_its_merge(tmp_path: Path) -> None:
    tokyo = next(row for row in make(line(100, "tokyo", "join") + BEHIND, tmp_path).rows if row.site == "tokyo")
    assert tokyo.spans == [Span("compute", 100, 109.5), Span("waiting", 109.5, 110), Span("behind", 106, 109)]


def test_a_coordinators_events_show_sites_that_come_and_go(tmp_path: Path) -> None:
    told = make(PARIS + OTHERS, tmp_path)
    rome = next(row for row in told.rows if row.site == "rome")
    assert rome.present == [(99, 105), (111, 121)]
    assert (told.start, told.end) == (99, 121)


def test_cut_lines_are_skipped_and_reported(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    events = tmp_path / "paris.jsonl"
    events.write_text(PARIS[: len(line(100, "paris", "join")) + 40] + "\n" + PARIS + '{"t": 1, "site"')
    other = tmp_path / "tokyo.jsonl"
    other.write_text(BEHIND + OTHERS)
    out = tmp_path / "timeline.png"
    done = collab("plot", str(events), str(other), "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert f"{events}: lines 2, 6 skipped: cut off, or not an event" in done.stderr
    assert out.read_bytes().startswith(b"\x89PNG") and done.stdout == f"collab: {out}: 3 sites, 22.0 s\n"


def test_a_file_that_cannot_be_drawn_is_explained(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no events\n")
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "matplotlib.py").write_text("raise ImportError('none here')")
    out = str(tmp_path / "x.png")
    none = collab("plot", str(tmp_path / "empty.jsonl"), "--out", out, PYTHONPATH=str(tmp_path))
    assert none.returncode == 1 and "pip install matplotlib" in none.stderr, none.stderr
    pytest.importorskip("matplotlib")
    (tmp_path / "paris.jsonl").write_text(PARIS)
    for name in ("p.xyz", "p.gif", "p"):
        odd = collab("plot", str(tmp_path / "paris.jsonl"), "--out", str(tmp_path / name))
        assert odd.returncode == 2 and f"{name}: expected a picture's name, .png, .svg or .pdf" in odd.stderr, (
            odd.stderr
        )
    for file, words in (
        ("notes.txt", "holds no event: expected a file that COLLAB_EVENTS_FILE has made"),
        ("empty.jsonl", "no site is in these events"),
        ("gone.jsonl", "cannot be read: No such file"),
    ):
        done = collab("plot", str(tmp_path / file), "--out", out)
        assert done.returncode == 1 and words in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_a_row_begins_when_the_coordinator_says_that_the_site_joined(tmp_path: Path) -> None:
    joins = line(90, "coordinator", "join", who="tokyo") + line(101, "coordinator", "join", who="tokyo")
    _, tokyo = make(joins + one_round(110, "tokyo") + line(120, "coordinator", "join", who="tokyo"), tmp_path).rows
    assert tokyo.present == [(101, 110)], "the last time before its first event"
    assert tokyo.spans[0] == Span("compute", 101, 107)
