"""A rule of ci/tidy.py: code and texts for users must not use names that docs/glossary.md has replaced."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

OLD_WORDS = re.compile(
    r"\b(Meeting[A-Z]\w*|Form|Adopt|Adopted|Recess|Parted|Farewell|Unreached|Seldom|Surroundings|Likeness|Sketch"
    r"|Standing|OptimizerLoan|OptimizerWish|Bring|Taken|Seek|SeekSender|SenderFound|HubSeek|piece_bytes"
    r"|Borrower|RefuseBorrower|SeekOptimizer|HubUnsayable"
    r"|\w+_in_words|in_words|doubtful|[Oo]ptimiser\w*|[Cc]ohort\w*)\b"
)
# In documents and comments: ordinary words that used to stand for things of the project.
OLD_WORDS_OF_PROSE = re.compile(
    r"\b([Oo]ptimiser\w*|[Cc]ohorts?|[Hh]eralds?|[Mm]eetings?|[Ss]eats?|[Ll]ikeness|[Dd]oubtful|[Rr]ecess"
    r"|[Ff]arewells?|[Ss]urroundings|[Ww]hoever)\b"
)
# How a test's name must not begin, because it needs a subject ("ASiteThatLeaves…").
_NAMELESS = re.compile(
    r"^TEST(?:_F|_P)?\(\w+, *(Who|Whom|Whose|What|SoMany)[A-Z]|^def test_(who|whom|whose|what)_", re.MULTILINE
)
# As the event of a Note or Notice where it is compared or named, and in "[event] text" of tests.
OLD_EVENTS = re.compile(
    r"""(?:(?:\bLevel::k\w+,\s*|\bNotice[{` ]*|\b[Ee]vent[]"'=!:, ]*)["'`]|"\[)"""
    r"""(unreached|behind|shares|passed-over)["'`\]]"""
)
# Files that may contain old names: they list them, or they describe names that the wire and the model still use.
_OF_THEM = ("CHANGELOG.md", "docs/glossary.md", "tests/model/README.md")
_TESTS = "tests/tidy/"  # the tests of this rule
# Also words that a name may contain, but no sentence.
OLD_WORDS_OF_TEXT = re.compile(rf"{OLD_WORDS.pattern}|\b([Hh]eralds?|[Mm]eetings?|[Ss]eats?|[Ww]hoever)\b")
_LITERALS = re.compile(
    r"""//[^\n]*|/\*.*?\*/|'(?:\\.|[^'\\\n])'|R"(?P<end>[^(\s]*)\((?P<raw>.*?)\)(?P=end)"|"(?P<text>(?:\\.|[^"\\\n])*)\"""",
    re.DOTALL,
)


def old_words(text: str, words: re.Pattern[str] = OLD_WORDS) -> Iterator[tuple[int, str]]:
    """(line, word) of each old word in the text."""
    for number, line in enumerate(text.split("\n"), 1):
        if match := words.search(line):
            yield number, match.group()


def old_words_in_literals(text: str) -> Iterator[tuple[int, str]]:
    """The same for string literals of C++, which users read."""
    for literal in _LITERALS.finditer(text):
        line = text.count("\n", 0, literal.start())
        for number, word in old_words(literal["raw"] or literal["text"] or "", OLD_WORDS_OF_TEXT):
            yield line + number, word


def old_words_in_comments(text: str) -> Iterator[tuple[int, str]]:
    for match in _LITERALS.finditer(text):
        if match.group().startswith("/"):
            line = text.count("\n", 0, match.start())
            for number, word in old_words(match.group(), OLD_WORDS_OF_PROSE):
                yield line + number, word


def old_events(text: str) -> Iterator[tuple[int, str]]:
    for match in OLD_EVENTS.finditer(text):
        yield text.count("\n", 0, match.end()) + 1, match[1]


def found_in(path: str, text: str, code_only: Callable[[str], str]) -> Iterator[tuple[int, str]]:
    """`code_only`: a function that removes comments and literals from C++."""
    if path not in _OF_THEM and not path.startswith(_TESTS):
        yield from old_events(text)
        for match in _NAMELESS.finditer(text):
            yield text.count("\n", 0, match.start()) + 1, match[1] or match[2]
    if path.endswith(".py"):
        if path.startswith("python_shim/"):
            yield from old_words(text, OLD_WORDS_OF_TEXT)
        return
    if path.endswith(".md"):
        if path not in _OF_THEM:
            yield from old_words(text, OLD_WORDS_OF_PROSE)
        return
    yield from old_words_in_comments(text)
    yield from old_words(code_only(text))
    if not path.startswith("tests/"):
        yield from old_words_in_literals(text)
