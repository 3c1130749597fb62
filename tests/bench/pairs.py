"""What the Python benchmarks share: worlds of pinned worker processes, interleaved pairs, the median ratio.

A machine's speed drifts by more than most effects, so A and B are timed one right after the other and each pair gives
one ratio; every second pair runs B first. The interval is distribution-free (order statistics), as in bench.h.
"""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))

from forks import bare_environment as bare_environment  # of tests/python


def interval(samples: list[float]) -> tuple[float, float, float]:
    """(low, median, high): the narrowest order statistics that cover the median with at least 95 %."""
    ordered, n = sorted(samples), len(samples)
    rank, probability = 0, 0.5**n
    tail = probability
    while tail <= 0.025 and rank < n // 2:
        rank += 1
        probability *= (n - rank + 1) / rank
        tail += probability
    rank = max(0, rank - 1)
    middle = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    return ordered[rank], middle, ordered[n - 1 - rank]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class World:
    """Worker processes that answer one line of JSON for each line they are given; rank r is pinned to CPU r."""

    def __init__(self, script: str, size: int, environment: dict[str, str], rank_environment: list[dict[str, str]]):
        cpus = sorted(os.sched_getaffinity(0))
        if len(cpus) < size:
            sys.exit(f"this benchmark pins {size} processes to cores of their own; {len(cpus)} cores are here")
        shared = {
            "WORLD_SIZE": str(size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "COLLAB_LOG_LEVEL": "warning",
        }
        self.workers = [
            subprocess.Popen(
                ["taskset", "-c", str(cpus[rank]), sys.executable, script, "--worker"],
                env=os.environ | shared | environment | rank_environment[rank] | {"RANK": str(rank)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
            )
            for rank in range(size)
        ]

    def ask(self, **question: object) -> list[dict[str, float]]:
        for worker in self.workers:
            assert worker.stdin
            print(json.dumps(question), file=worker.stdin)
        answers = []
        for worker in self.workers:
            assert worker.stdout
            line = worker.stdout.readline()
            if not line:
                self.close()
                sys.exit("a worker of the benchmark ended; its message is above")
            answers.append(json.loads(line))
        return answers

    def close(self) -> None:
        for worker in self.workers:
            if worker.stdin and not worker.stdin.closed:
                worker.stdin.close()
        for worker in self.workers:
            try:
                worker.wait(timeout=60)
            except subprocess.TimeoutExpired:
                worker.kill()


def questions() -> list[dict[str, object]]:
    """In a worker: the questions, as they come."""
    return (json.loads(line) for line in sys.stdin)  # type: ignore[return-value]


def answer(**values: float) -> None:
    print(json.dumps(values), flush=True)


def report(name: str, rows: list[dict[str, object]], out: Path) -> bool:
    """Prints the rows, writes them to `out`; whether every row with a target meets it."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"benchmark": name, "machine": machine(), "rows": rows}, indent=1) + "\n")
    print(f"{name}: {machine()}")
    met = True
    for row in rows:
        target = row.get("at_most")
        if target is not None:
            row_met = float(row["ratio"]) <= float(target)  # type: ignore[arg-type]
            met = met and row_met
        words = [f"  {row['what']:<46} {row['ratio']:.3f} x"]
        if "low" in row:
            words.append(f"[{row['low']:.3f}, {row['high']:.3f}]")
        if "a_seconds" in row:
            words.append(f"{row['a_seconds']:.4f} s against {row['b_seconds']:.4f} s, {row['pairs']} pairs")
        if "fixed_megabytes" in row:
            words.append(f"and {row['fixed_megabytes']:.0f} MB whatever the size")
        if target is not None:
            words.append(f"at most {target}: {'met' if row_met else 'MISSED'}")
        print("  ".join(words))
    print(f"  -> {out}")
    return met


def row(what: str, a: list[float], b: list[float], at_most: float | None) -> dict[str, object]:
    """a against b, pair by pair."""
    low, median, high = interval([x / y for x, y in zip(a, b, strict=True)])
    result: dict[str, object] = {"what": what, "ratio": median, "low": low, "high": high, "pairs": len(a)}
    result |= {"a_seconds": interval(a)[1], "b_seconds": interval(b)[1], "total_ratio": math.fsum(a) / math.fsum(b)}
    return result | ({} if at_most is None else {"at_most": at_most})


def machine() -> str:
    model = "unknown CPU"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return f"{model}, {len(os.sched_getaffinity(0))} CPUs, load {os.getloadavg()[0]:.1f}"
