"""Compares docs/messages.md with the codes at the end of messages: "[join.model-mismatch]", an area, a dot, a name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

PAGE = "docs/messages.md"
_NAME = r"[a-z][a-z0-9]*\.[a-z][a-z0-9-]*"
_CODE = re.compile(rf"\[({_NAME})\]")
_ROW = re.compile(rf"\| `({_NAME})` \|")


def literals(path: str, text: str) -> Iterator[tuple[int, str]]:
    """(line, text) of each string literal; in Python without docstrings."""
    if path.endswith(".py"):
        nodes = list(ast.walk(ast.parse(text)))
        docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                yield node.lineno, node.value
        return
    for number, line in enumerate(text.splitlines(), 1):
        for literal in re.findall(r'"(?:\\.|[^"\\])*"', "" if line.lstrip().startswith("//") else line):
            yield number, literal


def differences(page: str, sources: Iterable[tuple[str, str]]) -> Iterator[tuple[str, int, str]]:
    """(path, line, what to do)"""
    used: dict[str, tuple[str, int]] = {}
    for path, text in sources:
        for number, literal in literals(path, text):
            for code in _CODE.findall(literal):
                first, _ = used.setdefault(code, (path, number))
                if first != path:
                    yield path, number, f"[{code}] is a message of {first} too: each cause has a code of its own"
    listed: dict[str, int] = {}
    for number, line in enumerate(page.splitlines(), 1):
        if not (row := _ROW.match(line)):
            continue
        code = row.group(1)
        if code in listed:
            yield PAGE, number, f"[{code}] is listed in line {listed[code]} too"
        elif code not in used:
            yield PAGE, number, f"[{code}] is in no message: take the row out"
        listed.setdefault(code, number)
    for code, (path, number) in used.items():
        if code not in listed:
            yield path, number, f"[{code}] is not in {PAGE}: write its cause and remedy there"
