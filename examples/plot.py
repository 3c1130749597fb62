"""The table and the picture of examples/quickstart.sh.

    python examples/plot.py out/quickstart

Reads what the runs left in the folder: losses of each rank (`--log-file` of gpt2_ddp.py), the sites' events
(COLLAB_EVENTS_FILE) and the times of launch. Prints the table and writes loss.png.
"""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Run:
    """One rank's training: its losses, its summary line, and the rounds that its site took part in."""

    times: list = field(default_factory=list)
    losses: list = field(default_factory=list)
    summary: dict = field(default_factory=dict)
    rounds: list = field(default_factory=list)
    launched: float = 0.0

    @property
    def startup(self):
        return self.summary["start"] - self.launched


def read_lines(file):
    try:
        return [json.loads(line) for line in file.read_text().splitlines()]
    except FileNotFoundError:
        sys.exit(f"plot.py: {file} is missing; run examples/quickstart.sh")


def read_run(folder, losses, process, events=None):
    run = Run()
    for line in read_lines(folder / losses):
        if "perplexity" in line:
            run.summary = line
        else:
            run.times.append(line["time"])
            run.losses.append(line["loss"])
    if not run.summary:
        sys.exit(f"plot.py: {folder / losses} has no summary line: that training did not end")
    run.launched = float((folder / f"{process}.launched").read_text())
    if events:
        # The coordinator's own lines about rounds have no bytes.
        lines = read_lines(folder / events)
        run.rounds = [line for line in lines if line["event"] == "round" and "bytes_sent" in line]
    return run


def read_folder(folder):
    return {
        "start": [read_run(folder, "start.rank0.jsonl", "start")],
        "a": [read_run(folder, "a.rank0.jsonl", "a")],
        "b": [
            read_run(folder, f"b.rank{rank}.jsonl", f"b-{site}", f"b-{site}.events") for rank, site in enumerate("ab")
        ],
        "c": [read_run(folder, f"c-{site}.rank0.jsonl", f"c-{site}") for site in "ab"],
    }


LABELS = {
    "start": "   the model to fine-tune",
    "a": "a  alone",
    "b": "b  two sites, averaging",
    "c": "c  two sites, never talking",
}


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def wall(runs):
    """Seconds from the first step to the end of the last round, at the slower site."""
    return max(run.summary["train_seconds"] for run in runs)


def table(parts):
    head = ("", "perplexity", "mean", "training s", "speed-up", "MB sent", "rounds", "start-up s")
    rows = [head]
    for part, runs in parts.items():
        sent = sum(line["bytes_sent"] for run in runs for line in run.rounds)
        rows.append(
            (
                LABELS[part],
                " / ".join(f"{run.summary['perplexity']:.3f}" for run in runs),
                f"{mean(run.summary['perplexity'] for run in runs):.3f}",
                f"{wall(runs):.1f}",
                "" if part == "start" else f"{wall(parts['a']) / wall(runs):.2f}",
                f"{sent / 1e6:.1f}",
                str(max(len(run.rounds) for run in runs)),
                f"{max(run.startup for run in runs):.1f}",
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]
    difference = mean(r.summary["perplexity"] for r in parts["b"]) / parts["a"][0].summary["perplexity"] - 1
    lines += [
        "",
        f"b against a: perplexity {difference:+.1%}; b against c: {wall(parts['b']) / wall(parts['c']):.3f} x the time",
        "training s: from the first step to the end of the last round, of the slower site; start-up (Python, torch,",
        "data, finding the other site) is apart. MB sent: what both sites together sent each other.",
    ]
    return "\n".join(lines)


def smooth(values, keep=0.95):
    """Exponential moving average, corrected for the bias at its start."""
    total = weight = 0.0
    result = []
    for value in values:
        total = keep * total + (1 - keep) * value
        weight = keep * weight + (1 - keep)
        result.append(total / weight)
    return result


def picture(parts, file):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 5), layout="constrained")
    (alone,) = parts["a"]
    start = alone.summary["start"]
    axes.plot([t - start for t in alone.times], smooth(alone.losses), color="0.55", label="alone")
    start = min(run.summary["start"] for run in parts["b"])
    for run, site, colour in zip(parts["b"], "ab", ("tab:blue", "tab:orange"), strict=True):
        seconds, losses = [t - start for t in run.times], smooth(run.losses)
        axes.plot(seconds, losses, color=colour, label=f"two sites: {site}")
        for line in run.rounds:
            after = [i for i, t in enumerate(run.times) if t <= line["t"]]
            if after:
                axes.plot(seconds[after[-1]], losses[after[-1]], "o", color=colour, markersize=5)
    for number, line in enumerate(parts["b"][0].rounds):
        label = "models averaged" if number == 0 else None
        axes.axvline(line["t"] - start, color="0.8", linewidth=0.8, zorder=0, label=label)
    everything = smooth(alone.losses)[5:] + [loss for run in parts["b"] for loss in smooth(run.losses)[5:]]
    axes.set_ylim(min(everything) * 0.97, sorted(everything)[int(len(everything) * 0.98)])
    axes.set_xlabel("seconds of training")
    axes.set_ylabel("training loss (moving average)")
    axes.set_title("One GPT-2, alone and on two sites that average their models")
    axes.legend()
    figure.savefig(file, dpi=130)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: plot.py FOLDER (the --out of examples/quickstart.sh)")
    folder = Path(sys.argv[1])
    parts = read_folder(folder)
    print("\n" + table(parts))
    picture(parts, folder / "loss.png")
    print(f"picture: {folder / 'loss.png'}")


if __name__ == "__main__":
    main()
