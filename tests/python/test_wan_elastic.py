"""Sites that go on over a long and lossy path while machines vanish: torchruns in `collab lab`, a network each."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from commands import PATIENCE
from labs import BY_THE_CLOCK, Lab, killed_after
from ranks import SCRIPTS
from torchruns import descendants

pytestmark = [pytest.mark.slow, pytest.mark.wan, pytest.mark.usefixtures("allowed")]

GRACE = 6.0
CHUNK_BYTES = 256 * 1024
CONNECTIONS = 13  # of a link
SITES = ("paris", "rome", "oslo")
WAN = {"COLLAB_PRESET": "wan"}  # behind the training; test_elastic.py has the same without


class Swarm(Lab):
    """A torchrun in each site; `faults` are lines of the lab's script."""

    def __init__(
        self, folder: Path, lines: list[str], faults: list[str], behind_nat: tuple[str, ...] = (), **environment: str
    ) -> None:
        script = folder / "faults.txt"
        script.write_text("\n".join(faults))
        sites = (f"{site}:100" + ",nat" * (site in behind_nat) for site in SITES)
        command = [
            sys.executable, "-m", "torch.distributed.run", "--rdzv-backend=collab", "--rdzv-endpoint=paris:29400",
            "--rdzv-id=test", f"--nnodes={len(SITES)}", "--nproc-per-node=1", "--max-restarts=3",
            "--rdzv-conf=last_call_timeout=1,join_timeout=60", str(SCRIPTS / "torchrun.py"), str(folder),
        ]  # fmt: skip
        network = ["--sites", *sites, *lines, "--script", str(script)]
        super().__init__(folder, network, command, {"COLLAB_LINK_GRACE": f"{GRACE:.0f}s", **environment})

    def worker(self, site: str) -> int:
        """Of the site's torchrun, which is its child."""
        for pid in descendants(self.process.pid):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes()
                there = f"LAB_SITE={site}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                if there and b"torchrun.py" in words and b"torch.distributed.run" not in words:
                    return pid
        raise AssertionError(f"no worker at {site}")

    def stop_together(self) -> None:
        """After one round of all: who has just had one when it is told has no part in the last of the others."""
        newest = max(event["round"] for site in SITES for event in self.events(site, "round"))
        (self.folder / "when").write_text(str(newest + 3))
        (self.folder / "when").rename(self.folder / "stop")

    def end_together(self) -> None:
        self.stop_together()
        self.process.wait(PATIENCE)


@pytest.fixture
def swarms(tmp_path: Path) -> Iterator[Callable[..., Swarm]]:
    yield from killed_after(partial(Swarm, tmp_path))


@pytest.mark.timeout(480)
@pytest.mark.second_try(BY_THE_CLOCK)
def test_machines_fall_silent_over_a_lossy_path(swarms: Callable[..., Swarm]) -> None:
    """One for three times the grace, in mid-run; then the one that hosts endpoint and coordinator, for good."""
    cut, heal, gone = 45.0, 45 + 3 * GRACE, 90.0
    faults = [f"{cut} cut oslo", f"{heal} heal oslo", f"{gone} cut paris"]
    lab = swarms(["--rtt", "100", "--loss", "1"], faults, **WAN)
    lab.wait("two rounds of all", lambda: len(lab.rounds("oslo", SITES)) >= 2, cut)
    lab.wait("a round without oslo", lambda: lab.rounds("paris", ("paris", "rome"), cut), heal)
    assert not lab.rounds("oslo", ("oslo",)), "a lone site moved the anchor"
    lab.wait("a round with oslo again", lambda: lab.rounds("oslo", SITES, heal), gone)
    lab.wait("three rounds without paris", lambda: len(lab.rounds("rome", ("rome", "oslo"), gone)) >= 3, gone + 120)
    waits = [
        first["t"] - lab.begun - at
        for at, first in (
            (cut, lab.rounds("rome", ("paris", "rome"), cut)[0]),
            (gone, lab.rounds("rome", ("rome", "oslo"), gone)[0]),
        )
    ]
    print(f"the next round was there {waits[0]:.1f} s after a site and {waits[1]:.1f} s after the coordinator's fell "
          f"silent (grace {GRACE:.0f} s)")  # fmt: skip
    lab.stop_together()  # paris, which is cut off, comes to no such round
    both_end = r"\[(?:rome|oslo)\] ended"
    lab.wait("the end of both", lambda: len(re.findall(both_end, lab.output)) == 2, time.time() - lab.begun + PATIENCE)
    (lab.folder / "stop").unlink()
    lab.end()
    assert len(re.findall(r"started pid", lab.output)) == len(SITES), "nobody was restarted"
    told: dict[tuple[int, int], str] = {}
    for site in SITES:
        for event in lab.rounds(site, SITES) + lab.rounds(site, ("rome", "oslo")) + lab.rounds(site, ("paris", "rome")):
            assert told.setdefault(event["round"], event["digest"]) == event["digest"], event
    ends = dict(re.findall(r"\[(\w+)\] ended step \d+ digest (\w+)", lab.output))
    assert ends["rome"] == ends["oslo"], lab.output


