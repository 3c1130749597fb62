"""A rule of ci/tidy.py: names that docs/glossary.md has replaced."""

from __future__ import annotations

import re
from collections.abc import Iterator

OLD_WORDS = re.compile(
    r"\b(Meeting[A-Z]\w*|Form|Adopt|Adopted|Recess|Parted|Farewell|Unreached|Seldom|Surroundings|Likeness|Sketch"
    r"|Standing|OptimizerLoan|OptimizerWish|Bring|Taken|Seek|SeekSender|SenderFound|HubSeek|piece_bytes"
    r"|\w+_in_words|in_words|doubtful|[Oo]ptimiser\w*|[Cc]ohort\w*)\b"
)


def old_words(text: str) -> Iterator[tuple[int, str]]:
    """(line, word) of each line that has one."""
    for number, line in enumerate(text.split("\n"), 1):
        if match := OLD_WORDS.search(line):
            yield number, match.group()
