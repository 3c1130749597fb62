"""The charts of the documents, from the tables of tests/bench/README.md, or of what a benchmark has just measured.

    python docs/charts.py                    writes docs/images/*.svg
    python docs/charts.py --check            exit status 1 if a picture shows other figures than the tables
    python docs/charts.py --json out/bench/wan.json out/bench/overlap.json
                                             draws what bench_wan.py and bench_overlap.py wrote, beside each file

A picture carries the figures it shows in its description.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
TABLES = ROOT / "tests" / "bench" / "README.md"
IMAGES = ROOT / "docs" / "images"

OURS, PEERS = "#2a7f9e", "#b9bec4"


def rows(text: str, section: str) -> Iterator[list[str]]:
    """The cells of the table's rows under that heading, its head first."""
    part = text.split(f"### {section}\n", 1)[1].split("\n###", 1)[0]
    for line in part.splitlines():
        if line.startswith("| "):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def number(cell: str) -> float:
    """The first number of a cell: of several runs the first."""
    found = re.match(r"[+-]?\d+\.\d+", cell)
    if not found:
        raise ValueError(f"{TABLES}: {cell!r} begins with no number")
    return float(found.group())


def shares(text: str) -> dict[str, dict[str, float]]:
    """{line: {system: share of the line's rate}}, of the lines that every system was measured on."""
    head, *body = rows(text, "Wide-area lines")
    systems = head[2:]
    found = {row[0]: dict(zip(systems, map(number, row[2:]), strict=True)) for row in body if all(row[2:])}
    if not found:
        raise ValueError(f"{TABLES}: no line was measured with all of {systems}")
    return found


def training(text: str) -> dict[str, float]:
    """{kind of rounds: training time as a multiple of that without rounds}"""
    _, *body = rows(text, "Rounds behind the training")
    return {"none": 1.0} | {re.sub(r" \(.*", "", row[0]): number(row[1]) for row in body}


GAPS = {
    "every 30 steps, blocking, `fp32`": "every 30 steps",
    "every 100 steps, blocking, `fp32`": "every 100 steps",
    "every 30 steps, every step in the first sixth": "every 30 steps, at first every step",
}


def gaps(text: str) -> dict[str, dict[str, float]]:
    """{number of parameters: {rounds: loss above DDP's in %}}"""
    _, *body = rows(text, "What is learned")
    cells = {(row[0], row[1]): row[3] for row in body}
    sizes = [size for size, kind in cells if kind == next(iter(GAPS))]
    try:
        return {f"{size} parameters": {GAPS[kind]: number(cells[size, kind]) for kind in GAPS} for size in sizes}
    except KeyError as missing:
        raise ValueError(f"{TABLES}: no row of {missing}") from None


def bars(
    file: Path,
    figures: object,
    title: str,
    unit: str,
    groups: dict[str, dict[str, float]],
    ours: str = "collab",
    digits: int = 3,
) -> None:
    import matplotlib

    matplotlib.use("svg")
    # Text stays text: a tenth of the bytes.
    matplotlib.rcParams.update({"svg.hashsalt": "collab", "svg.fonttype": "none", "font.size": 10})
    from matplotlib import pyplot

    count = sum(map(len, groups.values())) + len(groups)
    figure, axes = pyplot.subplots(figsize=(7.2, 0.34 * count + 0.8), layout="constrained")
    place = 0.0
    ticks: list[tuple[float, str]] = []
    for group, values in groups.items():
        if len(groups) > 1:
            axes.text(0, place, group, va="center", weight="bold")
            place += 0.9
        for name, value in values.items():
            axes.barh(place, value, height=0.72, color=OURS if name == ours else PEERS)
            axes.text(
                value,
                place,
                f" {value:.{digits}f}",
                va="center",
                weight="bold" if name == ours else "normal",
            )
            ticks.append((place, name))
            place += 0.9
        place += 0.3
    axes.set_yticks([at for at, _ in ticks], [name for _, name in ticks])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(place - 0.6, -0.6)
    axes.set_xlim(0, max(value for values in groups.values() for value in values.values()) * 1.12)
    axes.set_title(title, loc="left", fontsize=11, weight="bold")
    axes.set_xlabel(unit)
    axes.spines[["top", "right", "left"]].set_visible(False)
    file.parent.mkdir(exist_ok=True)
    figure.savefig(file, facecolor="white", metadata={"Date": None, "Description": json.dumps(figures)})
    pyplot.close(figure)


