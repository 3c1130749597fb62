#!/usr/bin/env python3
"""Checks the project's own rules: arrows, rooms, bans, sizes, dead files, headers, changelog, knob table.

    ci/tidy.py [--root DIR]     prints every violation as `path:line: rule: what to do`; exit status 1 when there is one
    ci/tidy.py --write-knobs    writes the documents' tables and Python's fields from the program's knob table

Each rule is a function from a Tree to problems, listed in RULES; tests/tidy tests each rule on a small tree.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import codes_page  # beside this file
import knob_files  # likewise
import rules_model
import rules_page
import rules_shim
import rules_torch
import rules_words

MAX_FILE_LINES = 600  # aim for about 500; a warning beyond
WARN_FILE_LINES = 500
MAX_FUNCTION_LINES = 80  # aim for about 70
WARN_FUNCTION_LINES = 70

CODE = (".h", ".cpp", ".py", ".sh")
SKIPPED_FOLDERS = {".git", ".venv", "build", "dist", "out", "node_modules"}

_MACHINE = {"core/base", "core/wire", "core/protocol", "core/protocol/agreement"}
# Which folders of plugin/ a folder may include from, besides itself; all may include `collab/...` headers.
ARROWS: dict[str, set[str]] = {
    "core/base": set(),
    "core/wire": {"core/base"},
    "core/protocol": {"core/base", "core/wire", "core/codec"},
    "core/protocol/exchange": {"core/base", "core/wire", "core/protocol"},
    "core/protocol/allocation": {"core/base", "core/protocol/exchange"},
    "core/protocol/agreement": {"core/base", "core/wire", "core/protocol"},
    "core/protocol/coordinator": _MACHINE | {"core/protocol/allocation"},
    "core/protocol/site": _MACHINE,
    "core/protocol/collectives": _MACHINE,
    "core/codec": {"core/base"},
    "core/reduce": {"core/base"},
    "core/outer": {"core/base"},
    "core/arena": {"core/base"},
    "core/runtime": {
        *(f"core/{part}" for part in ("base", "wire", "protocol", "codec", "reduce", "outer", "arena")),
        *("core/protocol/*", "core/runtime/*"),
    },
    "core/runtime/tensors": {"core/base", "core/wire", "core/codec"},
    "core/runtime/storage": {
        *(
            f"core/{part}"
            for part in (
                *("base", "wire", "protocol", "protocol/agreement", "protocol/site", "arena", "codec"),
                "runtime/tensors",
            )
        ),
    },
    "core/runtime/data": {
        *(f"core/{part}" for part in ("base", "wire", "protocol", "codec", "reduce", "outer", "arena")),
        *("core/protocol/*", "core/runtime/tensors", "core/runtime/storage"),
    },
    "transport/choice": {"core/base"},
    "transport/ucx": {"core/base"},
    "transport/ucx/engine": {"core/base", "transport/ucx"},
    "transport/tcp": {"core/base"},
    "transport/tcp/wire": {"core/base"},
    "transport/tcp/tls": {"core/base", "transport/tcp"},
    "transport/tcp/session": {"core/base", "transport/tcp/wire"},
    "transport/tcp/connection": {f"transport/tcp/{part}" for part in ("wire", "tls", "session")} | {"core/base"},
    "transport/tcp/pace": {"core/base"},
    "transport/tcp/link": {f"transport/tcp/{part}" for part in ("wire", "session", "connection", "pace")}
    | {"core/base"},
    "transport/tcp/engine": {"core/base", "transport/tcp", "transport/tcp/*"},
    "transport/gloo": {"core/base"},
    "torch": {"core/*", "transport/*", "tools/page"},
    "tools": {"core/*", "transport/*", "tools/page"},
    "tools/page": {"core/base", "transport/tcp"},
    "tools/lab": {"core/base"},
}

# Third-party libraries, and the only places that may include them.
ROOMS: list[tuple[str, tuple[str, ...]]] = [
    (
        r"(torch|ATen|c10|pybind11)/",
        ("plugin/torch/", "plugin/transport/gloo/", "include/collab/torch/", "tests/torch/", "tests/bench/torch/"),
    ),
    (r"(c10|ATen|torch/csrc|torch)/(\w+/)*(cuda|nccl)/|torch/.*(CUDA|NCCL)|cuda|nccl", ()),  # one build for all torches
    (r"(spdlog|fmt)/", ("plugin/core/base/log.cpp",)),
    (r"(ucp|ucs|uct|ucm)/", ("plugin/transport/ucx/", "tests/transport/ucx")),
    (r"boost/(asio|beast)", ("plugin/transport/tcp/", "plugin/tools/page/")),
    (r"boost/interprocess/", ("plugin/core/arena/",)),
    (r"boost/program_options", ("plugin/tools/",)),
    (r"boost/(?!asio|beast|interprocess/|program_options)", ("plugin/core/base/",)),
    (r"xxhash", ("plugin/core/base/", "tests/unit/base/")),
    (r"openssl/", ("plugin/transport/tcp/", "plugin/core/base/", "plugin/tools/page/", "tests/unit/")),
]

DETERMINISTIC = tuple(f"plugin/core/{part}/" for part in ("wire", "protocol", "codec", "reduce", "outer"))
CLOCKS_AND_CHANCE = [
    (r"\b(system_clock|steady_clock|high_resolution_clock|SteadyClock)\b", "reads a clock"),
    (r"\b(clock_gettime|gettimeofday|time)\s*\(\s*(NULL|nullptr|0|CLOCK)", "reads a clock"),
    (r"\b(sleep_for|sleep_until|usleep|nanosleep)\b", "sleeps"),
    (r"\b(random_device|mt19937|rand|srand|random_shuffle)\b", "is random"),
    (r"\bgetenv\b", "reads the environment"),
    (r"\bunordered_(multi)?(map|set)\b", "has an order that differs between machines"),
]
SLEEPS = re.compile(r"\b(sleep_for|sleep_until|usleep|nanosleep|time\.sleep|asyncio\.sleep)\b")
# Bounded polls: they wait for real sockets or processes, and nothing could wake them.
MAY_POLL = {
    "tests/python/ranks.py",
    "tests/python/scripts/besieged.py",  # makes calls at a fixed pace
    "tests/python/scripts/folds.py",  # trains at a fixed pace
    "tests/python/scripts/generations.py",  # the same
    "tests/python/scripts/guest.py",
    "tests/python/scripts/lab_probe.py",  # sends at a fixed pace
    "tests/python/scripts/nat_site.py",  # trains at a fixed pace
    "tests/python/scripts/restarted.py",  # waits until another rank is in a call
    "tests/python/scripts/torchrun.py",
    "tests/python/scripts/worldwide.py",
    "tests/python/test_elastic.py",
    "tests/python/test_page.py",  # asks for the page again and again, as a browser does
    "tests/python/test_examples.py",
    "tests/python/test_quickstart.py",
    "tests/bench/bench_auto.py",  # trains at a fixed pace
    "tests/bench/bench_overlap.py",  # the same
    "tests/bench/bench_wait.py",  # the same
    "tests/bench/bench_recovery.py",
    "tests/bench/in_process.py",
    "tests/python/hostiles.py",
    "tests/python/test_hostile.py",
    "tests/python/test_strangers.py",  # newcomers are as far away as light makes them
    "tests/python/labs.py",
    "tests/python/torchruns.py",
    "tests/integration/overlap_ranks_test.cpp",  # one rank is slow
    "tests/integration/overlap_test.cpp",  # trains at a fixed pace
    "tests/transport/conformance.cpp",
    "tests/transport/recorder.cpp",
    "tests/transport/tcp_world.h",
    "tests/transport/ucx_test.cpp",
}

UNFINISHED = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3, "HA" + "CK")) + r")\b")
MACHINE_PATH = re.compile(r"(?<![\w.$}\])/-])/(work|root|home/[a-z]\w*|Users/\w+)/\w")
SELF = ("ci/tidy.py", "tests/tidy/")  # these name what they forbid


@dataclass(frozen=True)
class Problem:
    path: str
    line: int
    rule: str
    text: str
    warning: bool = False

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {'warning: ' if self.warning else ''}{self.rule}: {self.text}"


class Tree:
    """The project's files: those that git knows or would add, or, without git, those on disk."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._texts: dict[str, str] = {}

    @cached_property
    def files(self) -> list[str]:
        if (self.root / ".git").exists():
            command = ["git", "ls-files", "-co", "--exclude-standard"]
            names = subprocess.run(command, cwd=self.root, check=True, capture_output=True, text=True).stdout.split(
                "\n"
            )
            return sorted(name for name in names if name and (self.root / name).is_file())
        found = []
        for folder, subfolders, names in os.walk(self.root):
            subfolders[:] = [s for s in subfolders if s not in SKIPPED_FOLDERS]
            found += [str((Path(folder) / name).relative_to(self.root)) for name in names]
        return sorted(found)

    def named(self, *suffixes: str, under: str | tuple[str, ...] = "") -> list[str]:
        return [f for f in self.files if f.endswith(suffixes) and f.startswith(under)]

    def text(self, path: str) -> str:
        if path not in self._texts:
            self._texts[path] = (self.root / path).read_text(encoding="utf-8", errors="replace")
        return self._texts[path]

    def lines(self, path: str) -> list[str]:
        return self.text(path).splitlines()


