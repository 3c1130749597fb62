"""How long the coordinator's host waits at its end for sites that still train (COLLAB_LINGER)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from torch_collab import log, native
from torch_collab.world import coordinator
from torch_collab.world.hub import Hub


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that pass only while somebody waits; paris never leaves."""
    now = [100.0]

    def wait(_: object, seconds: float) -> str:
        now[0] += seconds
        return "paris trains on"

    monkeypatch.setattr(coordinator, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(native, "wait_until_empty", wait)
    return now


def linger(seconds: float) -> None:
    info: Any = SimpleNamespace(config=SimpleNamespace(linger=seconds, join_timeout=60.0))
    coordinators = coordinator.Coordinators(info, Hub(info))
    coordinators.server = object()  # type: ignore[assignment]
    coordinators.linger()


@pytest.mark.parametrize("seconds", [0.0, 7.0, 600.0])
def test_the_wait_is_as_long_as_the_knob_says(
    clock: list[float], seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    linger(seconds)
    assert clock[0] == pytest.approx(100.0 + seconds)
    assert log.flush()
    assert f"after {seconds:.0f} s (COLLAB_LINGER) the coordinator stops although sites are there: paris" in caplog.text


def test_it_ends_when_the_last_site_has_left(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "wait_until_empty", lambda *_: None)
    linger(600.0)
    assert clock[0] == 100.0
