"""The quickstart from end to end: over the lab's line, and without it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 480  # a minute or two where nothing else runs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

two_cores = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="the quickstart gives each site a core of its own"
)


def start_quickstart(out: Path, *more: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(ROOT / "examples" / "quickstart.sh"), "--quick", "--no-setup", "--out", str(out), *more],
        env=os.environ | {"PYTHON": sys.executable} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.wan
@pytest.mark.usefixtures("allowed")
def test_quickstart_compares_over_an_emulated_line(tmp_path: Path) -> None:
    (tmp_path / "ddp-0").mkdir()
    (tmp_path / "ddp-0" / "done").touch()  # of another run, without its results
    out, err = start_quickstart(tmp_path).communicate(timeout=LIMIT)
    rows = dict(re.findall(r"^(a site alone|DDP over Gloo|collab) +\d+\.\d+ +\d+ +(\d+\.\d)$", out, re.M))
    assert list(rows) == ["a site alone", "DDP over Gloo", "collab"], out + err
    assert rows["a site alone"] == "0.0" and float(rows["DDP over Gloo"]) > 0, "MB over the line"
    made = json.loads((tmp_path / "table.json").read_text())
    assert "20 Mbit/s, 60 ms" in made["about"] and made["about"].endswith("1 seed")
    assert made["runs"]["alone"][0]["steps"] > 0 and made["runs"]["collab"][0]["megabytes"] > 0
    ddp, parameters = made["runs"]["ddp"][0], 3 * 12 * 128 * 128 + (256 + 64) * 128
    assert ddp["megabytes"] > ddp["steps"] * 2 * 4 * parameters / 1e6, "headers are counted"
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")


@two_cores
def test_quickstart_runs_without_the_emulated_line_if_it_is_missing(tmp_path: Path) -> None:
    process = start_quickstart(tmp_path, TORCH_COLLAB_LAB_EMULATOR=str(tmp_path / "none"))
    out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, out + err
    assert "without the emulated line" in err and "none is not an executable file" in err
    rows = {line[0]: line for line in out.splitlines() if re.match(r"[abc]  \S", line) and "in all" not in line}
    number = r"(\d+\.\d+)"
    two = re.search(rf"averaging\s+{number} / {number}\s+{number}\s+{number}\s+{number}\s+{number}\s+(\d+)", rows["b"])
    assert two, out
    assert two[1] == two[2]  # after the last round the sites hold one model
    assert float(two[6]) > 0 and int(two[7]) == 2  # megabytes, rounds of 10 steps in 20
    assert re.search(rf"alone\s+{number}", rows["a"]) and re.search(rf"talking\s+{number} / {number}", rows["c"])
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")


def descendants(pid: int) -> list[int]:
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return children + [grandchild for child in children for grandchild in descendants(child)]


def running(pids: list[int], script: str) -> list[int]:
    found = []
    for pid in pids:
        with contextlib.suppress(OSError):
            if script.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


@two_cores
@pytest.mark.parametrize(
    ("arguments", "first", "script"),
    [
        pytest.param([], "alone-0/run.0.jsonl", "compare.py", marks=pytest.mark.wan),
        (["--no-lab"], "a.rank0.jsonl", "gpt2_ddp.py"),
    ],
)
def test_quickstart_leaves_nothing_behind_on_ctrl_c(
    arguments: list[str], first: str, script: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if not arguments:
        request.getfixturevalue("allowed")
    process = start_quickstart(tmp_path, *arguments)
    try:
        deadline = time.monotonic() + LIMIT
        while not (tmp_path / first).exists() and time.monotonic() < deadline:
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        workers = descendants(process.pid)
        assert running(workers, script)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LIMIT)
        assert process.returncode == 130 and "Traceback" not in err, err
        while running(workers, script) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not running(workers, script)
    finally:
        process.kill()


def test_the_plot_names_what_is_missing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "plot.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode != 0
    assert "start.rank0.jsonl is missing; run examples/quickstart.sh" in done.stderr
