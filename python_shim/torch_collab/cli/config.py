"""`collab config`: every knob, its value in force and where that came from."""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from torch_collab import native
from torch_collab.cli import forms, keys, knobs, swarm_file

if TYPE_CHECKING:
    from torch_collab import _C

_SHARED = "same at all sites"


def add_to(parsers: Any) -> None:
    sub = forms.add(
        parsers,
        "config",
        "list every knob: its value, where the value comes from, what it does",
        "Prints every knob with its value here and where the value comes from: a COLLAB_ variable, a preset, a line of "
        "collab.toml, or the default.",
        ["COLLAB_PRESET=wan collab config", "collab config --json"],
        {0: "all values are fine", 1: "a value or a name is refused"},
    )
    form = sub.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="print the knob table of the documentation")
    form.add_argument("--json", action="store_true", help="print the values with all details, as JSON")
    swarm_file.add_option(sub)


def run(arguments: argparse.Namespace) -> int:
    if arguments.markdown:
        print(markdown(native.knob_table(), native.preset_table()), end="")
        return 0
    loaded = knobs.load(file=arguments.config)
    rows = {row["name"]: row for row in native.knob_table()}
    if arguments.json:
        told = {name: {"value": value, "source": source} | _about(rows[name]) for name, value, source in loaded.values}
        print(json.dumps(told, indent=2))
        return 0
    files = keys.files_of(loaded)
    for name, value, source in loaded.values:
        row = rows[name]
        marks = [mark for mark, holds in ((_SHARED, _is_shared(row)), ("advanced", row["advanced"])) if holds]
        about = ", ".join([row["unit"]] * bool(row["unit"]) + marks)
        print(f"COLLAB_{name.upper()} = {value or '(empty)'}   [{source}]" + (f"   {about}" if about else ""))
        if name in files and (wrong := keys.unreadable(value)):
            print(f"    !! {value} {wrong}")
        print(textwrap.indent(textwrap.fill(f"{row['sentence']} ({row['range']})", 110), "    "))
    return 0


def _about(row: _C.KnobRow) -> dict[str, Any]:
    names = ("unit", "default", "range", "advanced", "sentence")
    return {name: row[name] for name in names} | {"shared": _is_shared(row)}  # type: ignore[literal-required]


def _is_shared(row: _C.KnobRow) -> bool:
    return row["scope"] == "sites"


def markdown(rows: Sequence[_C.KnobRow], presets: Iterable[_C.PresetRow]) -> str:
    """The tables of the documents: the knobs (advanced ones folded) and the presets."""
    return "\n".join(
        [
            *_table([row for row in rows if not row["advanced"]]),
            "",
            "<details><summary>Advanced: right as they are for nearly everybody</summary>",
            "",
            *_table([row for row in rows if row["advanced"]]),
            "",
            "</details>",
            "",
            "| `COLLAB_PRESET` | For | Values |",
            "|---|---|---|",
            *(_preset_line(preset) for preset in presets),
            "",
        ]
    )


def _table(rows: Iterable[_C.KnobRow]) -> list[str]:
    lines = ["| Variable | Default | Unit | Accepted | Sites | What it does |", "|---|---|---|---|---|---|"]
    for row in rows:
        cells = [f"`COLLAB_{row['name'].upper()}`", f"`{row['default']}`" if row["default"] else "", row["unit"]]
        cells += [row["range"], "alike" if _is_shared(row) else "", row["sentence"]]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return lines


def _preset_line(preset: _C.PresetRow) -> str:
    values = ", ".join(f"`{name}={text}`" for name, text in preset["values"])
    return f"| `{preset['name']}` | {preset['sentence']} | {values} |"
