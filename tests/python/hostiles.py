"""A swarm under attack by `collab_hostile`: what its processes use and tell, with and without, and the bounds.

The attacker runs at the lowest priority: on a machine with two cores what would be measured else is that it takes one
from the swarm. It still is at full speed wherever a processor is idle.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

BINARY = Path(__file__).parents[2] / "build" / "release" / "tests" / "hostile" / "collab_hostile"

MIB = 1 << 20
MEMORY = 200 * MIB  # of a process, above its peak without an attack
# Beside that, what the transport may hold of unfinished messages, over all links of a process (PROTOCOL.md).
UNFINISHED = {"heads": 512 * MIB, "bring": 512 * MIB, "early-chunks": 512 * MIB}
LOG_RATE = 1000  # bytes a second of a process, beyond what it tells without an attack
LOG_ONCE = 4000  # bytes: what may be told once
SLOWER = 2.0  # median round
NOISE = 0.15  # seconds of a round: two cores do all of this
OPEN_FILES = 1024
GRACE = 5.0
LATE = 1.0  # after the grace it takes a round as well


def binary() -> str:
    if not BINARY.exists():
        pytest.skip(f"{BINARY} is not built: cmake --build build/release --target collab_hostile")
    return str(BINARY)


@dataclass
class Watched:
    """One process and the files only it, or it with its workers, writes."""

    name: str
    pid: int
    files: Sequence[Path] = ()
    said: Callable[[], int] = lambda: 0  # bytes of output that are in no such file

    def alive(self) -> bool:
        with contextlib.suppress(OSError):
            return "\nState:\tZ" not in Path(f"/proc/{self.pid}/status").read_text()
        return False

    def memory(self, what: str) -> int:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
                if line.startswith(what + ":"):
                    return int(line.split()[1]) * 1024
        return 0

    def begin_peak(self) -> None:
        with contextlib.suppress(OSError):  # where it is not allowed the peak is of all attacks so far
            Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def told(self) -> int:
        return self.said() + sum(path.stat().st_size for path in self.files if path.exists())


@dataclass
class Span:
    """What happened in a while."""

    seconds: float = 0
    peaks: dict[str, int] = field(default_factory=dict)  # bytes, by process
    told: dict[str, int] = field(default_factory=dict)
    rounds: int = 0
    longest: float = 0  # seconds without a round, to the span's end
    median: float = 0  # of a round

    def told_a_round(self, name: str) -> float:
        return self.told[name] / self.rounds


def rounds_in(events: Path) -> list[float]:
    """When the site committed each round, in Unix seconds."""
    times = []
    for line in events.read_text(errors="replace").splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            event = json.loads(line)
            if event["event"] == "round":
                times.append(float(event["t"]))
    return times


class Siege:
    """Watches processes; `events` are those of a site that takes part in all rounds."""

    def __init__(self, target: str, watched: Sequence[Watched], events: Path, environment: dict[str, str]) -> None:
        self.target = target
        self.watched = watched
        self.events = events
        self.environment = environment
        self.faults: list[str] = []
        self.quiet = Span()
        for each in watched:  # what a shell allows
            resource.prlimit(each.pid, resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))

    def watch(self, over: Callable[[], bool]) -> Span:
        for each in self.watched:
            each.begin_peak()
        told = {each.name: each.told() for each in self.watched}
        began = time.time()
        while not over():
            time.sleep(0.05)
        ended = time.time()
        times = [began, *(t for t in rounds_in(self.events) if began <= t <= ended), ended]
        gaps = [b - a for a, b in itertools.pairwise(times)]
        whole = gaps[1:-1] or [ended - began]
        return Span(
            seconds=ended - began,
            peaks={each.name: each.memory("VmHWM") for each in self.watched},
            told={each.name: each.told() - told[each.name] for each in self.watched},
            rounds=len(times) - 2,
            longest=max(gaps),
            median=statistics.median(whole),
        )

    def watch_quiet(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        self.quiet = self.watch(lambda: time.monotonic() >= until)
        assert self.quiet.rounds > 3, "no rounds to compare with"
        peaks = ", ".join(f"{name} {peak // MIB} MiB" for name, peak in self.quiet.peaks.items())
        print(f"\nwithout an attack: a round in {self.quiet.median:.2f} s; {peaks}")

    def endure(self, attack: str, seconds: float, seed: int) -> None:
        """Runs the attack, then waits until a round follows; notes each bound that was broken."""
        command = ["nice", "-n", "19", binary(), "--target", self.target, "--attack", attack, "--seed", str(seed)]
        command += ["--seconds", str(max(1, round(seconds)))]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("COLLAB_")}
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            attacker = subprocess.Popen(
                command, env={**kept, **self.environment}, stdout=output, stderr=subprocess.STDOUT
            )
            try:
                limit = time.monotonic() + seconds + 60
                span = self.watch(lambda: attacker.poll() is not None or time.monotonic() > limit)
            finally:
                attacker.kill()
                attacker.wait()
            output.seek(0)
            said = output.read().strip()
        waited = self._wait_for_a_round()
        self._judge(attack, span, waited, attacker.returncode)
        print(f"{said}\n  {self._figures(span, waited)}", flush=True)

    def _wait_for_a_round(self) -> float:
        """Seconds from the attack's end to the next round."""
        began = time.time()
        while time.time() - began < GRACE + LATE:
            if any(t > began for t in rounds_in(self.events)):
                break
            time.sleep(0.05)
        return time.time() - began

    def _figures(self, span: Span, waited: float) -> str:
        more = {name: span.peaks[name] - self.quiet.peaks[name] for name in span.peaks}
        figures = [f"{name} {bytes_ // MIB:+} MiB {self._beyond(span, name):+.0f} B/s" for name, bytes_ in more.items()]
        return (
            f"{span.rounds} rounds in {span.seconds:.1f} s, median {span.median:.2f} s, longest {span.longest:.1f} s, "
            f"the next after {waited:.1f} s; " + ", ".join(figures)
        )

    def _beyond(self, span: Span, name: str) -> float:
        """Bytes a second that are not of rounds."""
        return (span.told[name] - span.rounds * self.quiet.told_a_round(name)) / span.seconds

    def _judge(self, attack: str, span: Span, waited: float, status: int | None) -> None:
        def hold(kept: bool, fault: str) -> None:
            if not kept:
                self.faults.append(f"{attack}: {fault}")

        hold(status == 0, f"the attacker ended with {status}")
        for each in self.watched:
            name = each.name
            hold(each.alive(), f"{name} has ended")
            more = span.peaks[name] - self.quiet.peaks[name]
            bound = MEMORY + UNFINISHED.get(attack, 0)
            hold(more <= bound, f"{name} took {more // MIB} MiB more, {bound // MIB} at most")
            told = self._beyond(span, name) - LOG_ONCE / span.seconds
            hold(told <= LOG_RATE, f"{name} told {told:.0f} B/s more, {LOG_RATE} at most")
        stopped = max(span.longest, waited)
        hold(stopped <= GRACE + LATE, f"no round for {stopped:.1f} s, {GRACE:.0f} at most")
        slowest = SLOWER * self.quiet.median + NOISE
        hold(span.median <= slowest, f"a round took {span.median:.2f} s, {slowest:.2f} at most")

    def verdict(self) -> None:
        assert not self.faults, "bounds that were not held:\n" + "\n".join(self.faults)
