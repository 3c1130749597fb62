"""What benches of training over emulated lines share: a worker of theirs at each site of `collab lab`, a rank each."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence


def run(
    script: str, lines: Sequence[str], rtt: float, loss: float, environment: Mapping[str, object], limit: float
) -> None:
    """Runs `script --worker` at sites s0, s1, … with these lines (Mbit/s, or DOWN/UP); rtt in ms, loss in percent. In
    values `{site}`, `{index}` and `{address}` are each site's own. Raises where one fails, or after `limit` seconds."""
    world = {
        "COLLAB_TRANSPORT": "tcp",
        "COLLAB_LOG_LEVEL": "warning",
        "MASTER_ADDR": "{address:s0}",
        "MASTER_PORT": 29400,
        "RANK": "{index}",
        "WORLD_SIZE": len(lines),
        "LOCAL_RANK": 0,
        "LOCAL_WORLD_SIZE": 1,
        "OMP_NUM_THREADS": 1,
    }
    command = [sys.executable, "-m", "torch_collab.cli", "lab", "--quiet", "--sites"]
    command += [f"s{index}:{line}" for index, line in enumerate(lines)]
    command += ["--rtt", f"{rtt:g}", "--loss", f"{loss:g}"]
    for name, value in {**world, **environment}.items():
        command += ["--env", f"{name}={value}"]
    subprocess.run([*command, "--", sys.executable, script, "--worker"], check=True, timeout=limit)