Rule = Callable[[Tree], Iterator[Problem]]
RULES: list[Rule] = []


def rule(check: Rule) -> Rule:
    RULES.append(check)
    return check


def code_only(text: str) -> str:
    """C++ without comments and the contents of strings; line breaks stay."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.DOTALL)

    def blank(match: re.Match[str]) -> str:
        found = match.group()
        return '""' if found[0] == '"' else "\n" * found.count("\n")

    return pattern.sub(blank, text)


def includes(tree: Tree, path: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(tree.lines(path), 1):
        if match := re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line):
            yield number, match.group(1)


@rule
def arrows(tree: Tree) -> Iterator[Problem]:
    """A folder includes only from itself and from the folders listed before it."""
    for path in tree.named(".h", ".cpp", under="plugin/"):
        folder = str(Path(path).parent.relative_to("plugin"))
        if folder not in ARROWS:
            yield Problem(path, 1, "arrows", f"plugin/{folder} is not in the map of layers (ARROWS)")
            continue
        for number, target in includes(tree, path):
            if not target.startswith(("core/", "transport/", "torch/", "tools/")) or target.startswith("torch/csrc"):
                continue
            to = str(Path(target).parent)
            allowed = ARROWS[folder]
            # torch's own <torch/...> looks like our plugin/torch; the rooms judge it.
            ours = to == "torch" and (tree.root / "plugin" / target).is_file()
            within = {f"{parent}/*" for parent in Path(to).parents}
            if to == folder or to in allowed or within & allowed or (to == "torch" and not ours):
                continue
            if to in ARROWS:
                yield Problem(path, number, "arrows", f"plugin/{folder} must not include from plugin/{to}")
    for path in tree.named(".h", under="include/collab/"):
        for number, target in includes(tree, path):
            if target.startswith(("core/", "transport/")):
                yield Problem(path, number, "arrows", "a public header must not include from plugin/")


def _shim(tree: Tree) -> dict[str, str]:
    return {path: tree.text(path) for path in tree.named(".py", under=f"{rules_shim.SHIM}/")}


@rule
def shim_arrows(tree: Tree) -> Iterator[Problem]:
    """The shim's imports form a graph without cycles whose arrows point down, and are at the top of each file."""
    for path, line, text in rules_shim.arrows(_shim(tree)):
        yield Problem(path, line, "shim arrows", text)


