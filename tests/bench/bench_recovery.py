#!/usr/bin/env python
"""How soon sites average again after a loss: real processes on loopback, each its own torchrun.

    python tests/bench/bench_recovery.py [--times 5] [--out recovery.json]

killed   of three sites, each with a coordinator beside it, the leader's is killed, both processes: from then until the
         first round of the two others. At most 3 s, as the peers see the sockets close.
silent   the same with both stopped (SIGSTOP): nothing closes. At most the grace and two heartbeats.
blank    of two sites one is killed, and begins again with an empty disk: from its start until the first round of both,
         less what the same takes with its disk kept (the medians). No grace is in it.

"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))

from commands import Coordinator
from torchruns import Node, descendants

SCRIPT = Path(__file__).resolve().parent.parent / "python" / "scripts" / "torchrun.py"
HEARTBEAT, GRACE = 1.0, 10.0
KNOBS = {"COLLAB_TRANSPORT": "tcp", "COLLAB_HEARTBEAT": f"{HEARTBEAT}s", "COLLAB_LINK_GRACE": f"{GRACE}s"}
LIMIT = 120.0


class Swarm:
    """Sites that train until they are killed, their state below a folder of their own."""

    def __init__(self, sites: list[str], coordinators: list[Coordinator]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="collab-recovery-"))
        self.sites = sites
        self.coordinators = coordinators
        self.nodes: dict[str, Node] = {}
        for site in sites:
            self.start(site)

    def start(self, site: str) -> None:
        addresses = ",".join(each.address for each in self.coordinators)
        command = [
            sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1",
            str(SCRIPT), str(self.folder),
        ]  # fmt: skip
        environment = {
            **KNOBS, "COLLAB_SITE": site, "COLLAB_COORDINATOR": addresses, "COLLAB_MIN_SITES": str(len(self.sites)),
            "COLLAB_EVENTS_FILE": str(self.folder / f"{site}.jsonl"),
            "XDG_STATE_HOME": str(self.folder / f"state-{site}"),
        }  # fmt: skip
        self.nodes[site] = Node(site, command, environment)

    def rounds(self, site: str, sites: list[str]) -> list[float]:
        """When rounds of exactly these sites were over at this one."""
        path = self.folder / f"{site}.jsonl"
        found = []
        for line in path.read_text().splitlines() if path.exists() else []:
            event = json.loads(line)
            alike = event["event"] == "round" and event["site"] == site
            if alike and set(event["contributors"]) == set(sites):
                found.append(float(event["t"]))
        return found

    def wait_for_rounds(self, sites: list[str], since: float, more: int = 1) -> float:
        """Until so many rounds of these are over at all of them; when the first was at the last of them."""
        until = time.monotonic() + LIMIT
        while time.monotonic() < until:
            told = [[t for t in self.rounds(site, sites) if t > since] for site in sites]
            if all(len(times) >= more for times in told):
                return max(times[0] for times in told)
            time.sleep(0.02)
        raise SystemExit(f"no round of {', '.join(sites)} within {LIMIT:g} s:\n" + self.nodes[sites[0]].output[-3000:])

    def close(self) -> None:
        for node in self.nodes.values():
            for pid in descendants(node.process.pid):
                os.kill(pid, signal.SIGCONT)
            node.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def signal_all(node: Node, coordinator: Coordinator, number: signal.Signals) -> None:
    for pid in [*descendants(node.process.pid), coordinator.process.pid]:
        os.kill(pid, number)


def leader_lost(number: signal.Signals) -> float:
    sites = ["paris", "rome", "oslo"]
    coordinators = [Coordinator("--sites", "3", **KNOBS) for _ in sites]
    swarm = Swarm(sites, coordinators)
    try:
        swarm.wait_for_rounds(sites, 0, 5)
        lost = time.time()
        signal_all(swarm.nodes["paris"], coordinators[0], number)  # the first candidate leads
        return swarm.wait_for_rounds(["rome", "oslo"], lost) - lost
    finally:
        for coordinator in coordinators:
            os.kill(coordinator.process.pid, signal.SIGCONT)
            coordinator.__exit__()
        swarm.close()


def back_again(keeps_disk: bool) -> float:
    sites = ["paris", "rome"]
    with Coordinator("--sites", "2", **KNOBS) as coordinator:
        swarm = Swarm(sites, [coordinator])
        try:
            swarm.wait_for_rounds(sites, 0, 5)
            swarm.nodes["rome"].kill()
            if not keeps_disk:
                shutil.rmtree(swarm.folder / "state-rome", ignore_errors=True)
            started = time.time()
            swarm.start("rome")
            return swarm.wait_for_rounds(sites, started) - started
        finally:
            swarm.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=5, help="of each (default 5)")
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    arguments = parser.parse_args()
    figures: dict[str, list[float]] = {"killed": [], "silent": [], "blank": [], "kept": []}
    for _ in range(arguments.times):
        figures["killed"].append(leader_lost(signal.SIGKILL))
        figures["silent"].append(leader_lost(signal.SIGSTOP))
        figures["blank"].append(back_again(keeps_disk=False))
        figures["kept"].append(back_again(keeps_disk=True))
        print({name: round(times[-1], 2) for name, times in figures.items()}, flush=True)
    medians = {name: statistics.median(times) for name, times in figures.items()}
    rows = [
        ("killed", medians["killed"], 3.0),
        ("silent", medians["silent"], GRACE + 2 * HEARTBEAT),
        ("blank", medians["blank"] - medians["kept"], GRACE / 2),
    ]
    for name, took, most in rows:
        print(f"{name:8} {took:6.2f} s   at most {most:g} s   {'ok' if took <= most else 'MISSED'}")
    if arguments.out:
        arguments.out.write_text(json.dumps({"times": figures, "medians": medians}, indent=2) + "\n")
    sys.exit(0 if all(took <= most for _, took, most in rows) else 1)


if __name__ == "__main__":
    main()
