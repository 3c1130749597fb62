"""What comes from peers, files and other libraries, as a terminal may see it."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

# Controls, marks of direction or without room, halves of characters, line separators.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def escaped(text: str) -> str:
    """For one line: what is not printable in hexadecimal (\\x1b, \\u202e), as the core's log has it."""
    return "".join(_escape(c) if unicodedata.category(c) in _HIDDEN else c for c in text)


def _escape(character: str) -> str:
    code = ord(character)
    if character == "\n":
        return "\\n"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def from_json(text: str | bytes) -> Any:
    """What peers or a file tell. Raises ValueError for what is no JSON, and for what is nested too deep to be read."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def first_line(error: BaseException) -> str:
    """What an error says, in one line; its type where it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