@rule
def shim_fields(tree: Tree) -> Iterator[Problem]:
    """Only a class's own module writes its fields."""
    for path, line, text in rules_shim.foreign_writes(_shim(tree)):
        yield Problem(path, line, "shim fields", text)


@rule
def guest_of_torch(tree: Tree) -> Iterator[Problem]:
    """One module and one header touch torch's private names, and say what they expect."""
    for path, source in _shim(tree).items():
        for line, text in rules_shim.private_uses(path, source):
            yield Problem(path, line, "guest of torch", text)
    for path in tree.named(".h", ".cpp", ".inc", under=("include/", "plugin/")):
        for line, text in rules_torch.private_includes(path, includes(tree, path), tree.root):
            yield Problem(path, line, "guest of torch", text)


@rule
def rooms(tree: Tree) -> Iterator[Problem]:
    """A third-party library is included only in its own room."""
    for path in tree.named(".h", ".cpp", under=("include/", "plugin/", "tests/")):
        for number, target in includes(tree, path):
            if (tree.root / "plugin" / target).is_file():
                continue  # our own header, whatever its name
            for pattern, places in ROOMS:
                if re.match(pattern, target) and not path.startswith(places):
                    where = f"belongs to {', '.join(places)}" if places else "is for nobody: APIs for any device do"
                    yield Problem(path, number, "rooms", f"<{target}> {where}")


