"""What each mechanism of the tcp transport is worth: rounds with and without it, over emulated wide-area lines.

    python tests/bench/bench_mechanisms.py [--mechanism NAME …] [--line NAME …] [--pairs 12] [--build build/release]

A site is `mechanism_site` (a target of CMake), whose transport can do without one mechanism; `mechanism_site --names`
lists them (plugin/transport/tcp/pace/mechanisms.h says what each does). A run is a few warm rounds over the emulated
network and then some that are measured: of each round the slowest site's seconds, of a run their median. Runs are made
in pairs, without and with, one right after the other, every second pair the other way round. What is reported is the
median of without / with and its distribution-free 95 % interval: above 1 the mechanism is worth its code.

Beside the lines of bench_wan.py: `four-uneven` four sites with lines of four rates; `foreign` a line that a TCP flow
shares which is not ours; `minute` a round of 60 s; `cut` a line that is cut for 3 s now and then (of its rounds the
mean, as not each meets a cut).

Results are kept in `--out` after each pair, and a later call goes on from there. Needs what `collab lab` needs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pairs
from bench_wan import LINES as WAN_LINES
from bench_wan import Line

COORDINATOR_PORT, FOREIGN_PORT = 29400, 29401
CUT_EVERY, CUT_SECONDS, LONGEST = 15, 3, 3600


@dataclass(frozen=True)
class Setting:
    line: Line
    foreign: bool = False
    cuts: bool = False


SETTINGS = {name: Setting(line) for name, line in WAN_LINES.items()} | {
    "four-uneven": Setting(Line(20, 100, 0.1, sites=4, rates=("100", "50", "20", "100/20"), warm=3)),
    "foreign": Setting(Line(100, 100, 0, warm=4), foreign=True),
    "minute": Setting(Line(800 / 60, 100, 0.1, warm=1)),  # of 25 million parameters
    "cut": Setting(Line(100, 100, 0, warm=3), cuts=True),
}


def receive_all(listener: socket.socket) -> None:
    flow, _ = listener.accept()
    while flow.recv(1 << 16):
        pass


def send_always(address: str) -> None:
    while True:  # until the process ends
        try:
            with socket.create_connection((address, FOREIGN_PORT)) as flow:
                while True:
                    flow.sendall(bytes(1 << 16))
        except OSError:
            threading.Event().wait(0.2)  # it does not listen yet, or has ended


def worker() -> int:
    """In each site of the lab: the foreign flow, from site 0 to site 1, and our site."""
    if os.environ.get("BENCH_FOREIGN"):
        if os.environ["BENCH_INDEX"] == "1":
            listener = socket.create_server((os.environ["BENCH_ADDRESS"], FOREIGN_PORT))
            threading.Thread(target=receive_all, args=(listener,), daemon=True).start()
        elif os.environ["BENCH_INDEX"] == "0":
            threading.Thread(target=send_always, args=(os.environ["BENCH_OTHER"],), daemon=True).start()
    return subprocess.run([os.environ["BENCH_SITE"]], check=False).returncode


def cuts() -> str:
    moments = range(CUT_EVERY, LONGEST, CUT_EVERY)
    return "".join(f"{at} cut s1\n{at + CUT_SECONDS} heal s1\n" for at in moments)


def measure(setting: Setting, off: str, args: argparse.Namespace) -> float:
    """A run's seconds a round; `off` is empty where no mechanism is."""
    line = setting.line
    warm = line.warm or min(10, max(2, math.ceil(16 / line.bound_seconds(args.millions))))
    with tempfile.TemporaryDirectory() as folder:
        environment: dict[str, object] = {
            "BENCH_OFF": off,
            "BENCH_SITE": str(args.build / "tests/bench/mechanism_site"),
            "BENCH_ELEMENTS": int(args.millions * 1e6),
            "BENCH_ROUNDS": args.rounds,
            "BENCH_WARM": args.warm if args.warm is not None else warm,
            "BENCH_INDEX": "{index}",
            "BENCH_SITES": line.sites,
            "BENCH_ADDRESS": "{address}",
            "BENCH_OTHER": "{address:s1}",
            "BENCH_COORDINATOR": "{address:s0}:" + str(COORDINATOR_PORT),
            "BENCH_RESULT": folder + "/{site}.json",
            "BENCH_FOREIGN": "1" if setting.foreign else "",
            "COLLAB_TRANSPORT": "tcp",
            "COLLAB_LOG_LEVEL": "error",
            "COLLAB_CODEC": line.codec or "fp32",
        }
        settings = [f"{name}={value}" for name, value in environment.items() if value != ""]
        settings += line.environment
        if line.tls:
            settings.append(
                "COLLAB_TOKEN=" + subprocess.check_output(["collab", "token", "--print"], text=True).strip()
            )
        command = ["collab", "lab", "--quiet", "--rtt", str(line.rtt_ms), "--loss", str(line.loss_percent)]
        command += ["--sites", *(f"s{index}:{line.rate(index)}" for index in range(line.sites))]
        if setting.cuts:
            script = Path(folder, "cuts.txt")
            script.write_text(cuts())
            command += ["--script", str(script)]
        for each in settings:
            command += ["--env", each]
        subprocess.run([*command, "--", sys.executable, __file__, "--worker"], check=True, timeout=args.limit)
        answers = [json.loads(Path(folder, f"s{index}.json").read_text()) for index in range(line.sites)]
    seconds = [max(each) for each in zip(*answers, strict=True)]
    return statistics.fmean(seconds) if setting.cuts else statistics.median(seconds)


