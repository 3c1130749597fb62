"""Generates files from the program's knob table: the tables of the documents, and the fields in Python.

ci/tidy.py compares both with the files in the tree; `ci/tidy.py --write-knobs` writes them. The table is read from the
program, not from the source, so the program must be installed: `ci/setup.sh`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

PAGE = "docs/reference/knobs.md"
FIELDS = "python_shim/torch_collab/knob_fields.py"
PAGE_PART = re.compile(r"(<!-- knobs -->\n)(.*?)(<!-- /knobs -->)", re.DOTALL)

# By type of a row: the type of an Options field (besides None), and that of the value in force.
_TYPES = {
    "switch": ("bool", "bool"),
    "whole": ("int", "int"),
    "whole or auto": ("int | str", "int"),
    "whole or none": ("int", "int | None"),
    "real": ("float", "float"),
    "real or auto": ("float | str", "float"),
    "time": ("float | str | timedelta", "float"),
    "steps or time": ("int | str | timedelta", "int | float | str"),
    "word": ("str", "str"),
    "text": ("str", "str"),
    "addresses": ("str", "tuple[str, ...]"),
}
_WIDTH = 110

_HEAD = '''"""The knobs as Python names them.

Made by `ci/tidy.py --write-knobs` from the table in plugin/core/base/knobs.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

'''


def _asked(*command: str) -> str:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd="/", env=_clean())
    if done.returncode != 0:
        raise RuntimeError(f"`{' '.join(command[:4])}` failed: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout


def _clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("COLLAB_")}


def program_markdown() -> str:
    return _asked("-m", "torch_collab.cli", "config", "--markdown")


def program_fields() -> str:
    """Asks the compiled module itself, because the Python module beside it imports the file that is generated here."""
    script = "import json, torch\nfrom torch_collab import _C\nprint(json.dumps(_C.knob_table()))"
    return fields(json.loads(_asked("-c", script)))


def fields(rows: Sequence[dict[str, Any]]) -> str:
    """The text of FIELDS."""
    old: dict[str, list[str]] = {}
    for row in rows:
        if row["old_name"]:
            old.setdefault(row["old_name"], []).append(row["name"])
    lines = ["# Fields of Options that have been renamed: old name, what it is today.", "OLD_NAMES = {"]
    for name, new in old.items():
        texts = ", ".join(json.dumps(each) for each in new)
        lines.append(f'    "{name}": ({texts}{"," if len(new) == 1 else ""}),')
    lines += ["}", "", "", "@dataclass(kw_only=True)", "class OptionFields:"]
    lines += ['    """None: not given."""', ""]
    for row in rows:
        annotation = f"{_TYPES[row['type']][0]} | None"
        default = "field(default=None, repr=False)" if row["secret"] else "None"
        lines += [f"    {row['name']}: {annotation} = {default}", *_docstring(row)]
    lines += ["", "", "@dataclass(frozen=True, kw_only=True)", "class KnobValues:"]
    lines += ['    """The values in force; times are seconds."""', ""]
    lines += [f"    {row['name']}: {_TYPES[row['type']][1]}" for row in rows]
    return _HEAD + "\n".join(lines) + "\n"


def _docstring(row: dict[str, Any]) -> Iterable[str]:
    accepted = "; ".join(text for text in (row["range"], f"default {row['default']}" if row["default"] else "") if text)
    text = f'"""{row["sentence"]} ({accepted})"""'
    return [f"    {line}" for line in textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)]


def write(root: Path) -> None:
    (root / FIELDS).write_text(program_fields(), "utf-8")
    page = root / PAGE
    text = page.read_text("utf-8")
    table = program_markdown().strip()
    page.write_text(PAGE_PART.sub(lambda part: part.group(1) + table + "\n" + part.group(3), text), "utf-8")