@rule
def determinism(tree: Tree) -> Iterator[Problem]:
    """No clock, sleep, chance, environment or unordered container in code that makes bytes and decisions."""
    for path in tree.named(".h", ".cpp", under=DETERMINISTIC):
        for number, line in enumerate(code_only(tree.text(path)).split("\n"), 1):
            for pattern, why in CLOCKS_AND_CHANCE:
                if match := re.search(pattern, line):
                    yield Problem(path, number, "determinism", f"{match.group()} {why}; make it a parameter")


@rule
def words(tree: Tree) -> Iterator[Problem]:
    """Code, messages, comments and documents use the glossary's names."""
    documents = tree.named(".md")
    for path in [*tree.named(".h", ".cpp", ".py", under=("include/", "plugin/", "tests/", "python_shim/")), *documents]:
        for number, word in rules_words.found_in(path, tree.text(path), code_only):
            yield Problem(path, number, "words", f"{word}: docs/glossary.md has another word for it")


@rule
def no_sleeping_in_tests(tree: Tree) -> Iterator[Problem]:
    for path in tree.named(".h", ".cpp", ".py", under="tests/"):
        if path in MAY_POLL or path.startswith(SELF):
            continue
        for number, line in enumerate(tree.lines(path), 1):
            if SLEEPS.search(line):
                yield Problem(path, number, "sleep", "a test waits for an event or moves a clock, it does not sleep")


@rule
def file_length(tree: Tree) -> Iterator[Problem]:
    for path in tree.named(*CODE):
        count = len(tree.lines(path))
        if count > WARN_FILE_LINES:
            text = f"{count} lines; split it by what its parts do (about {WARN_FILE_LINES} are meant)"
            yield Problem(path, 1, "file length", text, warning=count <= MAX_FILE_LINES)


def cpp_functions(text: str) -> Iterator[tuple[int, int]]:
    """(first line, lines) of each function: clang-format closes a body at the indent of its declaration."""
    lines = code_only(text).split("\n")
    no_function = re.compile(r"^\s*(namespace|class|struct|enum|union|extern|using|#|\}|template <.*> struct)\b")
    control = re.compile(r"^\s*(if|else|for|while|do|switch|case|default|try|catch|return)\b")
    index = 0
    while index < len(lines):
        begin = index
        if lines[index].endswith("{") and not lines[index].endswith("= {"):
            while (
                begin > 0 and lines[begin - 1].strip() and not lines[begin - 1].rstrip().endswith((";", "{", "}", ":"))
            ):
                begin -= 1
            head = " ".join(lines[begin : index + 1])
            if ")" in head and not no_function.match(head) and not control.match(head):
                indent = re.match(r"\s*", lines[begin])
                close = re.compile(rf"^{indent.group() if indent else ''}\}}")
                end = next((i for i in range(index + 1, len(lines)) if close.match(lines[i])), index)
                yield begin + 1, end - begin + 1
                index = end
        index += 1


