"""`collab config`: every knob, its value in force and where that came from."""

from __future__ import annotations

import argparse
import json
import textwrap
from typing import Any

from torch_collab import native
from torch_collab.cli import keys, knobs


def add_to(parsers: Any) -> None:
    sub = parsers.add_parser("config", help="every knob: its value in force, where it came from, what it does")
    form = sub.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="the knob table of the README")
    form.add_argument("--json", action="store_true", help="the values in force as JSON")
    sub.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.markdown:
        print(native.knob_table_markdown(), end="")
        return 0
    loaded = knobs.load()
    if arguments.json:
        print(json.dumps({name: {"value": value, "source": source} for name, value, source in loaded.values}, indent=2))
        return 0
    rows = {row["name"]: row for row in native.knob_table()}
    files = keys.files_of(loaded)
    for name, value, source in loaded.values:
        row = rows[name]
        print(f"COLLAB_{name.upper()} = {value or '(empty)'}   [{source}]")
        if name in files and (wrong := keys.unreadable(value)):
            print(f"    !! {value} {wrong}")
        unit = f"{row['unit']}; " if row["unit"] else ""
        print(textwrap.indent(textwrap.fill(f"{row['sentence']} ({unit}{row['range']})", 110), "    "))
    return 0
