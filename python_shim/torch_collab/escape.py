"""Makes text from peers, files and other libraries safe for a terminal."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

# Control characters, marks of direction or of no width, surrogates, line separators.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def escaped(text: str) -> str:
    """For one line: characters that are not printable become hexadecimal (\\x1b, \\u202e), as in the core's log."""
    return "".join(_escape(c) if unicodedata.category(c) in _HIDDEN else c for c in text)


def _escape(character: str) -> str:
    code = ord(character)
    if character == "\n":
        return "\\n"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def from_json(text: str | bytes) -> Any:
    """Reads JSON from peers or a file. Raises ValueError for text that is not JSON or is nested too deep."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def first_line(error: BaseException) -> str:
    """An error's message in one line; its type if it has no message."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
