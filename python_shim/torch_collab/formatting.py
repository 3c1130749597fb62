"""Numbers and lists in sentences for people."""

from __future__ import annotations

from collections.abc import Sequence


def plural(noun: str, count: int) -> str:
    return noun if count == 1 else noun + "s"


def counted(count: int, noun: str) -> str:
    return f"{count} {plural(noun, count)}"


def listed(names: Sequence[str], most: int = 16) -> str:
    """The names, at most `most` of them."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