def python_functions(text: str) -> Iterator[tuple[int, int]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1


@rule
def function_length(tree: Tree) -> Iterator[Problem]:
    for path in tree.named(".h", ".cpp", ".py"):
        functions = python_functions if path.endswith(".py") else cpp_functions
        for line, count in functions(tree.text(path)):
            if count > WARN_FUNCTION_LINES:
                text = f"a function of {count} lines (about {WARN_FUNCTION_LINES} are meant)"
                yield Problem(path, line, "function length", text, warning=count <= MAX_FUNCTION_LINES)


@rule
def built(tree: Tree) -> Iterator[Problem]:
    """Every source is named in a CMakeLists.txt above it: a test that is never built proves nothing."""
    for path in tree.named(".cpp", under=("plugin/", "tests/")):
        source = Path(path)
        for folder in source.parents:
            listing = str(folder / "CMakeLists.txt")
            name = re.escape(str(source.relative_to(folder)))
            if listing in tree.files and re.search(rf"(?<![\w./-]){name}(?![\w.-])", tree.text(listing)):
                break
        else:
            yield Problem(path, 1, "built", "named in no CMakeLists.txt")
    for path in tree.named("CMakeLists.txt", ".cmake"):
        for number, line in enumerate(tree.lines(path), 1):
            if re.search(r"file\s*\(\s*GLOB", line):
                yield Problem(path, number, "built", "name the files instead of globbing")


@rule
def headers(tree: Tree) -> Iterator[Problem]:
    """A header begins with its purpose; public and core headers also say which threads may use them."""
    for path in tree.named(".h"):
        lines = tree.lines(path)
        if not lines or not lines[0].startswith("// "):
            yield Problem(path, 1, "headers", "open with a comment: purpose, threads, ownership")
            continue
        if "#pragma once" not in lines:
            yield Problem(path, 1, "headers", "#pragma once is missing")
        opening = (
            " ".join(line for line in lines[: lines.index("#pragma once")] if line.startswith("//"))
            if ("#pragma once" in lines)
            else lines[0]
        )
        if path.startswith(("include/", "plugin/")) and "thread" not in opening.lower():
            yield Problem(path, 1, "headers", "the opening comment says nothing of threads")


@rule
def python_docstrings(tree: Tree) -> Iterator[Problem]:
    for path in tree.named(".py", under=("python_shim/", "ci/", "examples/")):
        if tree.text(path).strip() and ast.get_docstring(ast.parse(tree.text(path))) is None:
            yield Problem(path, 1, "docstring", "open the module with what it is for")


@rule
def shell(tree: Tree) -> Iterator[Problem]:
    """A script stops at the first failure, and hides no errors."""
    for path in tree.named(".sh", under=("ci/", ".ci/", "tests/", "examples/")):
        text = tree.text(path)
        if "set -euo pipefail" not in text and "common.sh" not in text:
            yield Problem(path, 1, "shell", "set -euo pipefail is missing")
        for number, line in enumerate(text.splitlines(), 1):
            if path.startswith(("ci/", "tests/")) and re.search(r"\|\|\s*true\b", line):
                yield Problem(path, number, "shell", "`|| true` hides a failure; test for what may fail")


@rule
def finished(tree: Tree) -> Iterator[Problem]:
    """Nothing is left for later, and no file names the machine it was written on."""
    for path in tree.files:
        if path.startswith(SELF) or path.endswith((".png", ".hex", ".bin")):
            continue
        for number, line in enumerate(tree.lines(path), 1):
            if UNFINISHED.search(line):
                yield Problem(path, number, "finished", "do it now, or describe the limit in docs/limits.md")
            if MACHINE_PATH.search(line):
                yield Problem(path, number, "finished", "a path of one machine")


@rule
def changelog(tree: Tree) -> Iterator[Problem]:
    """Keep a Changelog, with "Wire" for changes to bytes."""
    path = "CHANGELOG.md"
    if path not in tree.files:
        yield Problem(path, 1, "changelog", "missing")
        return
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "Wire"}
    versions: list[str] = []
    for number, line in enumerate(tree.lines(path), 1):
        if number == 1 and line != "# Changelog":
            yield Problem(path, 1, "changelog", 'the first line is "# Changelog"')
        if line.startswith("## "):
            if not re.fullmatch(r"## \[(Unreleased|\d+\.\d+\.\d+)\]( - \d{4}-\d\d-\d\d)?", line):
                yield Problem(path, number, "changelog", '"## [Unreleased]" or "## [1.2.3] - 2026-01-31"')
            versions.append(line)
        if line.startswith("### ") and line[4:] not in kinds:
            yield Problem(path, number, "changelog", f"a section is one of {', '.join(sorted(kinds))}")
        if line.startswith("### ") and not versions:
            yield Problem(path, number, "changelog", "a section belongs to a version")
    if not versions or versions[0] != "## [Unreleased]":
        yield Problem(path, 1, "changelog", 'the first version is "## [Unreleased]"')


