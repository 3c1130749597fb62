"""A world of ranks in collectives, attacked by `collab_hostile` as one of its ranks: each call is held to bounds.

At the hub the world has ranks that torch knows nothing of (scripts/besieged.py). One process keeps them there; each
attack takes the next of them over, and with it a group of that rank and the honest ones, whose calls may fail.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commands import bare_environment
from hostiles import BACK_WITHIN, GRACE, LATE, MEMORY, NOISE, SLOWER, Siege, Span, Watched, binary
from ranks import wait_until

STRANGERS = 32
# Under these calls may fail, and go well again once the attacker has gone (docs/security-model.md).
MAY_FAIL = ("squat", "full-hub")
AGAIN = 20  # calls in a row


@dataclass
class Call:
    ended: float  # Unix seconds
    what: str
    seconds: float
    error: str


class WorldSiege(Siege):
    most_grown = MEMORY  # of what attacks on calls have made a rank hold, the system has some back only later

    def __init__(self, folder: Path, sites: Sequence[str], watched: Sequence[Watched]) -> None:
        self.folder = folder
        self.sites = sites
        self.world: dict[str, Any] = json.loads((folder / "world.json").read_text())
        super().__init__(self.world["hubs"][0], watched, folder / f"{sites[0]}.jsonl", {})
        self.usual_step = 0.0
        self._next = len(sites)

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """The ranks that are to attack are in the world, until each is taken over."""
        command = [binary(), "--target", self.target, "--keep", "--seconds", "86400", *self._arguments(self._next)]
        keeper = subprocess.Popen(command, env=bare_environment(), stdout=subprocess.DEVNULL)
        try:
            yield
        finally:
            keeper.kill()
            keeper.wait()

    def watch_quiet(self, seconds: float) -> None:
        super().watch_quiet(seconds)
        begun, ended = self.quiet.times[0], self.quiet.times[-1]
        self.usual_step = self._median_step(begun, ended)
        print(f"a step of calls in {self.usual_step:.3f} s")

    def place_of(self, attack: str) -> list[str]:
        rank, self._next = self._next, self._next + 1
        assert rank < len(self.world["site_of"]), "no rank is left to attack as"
        self._tell_attacker(rank)
        return self._arguments(rank)

    def attacker_has_gone(self, attack: str) -> None:
        self._tell_attacker(-1)

    def judge_more(self, attack: str, span: Span) -> None:
        """Calls that the attacker has no part in: all go well, in time."""
        begun, ended = span.times[0], span.times[-1]
        with contextlib.suppress(AssertionError):  # told below
            wait_until(lambda: all(self._steps(site, ended, time.time()) for site in self.sites), GRACE + LATE)
        now = time.time()
        figures = []
        for site in self.sites:
            calls = self._calls(site, begun, now)
            failed = [call for call in calls if call.error]
            if failed and attack not in MAY_FAIL:
                first = f"{failed[0].what}: {failed[0].error}"
                self.faults.append(f"{attack}: {len(failed)} calls failed at {site}, the first {first}")
            last = calls[-1].ended if calls else begun
            longest = max([now - last, *(call.seconds for call in calls if call.what != "step")])
            if longest > GRACE + LATE:
                self.faults.append(f"{attack}: a call took {longest:.1f} s at {site}, {GRACE:.0f} at most")
            figures.append(f"{site} {len(failed)} of {len(calls)} failed, longest {longest:.2f} s")
        if attack in MAY_FAIL:
            try:
                wait_until(lambda: all(self._goes_well(site, ended) for site in self.sites), BACK_WITHIN)
            except AssertionError:
                self.faults.append(f"{attack}: calls fail still {BACK_WITHIN:.0f} s later")
        step = self._median_step(begun, now)
        if step > SLOWER * self.usual_step + NOISE:
            self.faults.append(f"{attack}: a step of calls took {step:.2f} s, usually {self.usual_step:.2f}")
        print(f"  calls: a step in {step:.3f} s; " + "; ".join(figures))

    # ---- what is told to whom

    def _tell_attacker(self, rank: int) -> None:
        told = self.folder / "attacker.new"
        told.write_text(str(rank))
        told.rename(self.folder / "attacker")

    def _arguments(self, rank: int) -> list[str]:
        return [
            "--world", str(self.world["world"]), "--rank", str(rank), "--sites", ",".join(self.world["sites"]),
            "--site-of", ",".join(str(site) for site in self.world["site_of"]),
            "--group", str(next(iter(self.world["groups"].values()))), "--shared", str(self._number(f"with {rank}")),
        ]  # fmt: skip

    def _number(self, text: str) -> int:
        """As torch_collab.world.hub counts groups, which any rank can."""
        digest = hashlib.blake2b(f"{self.world['world']}/{text}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") & ~1

    # ---- what the ranks tell

    def _calls(self, site: str, begun: float, ended: float) -> list[Call]:
        found = []
        for line in (self.folder / f"calls-{site}.jsonl").read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                told = json.loads(line)
                found.append(Call(told["t"], told["what"], told["seconds"], told["error"]))
        return [call for call in found if begun <= call.ended <= ended]

    def _goes_well(self, site: str, since: float) -> bool:
        calls = self._calls(site, since, time.time())[-AGAIN:]
        return len(calls) == AGAIN and not any(call.error for call in calls)

    def _steps(self, site: str, begun: float, ended: float) -> list[float]:
        """Seconds of each that was begun in that while."""
        return [
            call.seconds
            for call in self._calls(site, begun, ended)
            if call.what == "step" and call.ended - call.seconds >= begun
        ]

    def _median_step(self, begun: float, ended: float) -> float:
        steps = [seconds for site in self.sites for seconds in self._steps(site, begun, ended)]
        return statistics.median(steps or [ended - begun])
