"""What others on the internet see of a run: in `collab lab`, over the tcp transport."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest
from commands import new_token
from ranks import SCRIPTS

pytestmark = [pytest.mark.wan, pytest.mark.usefixtures("allowed")]

COLLAB = [sys.executable, "-m", "torch_collab.cli"]
STEP = struct.pack("<f", 0.123456789)


def run(folder: Path, sites: list[str], options: list[str], *, encrypted: bool) -> str:
    given = {
        "COLLAB_TRANSPORT": "tcp", "COLLAB_CODEC": "fp32", "COLLAB_SYNC_EVERY": "1000000",
        "COLLAB_LOG_LEVEL": "warning", "COLLAB_EVENTS_FILE": f"{folder}/{{site}}.jsonl",
        "MASTER_ADDR": f"{{address:{sites[0]}}}", "MASTER_PORT": "29400",
        "RANK": "{index}", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    if encrypted:
        given["COLLAB_TOKEN"] = new_token()
    environment = [part for name, value in given.items() for part in ("--env", f"{name}={value}")]
    command = [*COLLAB, "lab", "--quiet", "--rtt", "2", "--sites", *sites, *options, *environment, "--"]
    command += [sys.executable, str(SCRIPTS / "constant.py"), "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("encrypted", [True, False])
def test_a_capture_shows_the_parameters_only_where_nothing_is_encrypted(tmp_path: Path, encrypted: bool) -> None:
    capture = tmp_path / "capture.pcap"
    run(tmp_path, ["paris", "oslo"], ["--pcap", str(capture)], encrypted=encrypted)
    seen = capture.read_bytes()
    assert len(seen) > 1_000_000, "the rounds are in it"
    negative = struct.pack("<f", -0.123456789)
    assert (STEP * 4 in seen or negative * 4 in seen) != encrypted