@pytest.mark.timeout(700)
def test_workers_are_killed_and_come_back_over_a_lossy_path(swarms: Callable[..., Swarm]) -> None:
    """The second at the endpoint's site. Each comes back late, and takes what the others hold. In fragments."""
    lab = swarms(["--rtt", "100", "--loss", "1"], [], TEST_WIDTH="500", COLLAB_FRAGMENTS="4", **WAN)
    lab.wait("two rounds of all", lambda: len(lab.rounds("oslo", SITES)) >= 2, 240)
    for gone in ("oslo", "paris"):
        others = tuple(site for site in SITES if site != gone)
        killed = time.time() - lab.begun
        os.kill(lab.worker(gone), signal.SIGKILL)
        lab.wait(f"a round without {gone}", lambda o=others, t=killed: lab.rounds("rome", o, t), killed + 120)
        # One of all may have been committed without what was killed.
        first = lab.rounds("rome", others, killed)[0]["t"] - lab.begun
        lab.wait(f"a round with {gone} again", lambda t=first: lab.rounds("rome", SITES, t), first + 150)
        back = lab.rounds("rome", SITES, first)[0]["t"] - lab.begun
        print(f"{gone} killed: the next round of the others was there after {first - killed:.1f} s, the next with it "
              f"after {back - killed:.1f} s")  # fmt: skip
    lab.end_together()
    assert len(re.findall(r"started pid", lab.output)) == len(SITES) + 2, "each once more"
    told: dict[int, str] = {}
    for site in SITES:
        for event in lab.events(site, "round"):
            assert told.setdefault(event["round"], event["digest"]) == event["digest"], event
    assert {event["fragment"] for event in lab.events("rome", "round")} == {0, 1, 2, 3}
    assert len(set(re.findall(r"ended step \d+ digest (\w+)", lab.output))) == 1


@pytest.mark.timeout(480)
@pytest.mark.second_try(BY_THE_CLOCK)
def test_a_cut_and_a_slow_line_in_mid_round_are_no_losses(swarms: Callable[..., Swarm]) -> None:
    """All wait for each other before both changes, which come in the midst of a round; all finish it as it began."""
    cut, heal, slow, fast = 80.0, 110.0, 150.0, 165.0  # on a busy machine three sites take a minute to begin
    before = 3.0  # seconds: two steps take less, and with the round after them more
    halts = ",".join(str(time.time() + moment - before) for moment in (cut, slow))
    lab = swarms(
        ["--rtt", "100", "--loss", "0.1"],
        [f"{cut} cut rome", f"{heal} heal rome", f"{slow} rate rome 5/5", f"{fast} rate rome 100/100"],
        COLLAB_LINK_GRACE="60s",
        COLLAB_STRAGGLER_GRACE="90s",
        COLLAB_SYNC_EVERY="2",
        TEST_WIDTH="4000",  # rounds take far longer than the training between them
        TEST_HALTS=halts,
    )
    for begin, end in ((cut, heal), (slow, fast)):
        lab.wait("a round after it", lambda end=end: len(lab.rounds("oslo", SITES, end)) >= 2, end + 100)
        across = [e for e in lab.rounds("oslo", SITES, begin) if e["t"] - e["seconds"] - lab.begun < end]
        print(f"rounds under way between {begin:.0f} and {end:.0f} s took", [round(e["seconds"], 1) for e in across])
        around = [(e["t"] - e["seconds"] - lab.begun, e["t"] - lab.begun) for e in lab.rounds("oslo", SITES)]
        assert across, [times for times in around if begin - 20 < times[1] < end + 20]
    lab.end_together()
    for site in SITES:
        assert len(lab.rounds(site, SITES)) == len(lab.events(site, "round")), "somebody was left out"
        assert all(event["attempts"] == 1 for event in lab.events(site, "round"))
    words = r"connection again after (\d+) s(?:; some (\d+) bytes that were on their way over (\d+))?"
    told = re.findall(words, lab.output)
    again = [(int(lost or 0), int(streams or 0)) for away, lost, streams in told if int(away) > 15]
    print("KiB sent again over so many connections, each end of a link:", [(lost // 1024, n) for lost, n in again])
    assert len(again) >= 2, "rome's links to both outlived the cut"
    assert all(lost < 2 * CHUNK_BYTES * CONNECTIONS for lost, _ in again), "no more than was on its way"
    assert len(re.findall(r"started pid", lab.output)) == len(SITES), "nobody was restarted"
    assert len(set(re.findall(r"ended step \d+ digest (\w+)", lab.output))) == 1


@pytest.mark.timeout(480)
def test_two_sites_behind_nat_train_with_one_that_can_be_dialled(swarms: Callable[..., Swarm]) -> None:
    """Nobody has said that they are: it is found out, and the third owns what the two could not exchange."""
    lab = swarms(
        ["--rtt", "100", "--loss", "0.1"], [], behind_nat=("rome", "oslo"), COLLAB_SYNC_EVERY="4", TEST_WIDTH="500"
    )
    lab.wait("five rounds of all", lambda: len(lab.rounds("oslo", SITES)) >= 5, 300)
    lab.end_together()
    for site in ("rome", "oslo"):
        assert lab.events(site, "address"), "it was never told"
    last = [lab.rounds(site, SITES)[-1] for site in SITES]
    assert len({event["digest"] for event in last}) == 1
    # A parameter server's traffic: the two send their delta once and get the mean once.
    assert last[0]["bytes_sent"] == pytest.approx(2 * last[1]["bytes_sent"], rel=0.1)
    assert last[1]["bytes_sent"] == pytest.approx(last[2]["bytes_received"], rel=0.1)
    assert len(set(re.findall(r"ended step \d+ digest (\w+)", lab.output))) == 1
