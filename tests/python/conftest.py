"""Fixtures of the Python tests."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Real processes on a shared machine: one that fails is run once more, and the summary tells so.
    for item in items:
        if item.get_closest_marker("slow") or item.get_closest_marker("wan"):
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_configure(config: object) -> None:
    # A shell starts background jobs with Ctrl-C ignored, and what the tests start would inherit that.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "slow: takes more than ten seconds")  # type: ignore[attr-defined]
    config.addinivalue_line("markers", "wan: needs network namespaces and TUN")  # type: ignore[attr-defined]
