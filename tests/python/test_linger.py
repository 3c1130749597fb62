"""How long the coordinator's host waits at its end for sites that still train (COLLAB_LINGER)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from torch_collab import log, native
from torch_collab.network import linger


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that pass only while somebody waits; paris never leaves."""
    now = [100.0]

    def wait(_: object, seconds: float) -> str:
        now[0] += seconds
        return "paris trains on"

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(linger, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    monkeypatch.setattr(native, "wait_until_empty", wait)
    return now


@pytest.mark.parametrize("seconds", [0.0, 7.0, 600.0])
def test_the_wait_is_as_long_as_the_knob_says(
    clock: list[float], seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    linger.linger(object(), seconds, clock[0])
    assert clock[0] == pytest.approx(100.0 + seconds)
    assert log.flush()
    assert (
        f"after {seconds:.0f} s (COLLAB_LINGER) the coordinator stops although sites are still there: paris"
        in caplog.text
    )


def test_the_linger_ends_when_the_last_site_has_left(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "wait_until_empty", lambda *_: None)
    linger.linger(object(), 600.0, clock[0])
    assert clock[0] == 100.0


def test_agents_that_may_bring_sites_back_are_waited_for(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "wait_until_empty", lambda *_: None)
    linger.linger(object(), 600.0, clock[0], lambda: ["tokyo"] if clock[0] < 130 else [])
    assert clock[0] == pytest.approx(130, abs=0.5)
