"""What founding_table.py and compare.py share: a worker at every site of `collab lab`, and tables of the results.

A site is one rank with its part of the machine's cores. `collab lab` needs Linux with /dev/net/tun, and root or user
namespaces; `collab lab --check` says whether it may run.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

LAB = [sys.executable, "-m", "torch_collab.cli", "lab"]


@dataclass(frozen=True)
class Line:
    """The line between the sites: rates in Mbit/s down/up, as `collab lab` reads them."""

    rate: str
    rtt_ms: float
    loss_percent: float

    def __str__(self):
        return f"{self.rate} Mbit/s, {self.rtt_ms:g} ms, {self.loss_percent:g} % loss"


def add_line_to(parser, line):
    parser.add_argument("--line", default=line.rate, help="Mbit/s of each site, down/up (default: %(default)s)")
    parser.add_argument("--rtt", type=float, default=line.rtt_ms, metavar="MS", help="(default: %(default)s)")
    parser.add_argument(
        "--loss", type=float, default=line.loss_percent, metavar="PERCENT", help="(default: %(default)s)"
    )


def check_lab():
    done = subprocess.run([*LAB, "--check"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{Path(sys.argv[0]).name}: this needs `collab lab`, which does not run here: {done.stderr.strip()}")


def run(folder, line, sites, worker, environment):
    """Runs `worker` as rank i at site i. If it fails, exits with the end of its log."""
    folder.mkdir(parents=True, exist_ok=True)
    state = folder.resolve() / "state"  # sites must not know other runs' state
    shutil.rmtree(state, ignore_errors=True)
    ranks = {
        "MASTER_ADDR": f"{{address:{sites[0]}}}",
        "MASTER_PORT": 29400,
        "RANK": "{index}",
        "WORLD_SIZE": len(sites),
        "LOCAL_RANK": 0,
        "LOCAL_WORLD_SIZE": 1,
        "COLLAB_EVENTS_FILE": f"{folder.resolve()}/{{site}}.events",
        "HF_HUB_OFFLINE": 1,
        "XDG_STATE_HOME": state,
        **environment,
    }
    command = [*LAB, "--quiet", "--sites", *(f"{site}:{line.rate}" for site in sites)]
    command += ["--rtt", f"{line.rtt_ms:g}", "--loss", f"{line.loss_percent:g}"]
    for name, value in ranks.items():
        command += ["--env", f"{name}={value}"]
    for site in sites:
        (folder / f"{site}.events").unlink(missing_ok=True)
    # Variables for collab in the user's shell must not affect a comparison.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("COLLAB_")}
    log = folder / "log"
    for number in (signal.SIGINT, signal.SIGTERM):  # an exit by an exception ends the lab, too
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    with log.open("w") as output:
        done = subprocess.run([*command, "--", sys.executable, *worker], env=kept, stdout=output, stderr=output)
    if done.returncode != 0:
        print("\n".join(log.read_text(errors="replace").splitlines()[-25:]), file=sys.stderr)
        sys.exit(f"{Path(sys.argv[0]).name}: a run failed; the whole of what it said is in {log}")


def take_cores(index, parts):
    """Gives this process one of several equal parts of the machine's cores. Call before torch starts its threads."""
    import torch

    cores = sorted(os.sched_getaffinity(0))
    each = max(1, len(cores) // parts)
    mine = cores[index * each : (index + 1) * each] or cores[-1:]
    os.sched_setaffinity(0, mine)
    torch.set_num_threads(len(mine))


def read_lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def rounds_of(file):
    """A site's own rounds; a coordinator's rounds in the same file have no bytes."""
    if not file.exists():
        return []
    return [event for event in read_lines(file) if event["event"] == "round" and "bytes_sent" in event]


def in_text(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    )


def in_markdown(rows):
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def write_tables(folder, about, rows, results, picture):
    """Writes table.md, table.json and the picture of `picture(file)`, and prints the table. All name the command."""
    command = "python " + " ".join(sys.argv)
    (folder / "table.md").write_text(f"{about}\n\n{in_markdown(rows)}\n\n`{command}`\n")
    (folder / "table.json").write_text(json.dumps({"command": command, "about": about, "runs": results}, indent=1))
    picture(folder / "loss.png")
    print(f"{about}\n\n{in_text(rows)}\n\n{folder}/table.md, table.json, loss.png; made by {command}")


def _alike(one, other):
    try:
        return float(one) == float(other)  # 10 and 10.0
    except ValueError:
        return one == other


def keep(folder: Path, settings: Mapping[str, object], parts: Sequence[str]):
    """Ensures that results in `folder` are from these settings: a resumed comparison compares like with like."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "settings.json"
    if file.exists():
        before = json.loads(file.read_text())
        different = [name for name in parts if not _alike(before.get(name, ""), settings[name])]
        if different:
            name = different[0]
            sys.exit(
                f"{Path(sys.argv[0]).name}: {folder} has results with --{name.replace('_', '-')} {before.get(name)}, "
                f"not {settings[name]}: give another --out, or remove it"
            )
    file.write_text(json.dumps(dict(settings), indent=1) + "\n")
