"""Checks tests/RULES.md: every rule of the protocol and every knob has a row, and the tests that it names exist.

Used by ci/tidy.py. All functions here work on texts, not on files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

PAGE = "tests/RULES.md"
PROTOCOL = "docs/protocol/"  # its pages; plugin/PROTOCOL.md is their index
KNOBS = "plugin/core/base/knobs.cpp"


def protocol_rules(text: str) -> Iterator[str]:
    """Each heading, each paragraph with a name in bold, each numbered item: "Section / Part / Paragraph / 2"."""
    section = part = paragraph = ""
    fenced = False
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        number = ""
        if fenced:
            continue
        if match := re.match(r"# (.+)", line):
            section, part, paragraph = match.group(1), "", ""
        elif match := re.match(r"## (.+)", line):
            part, paragraph = match.group(1), ""
        elif match := re.match(r"\*\*([^*]+?)[.,:]?\*\*", line):
            paragraph = match.group(1)
        elif match := re.match(r"(\d+)\. ", line):
            number = match.group(1)
        else:
            continue
        yield " / ".join(each for each in (section, part, paragraph, number) if each)


def knob_names(text: str) -> list[str]:
    return re.findall(r'^ *\{\{\.name = "(\w+)"', text.partition("kRows")[2], re.MULTILINE)


def tests_in(path: str, text: str) -> Iterator[str]:
    """The tests as `Suite.Name`, or `test_file.py::test_name`."""
    if path.endswith(".py"):
        for name in re.findall(r"^def (test_\w+)\(", text, re.MULTILINE):
            yield f"{path.rpartition('/')[2]}::{name}"
    for suite, name in re.findall(r"\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\s*\)", text):
        yield f"{suite}.{name}"


def unknown_tests(text: str, tests: Iterable[str]) -> Iterator[tuple[int, str]]:
    """(line, test) of the C++ tests that a page names as `Suite.Name` or `Suite.*` and that do not exist."""
    known = set(tests)
    known |= {f"{name.partition('.')[0]}.*" for name in known}
    for number, line in enumerate(text.splitlines(), 1):
        for name in re.findall(r"`([A-Z]\w*\.(?:[A-Z]\w*|\*))`", line):
            if name not in known:
                yield number, name


def differences(page: str, protocol: str, knobs: str, tests: Iterable[str]) -> Iterator[tuple[int, str]]:
    """(line of the page, what is wrong there)."""
    known = set(tests)
    wanted = [*protocol_rules(protocol), *(f"`{name}`" for name in knob_names(knobs))]
    rows: set[str] = set()
    for number, line in enumerate(page.splitlines(), 1):
        row = re.fullmatch(r"\| (.+?) \| (.*) \|", line)
        if row is None or row.group(1) in ("rule", "knob"):
            continue
        name, named = row.group(1), re.findall(r"`([^`]+)`", row.group(2))
        if name not in wanted:
            yield number, f"{name}: neither a rule of {PROTOCOL} nor a knob is called so"
        if name in rows:
            yield number, f"{name} has two rows"
        rows.add(name)
        if not named:
            yield number, f"{name}: name a test that fails without it"
        for test in named:
            if test not in known:
                yield number, f"{name}: there is no test {test}"
    for name in wanted:
        if name not in rows:
            yield 1, f"{name} has no row: name a test that fails without it"