def say(mechanism: str, line: str, results: list[list[float]]) -> None:
    low, middle, high = pairs.interval([without / with_ for with_, without in results])
    seconds = statistics.median(with_ for with_, _ in results)
    print(f"  {mechanism:<15} {line:<13} {middle:.3f} x [{low:.3f}, {high:.3f}], {seconds:.2f} s, {len(results)} pairs")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mechanism", nargs="+", metavar="NAME", help="unless given, all")
    parser.add_argument("--line", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--pairs", type=int, default=12, help="of runs, those kept already included")
    parser.add_argument("--rounds", type=int, default=3, help="measured in a run")
    parser.add_argument("--warm", type=int, help="rounds before; unless given, what the line needs")
    parser.add_argument("--millions", type=float, default=25, help="of parameters")
    parser.add_argument("--build", type=Path, default=Path("build/release"), help="where mechanism_site was built")
    parser.add_argument("--limit", type=float, default=1800, help="seconds a run may take")
    parser.add_argument("--out", type=Path, default=Path("out/bench/mechanisms.json"))
    args = parser.parse_args()
    args.build = args.build.resolve()

    site = str(args.build / "tests/bench/mechanism_site")
    names = subprocess.check_output([site, "--names"], text=True).split()
    unknown = set(args.mechanism or []) - set(names)
    if unknown:
        parser.error(f"no mechanism {', '.join(sorted(unknown))}; expected some of {', '.join(names)}")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    kept: dict[str, Any] = json.loads(args.out.read_text()) if args.out.exists() else {"machine": pairs.machine()}
    of_all = kept.setdefault(f"{args.millions:g} million, {args.rounds} rounds", {})
    print(f"mechanisms: {pairs.machine()}; without, in times of with")
    for line in args.line:
        for mechanism in args.mechanism or names:
            results: list[list[float]] = of_all.setdefault(line, {}).setdefault(mechanism, [])
            while len(results) < args.pairs:
                order = ("", mechanism) if len(results) % 2 == 0 else (mechanism, "")
                took = {off: measure(SETTINGS[line], off, args) for off in order}
                results.append([took[""], took[mechanism]])
                args.out.write_text(json.dumps(kept, indent=1) + "\n")
            if results:
                say(mechanism, line, results)
    print(f"  -> {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(worker() if "--worker" in sys.argv else main())
