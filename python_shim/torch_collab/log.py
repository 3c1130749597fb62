"""The shim's own log lines: `collab: …` on stderr, one line each, above the level COLLAB_LOG asks for."""

from __future__ import annotations

import sys

from torch_collab.escape import escaped

_LEVELS = {"debug": 0, "info": 1, "warning": 2, "error": 3, "off": 4}
_level = _LEVELS["info"]
_said: set[str] = set()


def set_level(name: str) -> None:
    global _level
    _level = _LEVELS.get(name, _LEVELS["info"])


def _say(level: str, message: str) -> None:
    if _LEVELS[level] < _level:
        return
    label = "" if level == "info" else f"{level}: "
    try:
        sys.stderr.write(f"collab: {label}{' | '.join(map(escaped, message.splitlines()))}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass  # stderr is closed; there is nobody to tell


def debug(message: str) -> None:
    _say("debug", message)


def info(message: str) -> None:
    _say("info", message)


def warning(message: str) -> None:
    _say("warning", message)


def warn_once(message: str) -> None:
    """A warning that is the same every step is said the first time only."""
    if message not in _said:
        _said.add(message)
        _say("warning", message)


def error(message: str) -> None:
    _say("error", message)
