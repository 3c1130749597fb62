"""`collab status HOST:PORT`: what the coordinator there knows."""

from __future__ import annotations

import argparse
import json
from typing import Any

from torch_collab import addresses, links, native
from torch_collab.cli import knobs
from torch_collab.escape import escaped


def add_to(parsers: Any) -> None:
    sub = parsers.add_parser("status", help="ask a coordinator who is there and which round it is")
    sub.add_argument("address", metavar="HOST:PORT")
    sub.add_argument("--json", action="store_true", help="the coordinator's answer as JSON")
    sub.add_argument("--timeout", metavar="SECONDS", type=float, default=5.0)
    sub.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    addresses.split_host_port(arguments.address)
    config = knobs.load(without="COLLAB_COORDINATOR")
    text = native.query_status(links.make(config, ""), arguments.address, arguments.timeout)
    answer = json.loads(text)
    print(json.dumps(answer) if arguments.json else render(answer))
    return 0


def render(answer: dict[str, Any]) -> str:
    """Scalars first, then a table for each list of objects."""
    lines = [f"{escaped(name)}: {_cell(value)}" for name, value in answer.items() if not _is_table(value)]
    for name, value in answer.items():
        if _is_table(value):
            lines += ["", f"{escaped(name)}:", *_table(value)]
    return "\n".join(lines)


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) for row in value)


def _table(rows: list[dict[str, Any]]) -> list[str]:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [
        [escaped(column) for column in columns],
        *([_cell(row.get(column, "")) for column in columns] for row in rows),
    ]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells
    ]


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(_cell(item) for item in value) or "none"
    return "none" if value is None else escaped(str(value))