@rule
def tests_of_rules(tree: Tree) -> Iterator[Problem]:
    """Every rule of the protocol and every knob names tests that exist."""
    protocol = {path: tree.text(path) for path in tree.named(".md", under=rules_page.PROTOCOL)}
    if not protocol and rules_page.KNOBS not in tree.files:
        return
    page, knobs = (tree.text(path) if path in tree.files else "" for path in (rules_page.PAGE, rules_page.KNOBS))
    tests = [name for path in tree.named(*CODE, under="tests/") for name in rules_page.tests_in(path, tree.text(path))]
    for line, text in rules_page.differences(page, "\n".join(protocol.values()), knobs, tests):
        yield Problem(rules_page.PAGE, line, "tests of rules", text)
    for path, text in protocol.items():
        for line, test in rules_page.unknown_tests(text, tests):
            yield Problem(path, line, "tests of rules", f"there is no test {test}")


@rule
def names_of_the_model(tree: Tree) -> Iterator[Problem]:
    """The functions and fields that tests/model cites for its steps exist in the code."""
    sources = [tree.text(path) for path in tree.named(".cpp", ".h", under="plugin/core/")]
    pages = {path: tree.lines(path) for path in tree.named(".pml", ".md", under="tests/model/")}
    for path, number, name in rules_model.unknown_names(sources, pages):
        yield Problem(path, number, "names of the model", f"{name} is not in plugin/core: name what is there now")


@rule
def reactions(tree: Tree) -> Iterator[Problem]:
    """The table at the head of a machine's dispatcher has a row for each message that it handles."""
    for path in tree.named("/coordinator.cpp", "/site.cpp", under="plugin/core/protocol/"):
        for line, name in rules_model.without_row(tree.text(path)):
            yield Problem(path, line, "reactions", f"{name} is not in the table at the head: what follows from it?")


@rule
def second_tries(tree: Tree) -> Iterator[Problem]:
    """A failed test is repeated only with the mark that gives the reason."""
    for path in tree.named(*CODE, under=("tests/", "ci/")):
        if path == "tests/python/second_tries.py" or path.startswith(SELF):
            continue
        for number, line in enumerate(tree.lines(path), 1):
            if re.search(r"\bmark\.flaky|--reruns\b|until-pass", line):
                yield Problem(path, number, "second tries", 'mark the test second_try("why") (tests/README.md)')


