"""`collab plot`: a picture of who was there and what each site did, from events."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from torch_collab.cli import forms
from torch_collab.escape import escaped
from torch_collab.formatting import counted
from torch_collab.planning import timeline
from torch_collab.planning.timeline import Row, Timeline

_COLOURS = {"compute": "#4c78a8", "waiting": "#f2a33a", "exchange": "#54a24b", "behind": "#9ad08f"}
_LABELS = {
    "compute": "compute",
    "waiting": "waiting",
    "exchange": "exchange",
    "behind": "exchange behind the training",
    "there": "there",
}
_THERE = "#dddddd"
_MOST_ROWS = 200
_PICTURES = (".png", ".svg", ".pdf")


def add_to(parsers: Any) -> None:
    sub = forms.add(
        parsers,
        "plot",
        "draw a timeline of sites from events: compute, waiting, exchange, who was there",
        "Reads files of COLLAB_EVENTS_FILE, of sites and of coordinators, and draws a row for each site. Lines that "
        "were cut off when a site was killed are skipped, and counted. Needs matplotlib.",
        ["collab plot paris.jsonl tokyo.jsonl --out timeline.png"],
        {0: "drawn", 1: "matplotlib is missing, a file cannot be read, or no site is in them"},
    )
    sub.add_argument("events", metavar="EVENTS", nargs="+", type=Path, help="files of COLLAB_EVENTS_FILE")
    sub.add_argument("--out", metavar="FILE", type=Path, required=True, help="a picture: .png, .svg or .pdf")


def run(arguments: argparse.Namespace) -> int:
    if arguments.out.suffix.lower() not in _PICTURES:
        raise forms.WrongUsage(
            f"--out {arguments.out}: expected a picture's name, .png, .svg or .pdf [cli.plot-format]"
        )
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise RuntimeError(
            f"collab plot draws with matplotlib: pip install matplotlib ({error}) [cli.plot-matplotlib]"
        ) from None
    events, odd = timeline.read(arguments.events)
    for text in odd:
        print(f"collab: {escaped(text)}", file=sys.stderr)
    told = timeline.make(events)
    if len(told.rows) > _MOST_ROWS:
        raise ValueError(
            f"{len(told.rows)} sites are in these events: at most {_MOST_ROWS} can be drawn [cli.plot-many]"
        )
    figure = Figure(figsize=(12, 1.8 + 0.5 * len(told.rows)), layout="constrained")
    draw(figure.subplots(), told)
    try:
        figure.savefig(arguments.out, dpi=120)
    except OSError as error:
        raise OSError(f"{arguments.out} cannot be written: {error.strerror or error} [cli.plot-not-written]") from None
    seconds = told.end - told.start
    print(escaped(f"collab: {arguments.out}: {counted(len(told.rows), 'site')}, {seconds:.1f} s"))
    return 0


def draw(axes: Any, told: Timeline) -> None:
    for index, row in enumerate(told.rows):
        _draw_row(axes, row, index, told.start)
    axes.set_yticks(range(len(told.rows)), [_name(row) for row in told.rows])
    axes.set_ylim(len(told.rows) - 0.4, -0.6)
    axes.set_xlim(0, max(told.end - told.start, 1e-3))
    axes.set_xlabel(f"seconds since {datetime.fromtimestamp(told.start, UTC):%Y-%m-%d %H:%M:%S} UTC")
    handles, labels = axes.get_legend_handles_labels()
    by_label = dict(zip(labels, handles, strict=True))
    axes.legend(by_label.values(), by_label.keys(), loc="lower left", bbox_to_anchor=(0, 1), ncols=5, frameon=False)


def _draw_row(axes: Any, row: Row, index: int, start: float) -> None:
    there = [(a - start, b - a) for a, b in row.present]
    axes.broken_barh(there, (index - 0.35, 0.7), facecolors=_THERE, label=_LABELS["there"])
    for kind, colour in _COLOURS.items():
        spans = [(span.start - start, span.end - span.start) for span in row.spans if span.kind == kind]
        height = (index + 0.1, 0.2) if kind == "behind" else (index - 0.3, 0.6)
        if spans:
            axes.broken_barh(spans, height, facecolors=colour, label=_LABELS[kind])


def _name(row: Row) -> str:
    name = escaped(row.site).replace("$", r"\$")  # matplotlib sets text between two $ as a formula
    return f"{name} ({counted(row.rounds, 'round')})" if row.spans else name
