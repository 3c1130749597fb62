"""Fixtures of the Python tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))


def pytest_configure(config: object) -> None:
    config.addinivalue_line("markers", "slow: takes more than ten seconds")  # type: ignore[attr-defined]
