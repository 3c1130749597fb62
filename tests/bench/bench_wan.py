"""Rounds over an emulated wide-area network (`collab lab`), as a share of the line's rate, with Gloo beside them.

    python tests/bench/bench_wan.py [--lines clean lossy …] [--rounds 3] [--millions 25] [--out out/bench/wan.json]

Each line is two sites (or more) behind lines of equal rate. Over collab's tcp transport, warm: the payload bits a site
sends in one fp32 round, 2 (n - 1) / n of the parameters, over the line's rate (of IP packets) times `exchange_seconds`.
For Gloo the same of one all-reduce. One run holds both columns, one after the other over the same line, and medians of
the rounds. Needs what `collab lab` needs. `--codec` and `--env NAME=VALUE` try others; `--tls` encrypts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pairs


@dataclass(frozen=True)
class Line:
    mbit: float
    rtt_ms: float
    loss_percent: float
    at_least: float | None
    sites: int = 2
    environment: tuple[str, ...] = ()


LINES = {
    "clean": Line(100, 100, 0, 0.93),
    "slight": Line(100, 100, 0.1, 0.90),
    "lossy": Line(100, 100, 1, 0.80),
    "fast": Line(1000, 20, 0, 0.90),
    "long": Line(400, 100, 0.1, 0.85),
    "four": Line(100, 100, 0, None, sites=4),
}


def worker() -> None:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    elements = int(os.environ["BENCH_ELEMENTS"])
    rounds = int(os.environ["BENCH_ROUNDS"])
    seconds: list[float] = []
    if os.environ["BENCH_BACKEND"] == "gloo":
        dist.init_process_group("gloo")
        tensor = torch.randn(elements)
        for _ in range(1 + rounds):
            dist.barrier()
            start = time.perf_counter()
            dist.all_reduce(tensor)
            seconds.append(time.perf_counter() - start)
    else:
        import torch_collab

        class Model(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.all = torch.nn.Parameter(torch.randn(elements))

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.all[:1000].mean() * x.sum()

        dist.init_process_group("collab")
        model = DistributedDataParallel(Model())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(1 + rounds):
            model(torch.randn(4, 1)).backward()
            with torch.no_grad():
                model.module.all.add_(torch.randn(elements), alpha=0.01)
            optimizer.step()
            torch_collab.synchronize()
        events = [json.loads(line) for line in Path(os.environ["COLLAB_EVENTS"]).read_text().splitlines()]
        seconds = [event["exchange_seconds"] for event in events if event["event"] == "round"]
    Path(os.environ["BENCH_RESULT"]).write_text(json.dumps(seconds[1 : 1 + rounds]))
    dist.destroy_process_group()


def measure(backend: str, line: Line, args: argparse.Namespace) -> list[float]:
    """Seconds of each warm exchange, the slowest site's."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            "BENCH_BACKEND": backend,
            "BENCH_ELEMENTS": int(args.millions * 1e6),
            "BENCH_ROUNDS": args.rounds,
            "BENCH_RESULT": folder + "/{site}.json",
            "COLLAB_EVENTS": folder + "/{site}.jsonl",
            "COLLAB_TRANSPORT": "tcp",
            "COLLAB_CODEC": args.codec,
            "COLLAB_SYNC_EVERY": 1000000,
            "COLLAB_LOG": "warning",
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
        settings += [*args.env, *line.environment]
        if args.tls:
            settings.append("COLLAB_TOKEN=" + subprocess.check_output(["collab", "token"], text=True).strip())
        command = ["collab", "lab", "--quiet", "--sites", *(f"s{index}:{line.mbit}" for index in range(line.sites))]
        command += ["--rtt", str(line.rtt_ms), "--loss", str(line.loss_percent)]
        for setting in settings:
            command += ["--env", setting]
        subprocess.run([*command, "--", sys.executable, __file__, "--worker"], check=True, timeout=args.limit)
        answers = [json.loads(Path(folder, f"s{index}.json").read_text()) for index in range(line.sites)]
        return [max(each) for each in zip(*answers, strict=True)]


def share(line: Line, millions: float, seconds: list[float]) -> float:
    bits = 2 * (line.sites - 1) / line.sites * millions * 32e6
    return bits / (line.mbit * 1e6 * statistics.median(seconds))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lines", nargs="+", choices=LINES, default=list(LINES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--millions", type=float, default=25, help="of parameters")
    parser.add_argument("--codec", default="fp32")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--no-gloo", action="store_true")
    parser.add_argument("--limit", type=float, default=900, help="seconds a line may take")
    parser.add_argument("--out", type=Path, default=Path("out/bench/wan.json"))
    args = parser.parse_args()

    rows = []
    print(f"wan: {pairs.machine()}")
    for name in args.lines:
        line = LINES[name]
        ours = measure("collab", line, args)
        # Gloo may take a hundred times as long on a lossy line: one round tells enough.
        theirs = [] if args.no_gloo else measure("gloo", line, argparse.Namespace(**{**vars(args), "rounds": 1}))
        row = {"line": name, "seconds": ours, "share": share(line, args.millions, ours), "at_least": line.at_least}
        row["bound_seconds"] = 2 * (line.sites - 1) / line.sites * args.millions * 32 / line.mbit
        words = f"  {name:<8} {line.mbit:g} Mbit/s, {line.rtt_ms:g} ms, {line.loss_percent:g} % loss, "
        words += f"{line.sites} sites: {row['share']:.3f} of the line ({statistics.median(ours):.2f} s)"
        if theirs:
            row |= {"gloo_seconds": theirs, "gloo_share": share(line, args.millions, theirs)}
            words += f", Gloo {row['gloo_share']:.3f}"
        if line.at_least is not None and args.codec == "fp32":
            words += f"; at least {line.at_least}: {'met' if row['share'] >= line.at_least else 'MISSED'}"
        print(words, flush=True)
        rows.append(row)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    settings = {"codec": args.codec, "millions": args.millions, "tls": args.tls, "env": args.env}
    written = {"benchmark": "wan", "machine": pairs.machine(), **settings, "rows": rows}
    args.out.write_text(json.dumps(written, indent=1) + "\n")
    print(f"  -> {args.out}")
    return int(any(row["at_least"] and row["share"] < row["at_least"] for row in rows))


if __name__ == "__main__":
    if "--worker" in sys.argv:
        worker()
    else:
        sys.exit(main())
