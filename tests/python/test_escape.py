"""What comes from peers reaches terminals as text, not as orders."""

from __future__ import annotations

import pytest
from torch_collab import log, native
from torch_collab.cli import main, status
from torch_collab.escape import escaped
from torch_collab.rendezvous import gathering
from torch_collab.world import topology

ORDERS = "\x1b[2J\r\n\u202esirap\x9b\u200b\U000e0041"
SHOWN = r"\x1b[2J\x0d\n\u202esirap\x9b\u200b\U000e0041"


def test_orders_are_shown() -> None:
    assert escaped(ORDERS) == SHOWN
    assert escaped(SHOWN) == SHOWN, "once"
    assert escaped("Zürich 東京") == "Zürich 東京"


def test_status_shows_names_as_they_are() -> None:
    lines = status.render({"run": ORDERS, "sites": [{"site": ORDERS, "reasons": [ORDERS]}], ORDERS: 1}).splitlines()
    assert lines[0] == f"run: {SHOWN}"
    assert len(lines) == 6 and all(escaped(line) == line for line in lines)


def test_messages_between_ranks_and_nodes() -> None:
    told = topology.Place.decode(topology.Place(ORDERS, None, ORDERS, ORDERS, "1", {}, error=ORDERS).encode())
    assert {told.site, told.hostname, told.boot, told.error} == {SHOWN}
    assert str(gathering.GatheringError(f"site {ORDERS}")) == f"site {SHOWN}"


def test_the_log_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    log.warning(f"site {ORDERS}\nsecond")
    assert log.flush()
    told = caplog.records[-1].getMessage()
    assert told.startswith("site \\x1b[2J") and told.endswith("| second")
    assert escaped(told) == told


def test_errors_of_commands_and_of_the_core(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @native._prefix_errors
    def ask(*_: object) -> str:
        raise RuntimeError(f"the coordinator said: {ORDERS}")

    with pytest.raises(RuntimeError) as raised:
        ask()
    assert str(raised.value) == f"collab: the coordinator said: {SHOWN}"
    monkeypatch.setattr(native, "query_status", ask)
    assert main(["status", "127.0.0.1:1"]) == 1
    assert capsys.readouterr().err == f"collab: the coordinator said: {SHOWN}\n"