def shown(file: Path) -> object:
    """The figures that a picture shows, by its own word."""
    told = ElementTree.parse(file).getroot().find(".//{http://purl.org/dc/elements/1.1/}description")
    return json.loads(told.text) if told is not None and told.text else None


def charts() -> dict[str, object]:
    text = TABLES.read_text("utf-8")
    return {"line-shares.svg": shares(text), "overlap.svg": training(text), "gap.svg": gaps(text)}


def draw_training(file: Path, figures: dict[str, float]) -> None:
    bars(
        file,
        figures,
        "Training time, a blocking round being 80 % of a period",
        "multiple of the time without rounds",
        {"rounds": figures},
        ours="behind the training",
    )


def write() -> None:
    text = TABLES.read_text("utf-8")
    bars(
        IMAGES / "line-shares.svg",
        shares(text),
        "What one round of 25 M float32 makes of the line",
        "share of the line's rate (at most 0.95 is payload)",
        {f"{line} round trip": values for line, values in shares(text).items()},
    )
    draw_training(IMAGES / "overlap.svg", training(text))
    bars(
        IMAGES / "gap.svg",
        gaps(text),
        "Two sites, 600 steps from random parameters",
        "loss above DDP's, %",
        gaps(text),
        ours=list(GAPS.values())[-1],
        digits=1,
    )


def measured_shares(report: dict[str, Any]) -> dict[str, dict[str, float]]:
    """As `shares`, of the lines by the names that bench_wan.py gives them, each with the systems measured on it."""
    columns = {"collab": "share", "Gloo": "gloo_share", "torchft": "torchft_share", "hivemind": "hivemind_share"}
    return {row["line"]: {system: row[key] for system, key in columns.items() if key in row} for row in report["rows"]}


def measured_training(report: dict[str, Any]) -> dict[str, float]:
    """As `training`."""
    ratios = {row["what"]: row["ratio"] for row in report["rows"]}
    kinds = {"behind the training": "rounds behind it", "blocking": "rounds that block"}
    return {"none": 1.0} | {
        kind: next(ratio for what, ratio in ratios.items() if words in what) for kind, words in kinds.items()
    }


def draw_measured(file: Path) -> Path:
    """Beside the file of a benchmark. Raises ValueError in words."""
    try:
        report = json.loads(file.read_text("utf-8"))
        drawn = file.with_suffix(".svg")
        if report["benchmark"] == "wan":
            figures = measured_shares(report)
            bars(
                drawn,
                figures,
                f"One round of {report['millions']:g} M, {report['codec']}",
                "share of the line",
                figures,
            )
        elif report["benchmark"] == "overlap":
            draw_training(drawn, measured_training(report))
        else:
            raise ValueError(f"it is of the benchmark {report['benchmark']!r}; wan and overlap have charts")
    except (OSError, ValueError, KeyError, TypeError, StopIteration) as error:
        raise ValueError(f"{file} is not what bench_wan.py or bench_overlap.py writes: {error}") from None
    return drawn


def main() -> None:
    form = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    form.add_argument("--check", action="store_true", help="compare with what is there")
    form.add_argument("--json", metavar="FILE", nargs="+", type=Path, default=[], help="of benchmarks, to draw")
    arguments = form.parse_args()
    try:
        for file in arguments.json:
            print(f"wrote {draw_measured(file)}")
    except ValueError as error:
        sys.exit(f"charts.py: {error}")
    if not arguments.check:
        if not arguments.json:
            write()
        return
    old = [name for name, figures in charts().items() if shown(IMAGES / name) != figures]
    if old:
        sys.exit(f"charts.py: {', '.join(old)} in {IMAGES.relative_to(ROOT)}: run python docs/charts.py")


if __name__ == "__main__":
    main()
