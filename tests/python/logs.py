"""What the shim logs, for tests that look at it."""

from __future__ import annotations

import pytest
from torch_collab import log


def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is logged from here on. pytest's own log stays empty once another test has loaded the core, which has a
    level of its own."""
    told: list[str] = []
    monkeypatch.setattr(log, "_say", lambda level, message: told.append(message))
    return told
