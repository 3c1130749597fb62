"""The period that the swarm's leader chooses (COLLAB_SYNC_EVERY=auto): real torchruns over lines with a cap."""

from __future__ import annotations

import json

import pytest
from torchruns import Nodes

pytestmark = pytest.mark.slow

AUTO = {
    "COLLAB_SYNC_EVERY": "auto:4",
    "COLLAB_TARGET_OVERHEAD": "0.3",
    "COLLAB_MAX_MBIT_UP": "4",
    "COLLAB_CODEC": "fp16",
    "COLLAB_STRAGGLER_GRACE": "120s",
    "TEST_WIDTH": "300",
}


def events(nodes: Nodes, site: str, kind: str) -> dict[int, dict[str, int]]:
    """By round; a file may hold a coordinator's as well."""
    path = nodes.folder / f"{site}.jsonl"
    told = map(json.loads, path.read_text().splitlines()) if path.exists() else ()
    who = site if kind == "round" else "coordinator"
    return {event["round"]: event for event in told if event["event"] == kind and event["site"] == who}


def expect_one_period(nodes: Nodes, *sites: str) -> None:
    """Told alike to all after each round, and obeyed: so many steps were trained until the next."""
    rounds = {site: events(nodes, site, "round") for site in sites}
    of_round: dict[int, int] = {}
    for told in rounds.values():
        for number, event in told.items():
            assert of_round.setdefault(number, event["period"]) == event["period"], rounds
    for told in rounds.values():
        each = {
            (told[number + 1]["samples"] - event["samples"]) / event["period"]
            for number, event in told.items()
            if number + 1 in told
        }
        last_ends_early = {min(each)} if len(each) == 2 else set()  # the last round comes when training ends
        assert len(each - last_ends_early) == 1, rounds


def test_two_sites_settle_on_one_period_and_a_joiner_follows_it(nodes: Nodes) -> None:
    start = {"nnodes": "2:4", "nproc": 1}
    paris = nodes.start("paris", conf="is_host=1", **start, **AUTO)  # type: ignore[arg-type]
    rome = nodes.start("rome", conf="is_host=0", **start, **AUTO)  # type: ignore[arg-type]

    def settled() -> bool:
        told = list(events(nodes, "rome", "round").values())
        return len(told) > 3 and told[-1]["period"] == told[-2]["period"] != 4

    rome.wait_for(lambda _: settled())
    expect_one_period(nodes, "paris", "rome")
    chosen = events(nodes, "paris", "period") or events(nodes, "rome", "period")
    assert chosen, "the leader tells why"
    first = chosen[min(chosen)]
    assert first["period"] >= first["round_seconds"] / (0.3 * first["step_seconds"]) * 0.99

    oslo = nodes.start("oslo", conf="is_host=0", **start, **AUTO)  # type: ignore[arg-type]
    oslo.wait_for_rounds(4, "paris", "rome", "oslo")
    nodes.end_together(paris, rome, oslo)
    expect_one_period(nodes, "paris", "rome", "oslo")
