"""A token is replaced while two sites train, and a third joins with the new one: all go on, with new links."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

import pytest
from commands import PATIENCE, Coordinator, collab
from ranks import Ranks

pytestmark = pytest.mark.slow

SETTINGS = {
    "COLLAB_SYNC_EVERY": "10",
    "COLLAB_HEARTBEAT": "500ms",
    "COLLAB_LISTEN": "127.0.0.1:0",
    "COLLAB_JOIN_TIMEOUT": "60s",
    "TORCHELASTIC_RESTART_COUNT": "0",
}


def write(path: Path, text: str) -> None:
    """As a careful administrator does: there is no moment in which it is half there."""
    fresh = path.with_name(path.name + ".copy")
    fresh.write_text(text)
    fresh.chmod(0o600)
    fresh.rename(path)


def last_round(site: Ranks) -> int:
    lines = [line for line in site.output(0).splitlines() if "] step " in line]
    return max((int(line.rpartition(" round ")[2]) for line in lines), default=0)


def wait_for_rounds(site: Ranks, more: int) -> None:
    site.wait_for_line(0, f"round {last_round(site) + more}")


def test_a_token_is_replaced_while_sites_train(tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name}.key" for name in ("coordinator", "paris", "rome", "lima", "old")}
    assert collab("token", "--out", str(files["coordinator"])).returncode == 0
    old = files["coordinator"].read_text()
    for name in ("paris", "rome", "old"):
        write(files[name], old)
    with contextlib.ExitStack() as stack:
        coordinator = stack.enter_context(
            Coordinator(
                "--sites",
                "2",
                **SETTINGS,
                COLLAB_TOKEN_FILE=str(files["coordinator"]),
                COLLAB_EVENTS_FILE=str(tmp_path / "events"),
            )
        )

        def start(site: str, number: int) -> Ranks:
            environment = {
                **SETTINGS,
                "COLLAB_TOKEN_FILE": str(files[site]),
                "COLLAB_COORDINATOR": coordinator.address,
                "COLLAB_SITE": site,
                "TEST_DATA": str(number),
            }
            return stack.enter_context(Ranks("torchrun.py", [str(tmp_path)], [environment]))

        def status(name: str) -> str:
            asked = collab("status", coordinator.address, COLLAB_TOKEN_FILE=str(files[name]))
            return asked.stdout if asked.returncode == 0 else ""

        paris, rome = start("paris", 0), start("rome", 1)
        wait_for_rounds(paris, 3)
        assert collab("token", "--rotate", str(files["coordinator"])).returncode == 0
        both = files["coordinator"].read_text()
        new = both.split()[0] + "\n"
        assert both.split() == [new.strip(), old.strip()]
        for name in ("paris", "rome"):
            write(files[name], both)
        write(files["lima"], new)
        lima = start("lima", 2)
        lima.wait_for_line(0, "] step ")
        wait_for_rounds(paris, 3)
        assert "lima" in status("lima")
        assert status("old"), "the older one is accepted, too"
        for name in ("coordinator", "paris", "rome"):
            write(files[name], new)
        deadline = time.monotonic() + PATIENCE
        while status("old"):  # files are looked at once a second
            assert time.monotonic() < deadline, "the old token is let in"
        for site in (paris, rome):  # their links were made with it, and move over
            site.wait_for_line(0, f"tcp: the link to {coordinator.address} has a connection again after")
        wait_for_rounds(paris, 5)
        assert all(name in status("lima") for name in ("paris", "rome", "lima"))
        events = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
        assert not [event for event in events if event["event"] == "leave"], "links went on where they were"
        last = last_round(paris) + 5
        write(tmp_path / "stop", str(last))
        ended = [site.join()[0] for site in (paris, rome, lima)]
        assert [each.status for each in ended] == [0, 0, 0], [each.output[-3000:] for each in ended]
        assert len({each.output.rpartition(" digest ")[2].strip() for each in ended}) == 1
