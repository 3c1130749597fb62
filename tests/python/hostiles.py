"""A swarm under attack by `collab_hostile`: what its processes use and tell, with and without, and the bounds.

The attacker runs at the lowest priority: on a machine with two cores what would be measured else is that it takes one
from the swarm. It still is at full speed wherever a processor is idle.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from commands import bare_environment, written
from ranks import wait_until

BUILD = Path(__file__).parents[2] / "build"

MIB = 1 << 20
MEMORY = 200 * MIB  # of a process, above its peak without an attack
# Beside that, what docs/protocol says: of answers that are not read; of parts of anchors on their way; of unfinished
# messages, over all links of a process; of what a hub holds of its ranks' parts; of what it remembers of them; and of
# Joins that wait.
DOCUMENTED = {
    "unread": 256 * MIB,
    "fetch-names": 256 * MIB,
    "heads": 512 * MIB,
    "early-chunks": 512 * MIB,
    "bring": 512 * MIB,
    "enter-gone": (512 + 128) * MIB,
    "large-joins": (512 + 256) * MIB,
    "full-hub": (512 + 128) * MIB,
    "many-groups": round(4.4 * 128) * MIB,  # 1 + H(16) times: one host begins 16 worlds, and each has its share
    "held": 128 * MIB,
    "unacknowledged": 512 * MIB,
}
# What may be left of an attack, and the unit to tell it in.
KEPT = {"MiB": (MEMORY, MIB), "open files": (8, 1), "threads": (4, 1)}
# Of memory, when the next attack begins: what more the next one takes is judged against the peak without any.
LEFT = MEMORY // 2
LOG_RATE = 1000  # bytes a second of a process, beyond what it tells without an attack
LOG_ONCE = 80_000  # bytes: what may be told once, in all
BACK_WITHIN = 30.0  # seconds in which that goes back after an attack: a world's parts once nobody can return to it
SLOWER = 2.0  # median round
NOISE = 0.15  # seconds of a round: two cores do all of this
OPEN_FILES = 1024
GRACE = 5.0
ROUNDS_OF_MEDIAN = 5
LATE = 1.0  # after the grace it takes a round as well
STANDSTILL = {"two-that-move": 105.0}  # of newcomers, whatever the grace: docs/security-model.md
# Attacks whose longest bounds are of a minute and more: in a long run they have this time, and reach them.
LONG = ("take-part", "two-that-move")
LONG_SECONDS = 120.0
# Controls but the tab, line separators, marks of direction and of no width.
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


def binary() -> str:
    built = [*BUILD.glob("*/tests/hostile/collab_hostile")]
    if not built:
        why = "collab_hostile is not built: cmake --build --preset release --target collab_hostile"
        if os.environ.get("TEST_ATTACKER") == "built":  # beside the tests, by ci/test.sh
            pytest.fail(why)
        pytest.skip(why)
    return str(max(built, key=lambda path: path.stat().st_mtime))


@dataclass
class Watched:
    """One process and the files only it, or it with its workers, writes."""

    name: str
    pid: int
    files: Sequence[Path] = ()
    output: Callable[[], str] = lambda: ""  # what is in no such file

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

    def holds(self, what: str) -> int:
        """What of KEPT it has now."""
        if what == "MiB":
            return self.memory("VmRSS")
        with contextlib.suppress(OSError):
            return len(os.listdir(f"/proc/{self.pid}/{'fd' if what == 'open files' else 'task'}"))
        return 0

    def begin_peak(self) -> None:
        with contextlib.suppress(OSError):  # where it is not allowed the peak is of all attacks so far
            Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def told(self) -> int:
        return len(self.output().encode()) + sum(path.stat().st_size for path in self.files if path.exists())

    def obeyed(self) -> list[str]:
        """Lines that hold what a terminal obeys instead of showing."""
        texts = [self.output(), *(path.read_text() for path in self.files if path.exists())]
        return [line for text in texts for line in text.split("\n") if OBEYED.search(line)]


@dataclass
class Span:
    """What happened in a while."""

    seconds: float = 0
    peaks: dict[str, int] = field(default_factory=dict)  # bytes, by process
    told: dict[str, int] = field(default_factory=dict)
    times: list[float] = field(default_factory=list)  # its begin, its rounds, its end

    @property
    def rounds(self) -> int:
        return len(self.times) - 2

    @property
    def longest(self) -> float:
        """Seconds without a round."""
        return max(gaps_of(self.times))

    def told_a_round(self, name: str) -> float:
        return self.told[name] / self.rounds


@dataclass
class After:
    waited: float  # seconds from an attack's end to the next round, or as long as that was waited for
    median: float  # seconds of a round, from the attack's begin on


def shares(names: Sequence[str], seconds: float, aimed: Sequence[str], here: Sequence[str]) -> dict[str, float]:
    """Seconds of each attack, of so many in all: in a short run, of those that are aimed at rounds, those `here` alone,
    with the time that they need; in a long one those of LONG have theirs."""
    share = seconds / len(names)
    least = GRACE + LATE + 2
    if is_short(seconds, names):
        return _divided([name for name in names if name not in aimed], seconds, dict.fromkeys(here, least))
    long = {name: LONG_SECONDS for name in LONG if name in names and share < LONG_SECONDS}
    others = [name for name in names if name not in long]
    if seconds - LONG_SECONDS * len(long) < least * max(1, len(others)):
        return dict.fromkeys(names, share)
    return _divided(others, seconds, long)


def is_short(seconds: float, names: Sequence[str]) -> bool:
    """Not all of them have the time that those aimed at rounds need."""
    return len(names) > 1 and seconds / len(names) < GRACE + LATE + 2


def _divided(others: Sequence[str], seconds: float, some: dict[str, float]) -> dict[str, float]:
    return dict.fromkeys(others, (seconds - sum(some.values())) / len(others)) | some


def round_events(events: Path) -> Iterator[dict[str, Any]]:
    """Of each round that the site committed; a line that is half written is not there yet."""
    for line in events.read_text(errors="replace").splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            event = json.loads(line)
            if event["event"] == "round":
                yield event


def rounds_in(events: Path) -> list[float]:
    """When the site committed each round, in Unix seconds."""
    return [float(event["t"]) for event in round_events(events)]


def gaps_of(times: Sequence[float]) -> list[float]:
    return [b - a for a, b in itertools.pairwise(times)]


class Siege:
    """Watches processes; `events` are those of a site that takes part in all rounds, `others` those of further ones."""

    most_grown = 100 * MIB  # of a process, at the end of all attacks

    def __init__(
        self,
        target: str,
        watched: Sequence[Watched],
        events: Path,
        environment: dict[str, str],
        others: Sequence[Path] = (),
    ) -> None:
        self.target = target
        self.watched = watched
        self.events = events
        self.others = others
        self.environment = environment
        self.faults: list[str] = []
        self.quiet = Span()
        self.usual = 0.0  # seconds of a round, without an attack
        self.usually: dict[str, dict[str, int]] = {}  # of KEPT, by process
        self.told = {each.name: 0.0 for each in watched}  # bytes by reason of attacks
        self.attacked = 0.0  # seconds
        self.grown: dict[str, int] = {}  # bytes, by process, as of the end
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
        return Span(
            seconds=ended - began,
            peaks={each.name: each.memory("VmHWM") for each in self.watched},
            told={each.name: each.told() - told[each.name] for each in self.watched},
            times=[began, *(t for t in rounds_in(self.events) if began <= t <= ended), ended],
        )

    def watch_quiet(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        self.quiet = self.watch(lambda: time.monotonic() >= until)
        assert self.quiet.rounds > 3, "no rounds to compare with"
        self.usual = statistics.median(gaps_of(self.quiet.times[1:-1]))
        self.usually = {
            each.name: {what: self.quiet.peaks[each.name] if what == "MiB" else each.holds(what) for what in KEPT}
            for each in self.watched
        }
        peaks = ", ".join(f"{name} {peak // MIB} MiB" for name, peak in self.quiet.peaks.items())
        print(f"\nwithout an attack: a round in {self.usual:.2f} s; {peaks}")

    def endure(self, attack: str, seconds: float, seed: int) -> None:
        """Runs the attack, then waits until a round follows; notes each bound that was broken."""
        self._wait_until_grown_little(LEFT)
        command = ["nice", "-n", "19", binary(), "--target", self.target, "--attack", attack, "--seed", str(seed)]
        command += ["--seconds", str(max(1, round(seconds))), *self.place_of(attack)]
        kept = bare_environment()
        with tempfile.TemporaryFile("w+") as output:
            attacker = subprocess.Popen(
                command, env={**kept, **self.environment}, stdout=output, stderr=subprocess.STDOUT
            )
            try:
                limit = time.monotonic() + seconds + 60
                span = self.watch(lambda: attacker.poll() is not None or time.monotonic() > limit)
            finally:
                attacker.kill()
                attacker.wait()
            said = written(output).strip()
        self.attacker_has_gone(attack)
        after = self._rounds_after(span)
        self._judge(attack, span, after, attacker.returncode)
        self.judge_more(attack, span)
        self._judge_evidence(attack, said)
        print(f"{said}\n  {self._figures(span, after)}", flush=True)

    def place_of(self, attack: str) -> list[str]:
        """Further arguments of the attacker, who is about to begin."""
        return []

    def attacker_has_gone(self, attack: str) -> None: ...

    def judge_more(self, attack: str, span: Span) -> None:
        """What else is held to bounds."""

    def _rounds_after(self, span: Span) -> After:
        """Waits for a round, and then for as many as make a median: one that waited out the grace is allowed."""
        ended = span.times[-1]
        while True:
            after = [t for t in rounds_in(self.events) if t > ended]
            waited = time.time() - ended
            enough = span.rounds + len(after) > ROUNDS_OF_MEDIAN
            if (after and enough) or waited > (GRACE + LATE if not after else 2 * GRACE):
                break
            time.sleep(0.05)
        gaps = gaps_of([*span.times[:-1], *after])
        return After(after[0] - ended if after else waited, statistics.median(gaps or [span.seconds + waited]))

    def _figures(self, span: Span, after: After) -> str:
        more = {name: span.peaks[name] - self.quiet.peaks[name] for name in span.peaks}
        figures = [f"{name} {bytes_ // MIB:+} MiB {self._beyond(span, name):+.0f} B/s" for name, bytes_ in more.items()]
        return (
            f"{span.rounds} rounds in {span.seconds:.1f} s, longest {span.longest:.1f} s, "
            f"the next after {after.waited:.1f} s, median {after.median:.2f} s; " + ", ".join(figures)
        )

    def _beyond(self, span: Span, name: str) -> float:
        """Bytes a second that are not of rounds."""
        return (span.told[name] - span.rounds * self.quiet.told_a_round(name)) / span.seconds

    def _judge(self, attack: str, span: Span, after: After, status: int | None) -> None:
        self.attacked += span.seconds

        def hold(kept: bool, fault: str) -> None:
            if not kept:
                self.faults.append(f"{attack}: {fault}")

        hold(status == 0, f"the attacker ended with {status}")
        for each in self.watched:
            name = each.name
            hold(each.alive(), f"{name} has ended; it said last: {each.output()[-600:]}")
            more = span.peaks[name] - self.quiet.peaks[name]
            bound = MEMORY + DOCUMENTED.get(attack, 0)
            hold(more <= bound, f"{name} took {more // MIB} MiB more, {bound // MIB} at most")
            self.told[name] += self._beyond(span, name) * span.seconds
            allowed = LOG_ONCE + LOG_RATE * self.attacked
            hold(self.told[name] <= allowed, f"{name} has told {self.told[name]:.0f} bytes more, {allowed:.0f} at most")
        stopped = max(gaps_of([*span.times[:-1], span.times[-1] + after.waited]))
        longest = STANDSTILL.get(attack, GRACE)
        if attack in LONG and span.seconds >= LONG_SECONDS:
            longest = max(STANDSTILL.values())
        hold(stopped <= longest + LATE, f"no round for {stopped:.1f} s, {longest:.0f} at most")
        for other in self.others:
            left_out = self._longest_without(other, span)
            hold(left_out <= longest + LATE, f"no round for {left_out:.1f} s in {other.name}, {longest:.0f} at most")
        slowest = SLOWER * self.usual + NOISE
        hold(after.median <= slowest, f"a round took {after.median:.2f} s, {slowest:.2f} at most")
        self._wait_until_back(hold)

    def _longest_without(self, events: Path, span: Span) -> float:
        """Seconds without a round of that site, from the attack's begin to its next round after the end."""
        begun, ended = span.times[0], span.times[-1]
        with contextlib.suppress(AssertionError):  # it is as long then
            wait_until(lambda: any(t > ended for t in rounds_in(events)), GRACE + LATE)
        times = [t for t in rounds_in(events) if t >= begun]
        after = next((t for t in times if t > ended), time.time())
        return max(gaps_of([begun, *(t for t in times if t <= ended), after]))

    def _judge_evidence(self, attack: str, said: str) -> None:
        """An attack that came to nobody shows nothing. Nobody is taken for another."""
        if "takes us for another" in said:
            self.faults.append(f"{attack}: it was taken for another:\n{said}")
        arrived = re.search(r"^  arrived (\d+) times$", said, re.MULTILINE)
        if arrived is None or int(arrived[1]) == 0:
            self.faults.append(f"{attack}: nothing shows that it arrived:\n{said}")

    def _wait_until_back(self, hold: Callable[[bool, str], None]) -> None:
        """What an attack has taken goes back."""

        def kept() -> list[str]:
            return [
                f"{each.name} keeps {more // unit} {what} more"
                for each in self.watched
                for what, (bound, unit) in KEPT.items()
                if (more := each.holds(what) - self.usually[each.name][what]) > bound
            ]

        until = time.monotonic() + BACK_WITHIN
        while kept() and time.monotonic() < until:
            time.sleep(0.2)
        for fault in kept():
            hold(False, f"{fault} {BACK_WITHIN:.0f} s later")

    def stop(self, flag: Path) -> None:
        """Ends the training of all sites after one and the same round; at once where there are none any more."""
        self.grown = self._wait_until_grown_little(self.most_grown)
        last = self._last_round() + 3
        written = flag.with_suffix(".new")
        written.write_text(str(last))
        written.rename(flag)
        deadline = time.monotonic() + 2 * GRACE
        while self._last_round() < last and time.monotonic() < deadline:
            time.sleep(0.05)
        if self._last_round() < last:
            self.faults.append(f"no round {last} at the end")
        time.sleep(GRACE)
        flag.write_text("0")  # for a site that has not come to that round

    def _wait_until_grown_little(self, most: int) -> dict[str, int]:
        """What each holds beyond its peak without an attack: pools shrink bit by bit."""

        def grown() -> dict[str, int]:
            return {each.name: each.memory("VmRSS") - self.quiet.peaks[each.name] for each in self.watched}

        with contextlib.suppress(AssertionError):
            wait_until(lambda: all(more <= most for more in grown().values()), BACK_WITHIN)
        return grown()

    def _last_round(self) -> int:
        return max((int(event["round"]) for event in round_events(self.events)), default=0)

    def verdict(self) -> None:
        grown = [f"{each.name} {self.grown.get(each.name, 0) // MIB:+}" for each in self.watched]
        print(f"at the end, MiB beyond the peak without an attack: {', '.join(grown)}", flush=True)
        for name, more in self.grown.items():
            if more > self.most_grown:
                self.faults.append(f"{name} has grown by {more // MIB} MiB, {self.most_grown // MIB} at most")
        for each in self.watched:
            lines = each.obeyed()
            if lines:
                self.faults.append(f"{each.name} told {len(lines)} lines that a terminal obeys: {lines[0][:300]!r}")
        assert not self.faults, "bounds that were not held:\n" + "\n".join(self.faults)
