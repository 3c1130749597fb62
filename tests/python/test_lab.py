"""`collab lab`: its network is as exact as it says, what it isolates is isolated, and nothing stays behind."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import PATIENCE
from labs import BY_THE_CLOCK
from torch_collab.cli import lab

LAB = [sys.executable, "-m", "torch_collab.cli", "lab"]
PROBE = [sys.executable, str(Path(__file__).parent / "scripts" / "lab_probe.py")]


def run(*arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*LAB, *arguments], capture_output=True, text=True, timeout=timeout)


def probe(arguments: list[str], *what: str) -> dict[str, dict[str, Any]]:
    """What the probes of the sites measured, by site."""
    done = run(*arguments, "--", *PROBE, *what)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split(" | ", 1) for line in done.stdout.splitlines()]
    return {site.strip(): json.loads(text) for site, text in lines}


needs_lab = [pytest.mark.wan, pytest.mark.usefixtures("allowed")]


def wan(function: Any) -> Any:
    for mark in needs_lab:
        function = mark(function)
    return function


def alone(function: Any) -> Any:
    """Lines keep so many packets, no more, for an emulator that is late."""
    return pytest.mark.alone(wan(function))


def measured(function: Any) -> Any:
    """What it says of delays and rates is what the machine let the emulator keep."""
    return pytest.mark.second_try(BY_THE_CLOCK)(wan(function))


def test_help_stands_alone() -> None:
    done = run("--help")
    assert done.returncode == 0
    for word in ("--sites", "--script", "cut paris", "LAB_ADDRESS", "{site}", "Exit status"):
        assert word in done.stdout, word
    assert max(len(line) for line in done.stdout.splitlines()) <= 130


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--sites", "paris:quick", "--", "true"], "expected a rate down in Mbit/s"),
        (["--sites", "paris", "--script", "none.txt", "--", "true"], "none.txt cannot be read: No such file"),
        (["--sites", "paris", "--script", "/tmp", "--", "true"], "/tmp cannot be read: Is a directory"),
        (["--sites", "paris", "tokyo", "--", "x", "{address:rome}"], "no host 'rome'; there are paris tokyo"),
        (["--sites", "paris"], "expected a command after --"),
        (["--site", "paris", "--", "true"], "did you mean --sites?"),
    ],
)
def test_wrong_usage_of_the_lab_is_explained(arguments: list[str], words: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2 and words in done.stderr, done.stderr
    assert done.stderr.startswith("collab lab: ") and done.stdout == ""


@pytest.mark.parametrize("option", ["--report", "--pcap"])
def test_a_file_that_cannot_be_written_is_refused_before_anything_runs(option: str, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    done = run("--sites", "paris", option, str(tmp_path / "none" / "x"), "--", "touch", str(ran))
    assert done.returncode == 1 and "none/x cannot be written: No such file" in done.stderr, done.stderr
    assert not ran.exists()


def test_an_error_in_a_script_names_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "faults.txt").write_text("# first\n1 cut paris\n2 rate pari 5/5\n")
    done = run("--sites", "paris", "tokyo", "--script", str(tmp_path / "faults.txt"), "--", "true")
    assert done.returncode == 2
    assert "faults.txt:3: there is no host 'pari'; there are paris tokyo; did you mean 'paris'?" in done.stderr


def test_a_missing_emulator_is_explained(tmp_path: Path) -> None:
    done = subprocess.run(
        [*LAB, "--check"],
        env={**os.environ, "TORCH_COLLAB_LAB_EMULATOR": str(tmp_path / "none")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and "is not an executable file" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user without rights")
def test_missing_rights_are_explained() -> None:
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    try:
        copy = shutil.copy(lab.emulator(), folder)
        done = subprocess.run([copy, "--check"], user=65534, group=65534, capture_output=True, text=True)
    finally:
        shutil.rmtree(folder)
    if done.returncode != 0:  # some systems let everyone
        assert done.stderr.startswith("collab lab: "), done.stderr
        assert "/dev/net/tun" in done.stderr or "namespace" in done.stderr


@wan
def test_each_site_is_a_machine_of_its_own() -> None:
    script = (
        'echo "$(hostname) {index}/{count} $LAB_ADDRESS $COLLAB_SITE $EXTRA"; ls /dev/shm; ls /sys/class/net | xargs; '
        "getent hosts tokyo | xargs; [ $$ -lt 10 ] && echo few processes; echo problem >&2"
    )
    done = run("--sites", "paris", "tokyo", "--env", "EXTRA=from {site}", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("paris | ")]
    assert lines[0] == "paris | paris 0/2 10.99.0.1 paris from paris"
    assert lines[1:] == ["paris | lab0 lo", "paris | 10.99.0.2 tokyo", "paris | few processes"]
    assert "tokyo | problem" in done.stderr.splitlines()
    assert "problem" not in done.stdout


@wan
def test_the_exit_status_is_that_of_the_first_to_fail() -> None:
    script = "if [ {index} = 1 ]; then exit 7; fi; sleep 0.5; exit 3"
    assert run("--sites", "a", "b", "c", "--", "sh", "-c", script).returncode == 7
    done = run("--sites", "a", "--", "no-such-command")
    assert done.returncode == 127 and "a | lab: cannot run 'no-such-command'" in done.stderr
    assert run("--sites", "a", "--", "sh", "-c", "kill -9 $$").returncode == 137
    assert run("--sites", "a", "--script", "/dev/null", "--", "true").returncode == 0


@wan
@pytest.mark.parametrize("quiet", [[], ["--quiet"]])
def test_each_site_that_fails_is_named_after_its_last_words(quiet: list[str]) -> None:
    script = "case {site} in b) echo why >&2; exit 3;; c) kill -9 $$;; d) exit 137;; esac"
    done = run(*quiet, "--sites", "a", "b", "c", "d", "--", "sh", "-c", script)
    lines = done.stderr.splitlines()
    assert lines.index("b | why") < lines.index("lab: b ended with status 3")
    assert "lab: c was killed by signal 9 (SIGKILL)" in lines
    assert "lab: d ended with status 137" in lines
    assert not [line for line in lines if line.startswith("lab: a ended")]


@wan
def test_it_ends_when_its_reader_has_gone() -> None:
    process = subprocess.Popen([*LAB, "--quiet", "--sites", "a", "b", "--", "yes"], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() in (b"a | y\n", b"b | y\n")
    process.stdout.close()
    assert process.wait(timeout=PATIENCE) == 128 + signal.SIGPIPE


@measured
def test_lines_have_the_rate_they_were_given_in_each_direction() -> None:
    found = probe(["--sites", "paris:50/20", "tokyo:1000", "--rtt", "20"], "rate", "2.5", "26", "65")
    assert found["tokyo"]["mbit"] == pytest.approx(20, rel=0.03)
    assert found["paris"]["mbit"] == pytest.approx(50, rel=0.03)


@measured
def test_one_stream_fills_a_gigabit_at_20_ms() -> None:
    found = probe(["--sites", "paris:1000", "tokyo:1000", "--rtt", "20"], "stream", "3")
    assert 970 < found["paris"]["mbit"] < 1030


@measured
@pytest.mark.parametrize(("rate", "rtt", "count"), [("100", 100, 20), ("1000", 20, 50), ("20/5", 180, 10)])
def test_delay_is_within_2_ms(rate: str, rtt: int, count: int) -> None:
    found = probe(["--sites", f"paris:{rate}", f"tokyo:{rate}", "--rtt", str(rtt)], "ping", str(count))
    times = found["tokyo"]["ms"]
    assert len(times) == count
    assert rtt <= min(times), "no packet is early"
    assert statistics.median(times) < rtt + 2


@alone
def test_loss_is_within_binomial_bounds() -> None:
    count, loss = 20_000, 0.02
    found = probe(["--sites", "paris", "tokyo", "--loss", str(loss * 100)], "count", str(count))
    lost = count - found["paris"]["came"]
    assert abs(lost - count * loss) < 4 * math.sqrt(count * loss * (1 - loss)), f"{lost} of {count} lost"


@wan
def test_a_host_behind_nat_reaches_out_and_is_not_reached() -> None:
    found = probe(["--sites", "paris:100/20,nat", "tokyo:100", "--rtt", "10"], "reach")
    assert found["paris"] == {"tcp": True, "datagram_came": False, "was_reached": False}
    assert found["tokyo"] == {"tcp": False, "datagram_came": True, "was_reached": True}


@measured
def test_a_script_cuts_and_heals(tmp_path: Path) -> None:
    (tmp_path / "faults.txt").write_text("1.5 cut paris\n2.5 heal paris\n")
    found = probe(["--sites", "paris", "tokyo", "--rtt", "10", "--script", str(tmp_path / "faults.txt")], "steady", "4")
    came = found["paris"]["came"]
    gaps = sorted(b - a for a, b in itertools.pairwise(came))
    assert gaps[-1] == pytest.approx(1.0, abs=0.1)
    assert gaps[-2] < 0.3


@measured
def test_a_script_changes_a_rate(tmp_path: Path) -> None:
    (tmp_path / "faults.txt").write_text("2 rate tokyo 40/5\n")
    sites = ["--sites", "paris:40", "tokyo:40", "--queue", "20", "--script", str(tmp_path / "faults.txt")]
    bins = probe(sites, "rate", "4", "1", "50")["paris"]["bins"]
    # Medians of tenths of a second: before the change, and well after it.
    assert statistics.median(bins[2:10]) == pytest.approx(40, rel=0.03)
    assert statistics.median(bins[-11:-1]) == pytest.approx(
        5, rel=0.08
    )  # a tenth has 42 packets, one more or less is 2 %


@alone
def test_traffic_is_reported_and_captured(tmp_path: Path) -> None:
    report, capture = tmp_path / "report.json", tmp_path / "lab.pcap"
    done = run(
        "--sites", "paris", "tokyo", "--report", str(report), "--pcap", str(capture), "--", *PROBE, "count", "1000"
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "lab: traffic in " in done.stderr
    read = json.loads(report.read_text())
    there = next(path for path in read["paths"] if path["from"] == "tokyo")
    assert 1000 <= there["delivered_packets"] == there["sent_packets"] <= 1100
    assert there["delivered_bytes"] >= 1000 * 32
    assert capture.stat().st_size > 24 + 1000 * (16 + 32)
    assert capture.read_bytes()[:4] == (0xA1B23C4D).to_bytes(4, "little")


class Sleepers:
    """A lab whose sites hold processes, one of them in a session of its own, that only a signal can end."""

    def __init__(self) -> None:
        self.mark = f"3{os.getpid()}.{time.monotonic_ns()}"
        script = f"setsid sleep {self.mark} & echo ready; exec sleep {self.mark}"
        self.process = subprocess.Popen(
            [*LAB, "--sites", "a", "b", "--", "sh", "-c", script], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        assert {self.process.stdout.readline() for _ in "ab"} == {"a | ready\n", "b | ready\n"}
        assert self.alive()

    def alive(self) -> list[str]:
        """The sites' processes and the lab's own: the mark is on the command line of each."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and self.mark.encode() in (entry / "cmdline").read_bytes():
                    found.append(entry.name)
            except (FileNotFoundError, ProcessLookupError):
                continue
        return found


@pytest.fixture
def sleepers() -> Iterator[Sleepers]:
    made = Sleepers()
    yield made
    made.process.kill()
    made.process.wait()


@wan
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_stays_behind(sleepers: Sleepers, number: signal.Signals) -> None:
    sleepers.process.send_signal(number)
    code = sleepers.process.wait(timeout=PATIENCE)
    assert code == (-9 if number == signal.SIGKILL else 128 + number)
    for process in sleepers.alive():
        with contextlib.suppress(ProcessLookupError):
            ended = os.pidfd_open(int(process))
            select.select([ended], [], [], 10)
            os.close(ended)
    assert not sleepers.alive()
    assert not Path("/sys/class/net/lab0").exists()
    assert run("--sites", "a", "b", "--", "true").returncode == 0, "the next lab runs"
