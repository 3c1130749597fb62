"""Rules of ci/tidy.py about the protocol's state machines: the names that tests/model cites exist in the code, and the
table at a dispatcher's head has a row for each message."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

MEMBER = re.compile(r"\b([A-Z]\w+)::(\w+)")  # Class::function


def unknown_names(sources: Sequence[str], pages: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, int, str]]:
    """Page, line and name of each `Class::member` in `pages` that does not exist in `sources` (C++)."""
    known = {(match[1], match[2]) for text in sources for match in MEMBER.finditer(text)}

    def declared(owner: str, name: str) -> bool:
        is_of = re.compile(rf"\b(class|struct) {owner}\b[^;{{]*{{")
        return any(is_of.search(text) and re.search(rf"\b{name}\b", text) for text in sources)

    for path, lines in pages.items():
        for number, line in enumerate(lines, 1):
            for owner, name in MEMBER.findall(line):
                if (owner, name) not in known and not declared(owner, name):
                    yield path, number, f"{owner}::{name}"


def without_row(text: str) -> Iterator[tuple[int, str]]:
    """Line and name of each message that a dispatcher handles but the comment at its head does not name."""
    lines = text.splitlines()
    size = next((number for number, line in enumerate(lines) if not line.startswith("//")), len(lines))
    named = set(re.findall(r"\w+", "\n".join(lines[:size])))
    for number, line in enumerate(lines, 1):
        for name in re.findall(r"(?:const |get_if<|alternative<)wire::(?!Message\b)(\w+)[&>]", line):
            if name not in named:
                yield number, name