@rule
def message_codes(tree: Tree) -> Iterator[Problem]:
    """docs/messages.md lists each message code once; a code stands for one cause, in one file."""
    paths = tree.named(".h", ".cpp", ".py", under=("plugin/", "python_shim/"))
    page = tree.text(codes_page.PAGE) if codes_page.PAGE in tree.files else ""
    for path, line, text in codes_page.differences(page, [(path, tree.text(path)) for path in paths]):
        yield Problem(path, line, "message codes", text)


def check_knobs(tree: Tree, table: Callable[[], str], fields: Callable[[], str]) -> Iterator[Problem]:
    """The documents' knob table and Python's fields are those of the program."""
    page = tree.text(knob_files.PAGE) if knob_files.PAGE in tree.files else ""
    part = knob_files.PAGE_PART.search(page)
    if part is None:
        yield Problem(knob_files.PAGE, 1, "knobs", "no <!-- knobs --> ... <!-- /knobs --> to hold the table")
        return
    line = page[: part.start()].count("\n") + 1
    there = tree.text(knob_files.FIELDS) if knob_files.FIELDS in tree.files else ""
    for path, at, text, made in (
        (knob_files.PAGE, line, part.group(2), table),
        (knob_files.FIELDS, 1, there, fields),
    ):
        try:
            expected = made()
        except RuntimeError as error:
            yield Problem(path, at, "knobs", f"cannot be compared: {error}; run ci/setup.sh")
            continue
        if text.strip() != expected.strip():
            yield Problem(path, at, "knobs", "differs from the program's table; run ci/tidy.py --write-knobs")


@rule
def knobs(tree: Tree) -> Iterator[Problem]:
    yield from check_knobs(tree, knob_files.program_markdown, knob_files.program_fields)


KNOB_TABLE = "plugin/core/base/knobs.cpp"
# The table, the files generated from it, and the presets, which are values by name.
MAY_LIST_KNOBS = (KNOB_TABLE, knob_files.FIELDS, "plugin/core/base/presets.cpp")
MOST_KNOBS_NAMED = 6  # a few knobs that belong together


def lists_of_names(path: str, text: str) -> Iterator[tuple[int, set[str]]]:
    """(line, names) of each literal collection or class with fields in Python, and of C++ statements with strings."""
    if path.endswith(".py"):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                fields = [each.target for each in node.body if isinstance(each, ast.AnnAssign)]
                yield node.lineno, {each.id for each in fields if isinstance(each, ast.Name)}
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.Return | ast.Expr):
                texts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
                yield node.lineno, {each for each in texts if isinstance(each, str)}
        return
    line = 1
    for statement in re.split(r"(?<=;)", text):
        yield line + len(statement) - len(statement.lstrip("\n")), set(re.findall(r'"(\w+)"', statement))
        line += statement.count("\n")


@rule
def knob_lists(tree: Tree) -> Iterator[Problem]:
    """One row per knob: nothing else lists them by hand."""
    known = set(rules_page.knob_names(tree.text(KNOB_TABLE))) if KNOB_TABLE in tree.files else set()
    for path in tree.named(".py", ".cpp", ".h", under=("plugin/", "python_shim/", "include/")):
        if path in MAY_LIST_KNOBS:
            continue
        for line, names in lists_of_names(path, tree.text(path)):
            if len(names & known) > MOST_KNOBS_NAMED:
                listed = ", ".join(sorted(names & known)[:3])
                yield Problem(path, line, "knob lists", f"lists knobs ({listed}, ...): look them up in the knob table")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--write-knobs", action="store_true", help="write what is made of the knob table")
    arguments = parser.parse_args()
    if arguments.write_knobs:
        knob_files.write(arguments.root)
    tree = Tree(arguments.root)
    problems = [problem for check in RULES for problem in check(tree)]
    for problem in problems:
        print(problem)
    breaches = [p for p in problems if not p.warning]
    print(f"tidy: {len(tree.files)} files, {len(breaches)} breaches, {len(problems) - len(breaches)} warnings")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
