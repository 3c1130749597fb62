"""Rounds over an emulated wide-area network (`collab lab`), as a share of the line's rate, with Gloo beside them.

    python tests/bench/bench_wan.py [--lines clean lossy …] [--rounds 3] [--millions 25] [--out out/bench/wan.json]

Each line is two sites (or more) behind lines of equal rate; `uneven` is three that send at 20 Mbit/s and a fast one.
Over collab's tcp transport, warm: the payload bits a site sends in one fp32 round, 2 (n - 1) / n of the parameters
(`uneven`: a thin one its delta), over the line's rate (of IP packets) times `exchange_seconds`.
For Gloo the same of one all-reduce. One run holds both columns, one after the other over the same line, and medians of
the rounds. What a whole round takes beyond its exchange, from trigger to parameters in place, may be four round trips.
Lines named cubic force that congestion control, socket by socket; `tls` is `fast` encrypted, right after it in the
clear; `int8` and `int4` are `clean` with that codec, right after it in fp32. Needs what `collab lab` needs. `--codec`
and `--env NAME=VALUE` try others; `--tls` encrypts all.
`--peers torchft hivemind` adds columns of theirs, with the Python of an environment that has them:

    python -m venv peers && peers/bin/pip install torch==2.13.0 numpy torchft==0.2.0 hivemind==1.1.12
    python tests/bench/bench_wan.py --lines clean slight fast --peers torchft hivemind --peer-python peers/bin/python
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pairs

PEERS = ("torchft", "hivemind")
WARM_SECONDS = 16  # of exchange before, at the line's rate: by then the connections know the line
CUBIC = ("COLLAB_TCP_CONGESTION=cubic",)


@dataclass(frozen=True)
class Line:
    mbit: float
    rtt_ms: float
    loss_percent: float
    at_least: float | None = None  # share of the line
    sites: int = 2
    environment: tuple[str, ...] = ()
    against: str | None = None  # this line, plain; the target is of its time
    at_most: float | None = None  # of that time
    tls: bool = False
    codec: str | None = None
    allowance: float | None = None  # seconds at most: this times the bound, and four round trips
    rates: tuple[str, ...] = ()  # DOWN/UP of each site, where they differ; `mbit` is then what bounds them
    at_least_sent: float | None = None  # over that line, in parameters
    warm: int | None = None  # rounds before, where 16 s are not enough

    def bits(self, millions: float) -> float:
        parameters = 2 * (self.sites - 1) / self.sites if self.at_least_sent is None else self.at_least_sent
        return parameters * millions * 32e6

    def rate(self, site: int) -> str:
        return self.rates[site] if self.rates else f"{self.mbit:g}"

    def bound_seconds(self, millions: float) -> float:
        return self.bits(millions) / (self.mbit * 1e6)

    def warm_rounds(self, millions: float) -> int:
        return self.warm or min(10, max(2, math.ceil(WARM_SECONDS / self.bound_seconds(millions))))

    def share(self, millions: float, seconds: list[float]) -> float:
        return self.bound_seconds(millions) / statistics.median(seconds)


LINES = {
    "clean": Line(100, 100, 0, 0.93),
    "slight": Line(100, 100, 0.1, 0.90),
    "lossy": Line(100, 100, 1, 0.80),
    "fast": Line(1000, 20, 0, 0.90),
    "tls": Line(1000, 20, 0, against="fast", at_most=1 / 0.95, tls=True),
    # Many warm rounds: the first ones tell little of a line when each is so short.
    "int8": Line(100, 100, 0, against="clean", at_most=0.27, codec="int8", warm=12),
    "int4": Line(100, 100, 0, against="clean", at_most=0.15, codec="int4", warm=12),
    "long": Line(400, 100, 0.1, 0.85),
    "four": Line(100, 100, 0, sites=4, allowance=1.1),
    # The fast one owns nearly all: a thin one sends its delta once, and no way takes less than that.
    "uneven": Line(20, 50, 0, sites=4, allowance=1.2, rates=(*("100/20",) * 3, "1000"), at_least_sent=1, warm=4),
    "cubic-slight": Line(100, 100, 0.1, 0.85, environment=CUBIC),
    "cubic-lossy": Line(100, 100, 1, 0.5, environment=CUBIC),
}


def worker() -> None:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    elements = int(os.environ["BENCH_ELEMENTS"])
    rounds, warm = int(os.environ["BENCH_ROUNDS"]), int(os.environ["BENCH_WARM"])
    seconds: list[float] = []
    beyond: list[float] = []
    if os.environ["BENCH_BACKEND"] == "gloo":
        dist.init_process_group("gloo")
        tensor = torch.randn(elements)
        for _ in range(warm + rounds):
            dist.barrier()
            start = time.perf_counter()
            dist.all_reduce(tensor)
            seconds.append(time.perf_counter() - start)
        seconds = seconds[warm:]
    else:
        import torch_collab
        from flat_model import FlatModel

        dist.init_process_group("collab")
        model = DistributedDataParallel(FlatModel(elements))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(warm + rounds):
            model(torch.randn(4, 1)).backward()
            with torch.no_grad():
                model.module.all.add_(torch.randn(elements), alpha=0.01)
            optimizer.step()
            torch_collab.synchronize()
        events = [json.loads(line) for line in Path(os.environ["COLLAB_EVENTS_FILE"]).read_text().splitlines()]
        took = [event for event in events if event["event"] == "round"][warm : warm + rounds]
        seconds = [event["exchange_seconds"] for event in took]
        beyond = [event["seconds"] - event["exchange_seconds"] for event in took]
    Path(os.environ["BENCH_RESULT"]).write_text(json.dumps({"seconds": seconds, "beyond": beyond}))
    dist.destroy_process_group()


@dataclass(frozen=True)
class Measured:
    seconds: list[float]  # of each warm exchange, the slowest site's
    beyond: list[float]  # that the whole round took more; collab's only


def measure(backend: str, line: Line, rounds: int, tls: bool, args: argparse.Namespace) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            "BENCH_BACKEND": backend,
            "BENCH_ELEMENTS": int(args.millions * 1e6),
            "BENCH_ROUNDS": rounds,
            "BENCH_WARM": args.warm or line.warm_rounds(args.millions) if backend == "collab" else 1,
            "BENCH_ADDRESS": "{address}",
            "BENCH_RESULT": folder + "/{site}.json",
            "COLLAB_EVENTS_FILE": folder + "/{site}.jsonl",
            "COLLAB_TRANSPORT": "tcp",
            "COLLAB_CODEC": line.codec or args.codec,
            "COLLAB_SYNC_EVERY": 1000000,
            "COLLAB_LOG_LEVEL": "warning",
            "MASTER_ADDR": "{address:s0}",
            "MASTER_PORT": 29400,
            "RANK": "{index}",
            "WORLD_SIZE": line.sites,
            "LOCAL_RANK": 0,
            "LOCAL_WORLD_SIZE": 1,
            "GLOO_SOCKET_IFNAME": "",
            "OMP_NUM_THREADS": 1,
        }
        settings = [f"{name}={value}" for name, value in environment.items() if value != ""]
        settings += [*line.environment, *args.env]
        if tls:
            settings.append(
                "COLLAB_TOKEN=" + subprocess.check_output(["collab", "token", "--print"], text=True).strip()
            )
        command = ["collab", "lab", "--quiet", "--sites"]
        command += [f"s{index}:{line.rate(index)}" for index in range(line.sites)]
        command += ["--rtt", str(line.rtt_ms), "--loss", str(line.loss_percent)]
        for setting in settings:
            command += ["--env", setting]
        worker = [sys.executable, __file__, "--worker"]
        if backend in PEERS:
            worker = [args.peer_python, str(Path(__file__).with_name("wan_peers.py")), backend]
        # Peers talk a lot; what they say is shown where they fail.
        subprocess.run([*command, "--", *worker], check=True, timeout=args.limit, capture_output=backend in PEERS)
        answers = [json.loads(Path(folder, f"s{index}.json").read_text()) for index in range(line.sites)]
        seconds = [max(each) for each in zip(*(answer["seconds"] for answer in answers), strict=True)]
        wholes = ([x + y for x, y in zip(a["seconds"], a["beyond"], strict=True)] for a in answers if a.get("beyond"))
        whole = [max(each) for each in zip(*wholes, strict=True)]
        return Measured(seconds, [all_of - exchange for all_of, exchange in zip(whole, seconds, strict=False)])


def measure_line(name: str, args: argparse.Namespace) -> dict[str, Any]:
    line = LINES[name]
    row: dict[str, Any] = {"line": name, "bound_seconds": line.bound_seconds(args.millions)}
    if line.against is not None:
        row["against_seconds"] = measure("collab", LINES[line.against], args.rounds, False, args).seconds
    ours = measure("collab", line, args.rounds, args.tls or line.tls, args)
    row |= {"seconds": ours.seconds, "beyond_seconds": ours.beyond, "share": line.share(args.millions, ours.seconds)}
    if line.against is not None:
        row["of_against"] = statistics.median(row["seconds"]) / statistics.median(row["against_seconds"])
    if not args.no_gloo and not line.environment and line.against is None:
        # Gloo may take a hundred times as long on a lossy line: one round tells enough.
        row["gloo_seconds"] = measure("gloo", line, 1, False, args).seconds
        row["gloo_share"] = line.share(args.millions, row["gloo_seconds"])
    for peer in args.peers if not line.environment and line.against is None else ():
        try:
            row[f"{peer}_seconds"] = measure(peer, line, 1, False, args).seconds
            row[f"{peer}_share"] = line.share(args.millions, row[f"{peer}_seconds"])
        except (subprocess.SubprocessError, OSError) as error:
            said = (getattr(error, "stderr", None) or b"").decode(errors="replace")[-2000:]
            row[f"{peer}_failed"] = f"{type(error).__name__}: {said}"
            print(f"  {peer} failed: {said}", file=sys.stderr)
    if args.codec == "fp32":
        judge(line, row)
    return row


def judge(line: Line, row: dict[str, Any]) -> None:
    if line.at_least is not None:
        row["target"] = f"at least {line.at_least} of the line"
        row["met"] = row["share"] >= line.at_least
    if line.at_most is not None:
        row["target"] = f"at most {line.at_most:.3g} of the time of {line.against}"
        row["met"] = row["of_against"] <= line.at_most
    if line.allowance is not None:
        most = line.allowance * row["bound_seconds"] + 4 * line.rtt_ms / 1000
        row["target"] = f"at most {most:.2f} s"
        row["met"] = statistics.median(row["seconds"]) <= most
    row["beyond_target"] = 4 * line.rtt_ms / 1000
    row["beyond_met"] = statistics.median(row["beyond_seconds"]) <= row["beyond_target"]


def words(line: Line, row: dict[str, Any]) -> str:
    text = f"  {row['line']:<12} {line.mbit:g} Mbit/s, {line.rtt_ms:g} ms, {line.loss_percent:g} % loss, "
    text += f"{line.sites} sites: {row['share']:.3f} of the line ({statistics.median(row['seconds']):.2f} s)"
    if line.against is not None:
        text += f", {row['of_against']:.3f} of the time of {line.against}"
    if "gloo_share" in row:
        text += f", Gloo {row['gloo_share']:.3f}"
    for peer in PEERS:
        if f"{peer}_share" in row:
            text += f", {peer} {row[f'{peer}_share']:.3f}"
        elif f"{peer}_failed" in row:
            text += f", {peer} failed"
    if "target" in row:
        text += f"; {row['target']}: {'met' if row['met'] else 'MISSED'}"
        text += f"; the whole round {1000 * statistics.median(row['beyond_seconds']):.0f} ms more, at most "
        text += f"{1000 * row['beyond_target']:.0f}: {'met' if row['beyond_met'] else 'MISSED'}"
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lines", nargs="+", choices=LINES, default=list(LINES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm", type=int, help="rounds before; unless given, enough for 16 s of exchange in fp32")
    parser.add_argument("--millions", type=float, default=25, help="of parameters")
    parser.add_argument("--codec", default="fp32")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--no-gloo", action="store_true")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=[], help="measured beside ours and Gloo")
    parser.add_argument("--peer-python", default=sys.executable, help="of an environment that has them")
    parser.add_argument("--limit", type=float, default=900, help="seconds a line may take")
    parser.add_argument("--out", type=Path, default=Path("out/bench/wan.json"))
    args = parser.parse_args()

    rows = []
    print(f"wan: {pairs.machine()}")
    for name in args.lines:
        rows.append(measure_line(name, args))
        print(words(LINES[name], rows[-1]), flush=True)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    settings = {"codec": args.codec, "millions": args.millions, "tls": args.tls, "env": args.env}
    report = {"benchmark": "wan", "machine": pairs.machine(), **settings, "rows": rows}
    args.out.write_text(json.dumps(report, indent=1) + "\n")
    print(f"  -> {args.out}")
    return int(not all(row.get("met", True) and row.get("beyond_met", True) for row in rows))


if __name__ == "__main__":
    if "--worker" in sys.argv:
        worker()
    else:
        sys.exit(main())
