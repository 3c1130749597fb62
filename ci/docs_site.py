"""Prepares the documents for MkDocs: pages that lie elsewhere in the tree, and parts that the program generates.

MkDocs calls the functions here (`hooks` of mkdocs.yml). A page of INCLUDED is a file, read where it lies. Links between
files of the tree become links between pages. A link to a file that is no page is replaced by its text, and a link to
nothing is an error. Markers in a page, each a comment on its own line:

    <!-- include: FILE#SECTION -->    a section of a file, without its heading
    <!-- commands -->                 the command line, as argparse describes it
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from posixpath import normpath, relpath
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
DOCS = "docs/"

# Page: file.
INCLUDED = {
    "index.md": "README.md",
    "security.md": "SECURITY.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "architecture.md": "plugin/README.md",
    "protocol.md": "plugin/PROTOCOL.md",
    "lab.md": "plugin/tools/README.md",
    "tests.md": "tests/README.md",
    "benchmarks.md": "tests/bench/README.md",
}
_PAGES = {file: page for page, file in INCLUDED.items()}

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|`[^`]*`)*)\]\(([^()\s]+)\)")
_FENCE = re.compile(r"^( *)(```|~~~)")


def on_files(files: Files, config: Any) -> Files:
    for page, file in INCLUDED.items():
        files.append(File.generated(config, page, content=(ROOT / file).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    uri = page.file.src_uri
    return rendered(markdown, INCLUDED.get(uri, DOCS + uri), uri)


def rendered(markdown: str, file: str, page: str) -> str:
    """The text of a file of the tree as it appears in a page."""
    lines = [line if code else _line(line, file, page) for line, code in _lines(markdown)]
    text = "\n".join(lines)
    # Folded parts contain tables, which need Markdown inside.
    return text.replace("<details>", '<details markdown="1">')


def _line(line: str, file: str, page: str) -> str:
    if line == "<!-- commands -->":
        return "\n".join(commands())
    if match := re.fullmatch(r"<!-- include: (\S+)#(\S+) -->", line):
        source, section = match.groups()
        return rendered(_section(source, section), source, page)
    # Nested lists are indented by two spaces for GitHub, by four for MkDocs.
    line = re.sub(r"^( +)(?=[-*] )", r"\1\1", line)
    return _LINK.sub(lambda match: _link(match, file, page), line)


def _lines(markdown: str) -> Iterator[tuple[str, bool]]:
    """(line, whether it is code)"""
    fence = ""
    for line in markdown.split("\n"):
        match = _FENCE.match(line)
        if fence:
            yield line, True
            fence = "" if match and match.group(2) == fence else fence
        else:
            fence = match.group(2) if match else ""
            yield line, bool(fence)


def _link(match: re.Match[str], file: str, page: str) -> str:
    image, words, target = match.groups()
    if re.match(r"[a-z]+:|#", target):
        return match.group()
    path, mark, anchor = target.partition("#")
    there = normpath(f"{Path(file).parent}/{path}")
    if not (ROOT / there).exists():
        raise PluginError(f"{file} links to {target}: there is no {there}")
    to = _page_of(there)
    return f"{image}[{words}]({relpath(to, Path(page).parent.as_posix())}{mark}{anchor})" if to else words


def _page_of(file: str) -> str | None:
    if file in _PAGES:
        return _PAGES[file]
    if file.startswith(DOCS):
        return file.removeprefix(DOCS) if (ROOT / file).is_file() else f"{file.removeprefix(DOCS)}/README.md"
    return None


def _section(file: str, section: str) -> str:
    """The text under the heading with that anchor."""
    text = (ROOT / file).read_text("utf-8")
    depth, found = 0, []
    for line, code in _lines(text):
        heading = None if code else re.match(r"(#+) (.+)", line)
        if depth and heading and len(heading.group(1)) <= depth:
            break
        if depth:
            found.append(line)
        elif heading and anchor_of(heading.group(2)) == section:
            depth = len(heading.group(1))
    if not found:
        raise PluginError(f"{file} has no section {section}")
    return "\n".join(found)


def anchor_of(heading: str) -> str:
    """The anchor that GitHub makes from a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def commands() -> Iterator[str]:
    from torch_collab.cli import parser

    for action in parser()._actions:
        if not isinstance(action, argparse._SubParsersAction):
            continue
        about = {choice.dest: choice.help for choice in action._choices_actions}
        for name, sub in action.choices.items():
            sentence = about[name] or ""
            yield f"## `collab {name}`\n\n{sentence[:1].upper()}{sentence[1:]}.\n"
            if name == "lab":  # lab parses its own command line
                yield "See [the lab](../lab.md).\n"
                continue
            sub.formatter_class = _Wide
            yield f"```text\n{sub.format_help().strip()}\n```\n"


class _Wide(argparse.RawDescriptionHelpFormatter):
    """A fixed width, whatever terminal builds the documents."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30, width=110)
