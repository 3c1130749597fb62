"""What the coordinator's page costs, with twenty viewers, beside the same coordinator without any.

    cmake --build --preset release --target mechanism_site collab_coordinator
    python tests/bench/bench_page.py [--sites 100] [--viewers 20] [--pairs 6] [--out out/bench/page.json]

A hundred sites (mechanism_site) hold rounds of 40,000 float32 through two of them, on lines with a cap that keeps the
machine idle in between. Each viewer asks for status.json every two seconds, as the page's script does. Reported is the
processor time of the coordinator's process as a share of a core: the median difference between ten seconds with
viewers and ten without, in interleaved pairs. At most 0.01.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from pairs import bare_environment, interval, machine

AT_MOST, SECONDS, EVERY, LIMIT = 0.01, 10.0, 2.0, 300.0


def processor_seconds(pid: int) -> float:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


class Swarm:
    def __init__(self, build: Path, sites: int, folder: Path) -> None:
        kept = bare_environment()
        own = ["--listen", "127.0.0.1:0", "--sites", str(sites), "--http", "127.0.0.1:0"]
        self.coordinator = subprocess.Popen(
            [build / "plugin/tools/collab-coordinator", *own],
            env=kept | {"COLLAB_LOG_LEVEL": "warning"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.sites: list[subprocess.Popen[bytes]] = []
        address = self._told(r"[ =](127\.0\.0\.1:\d+)")
        self.url = self._told(r"page at (http://[^ ,;]+)") + "status.json"
        common = {
            "BENCH_SITES": str(sites), "BENCH_ELEMENTS": "40000", "BENCH_WARM": "0", "BENCH_ROUNDS": "1000000",
            "BENCH_COORDINATOR": address, "BENCH_ADDRESS": "127.0.0.1", "COLLAB_MAX_MBIT_UP": "0.2",
            "COLLAB_LOG_LEVEL": "error",
        }  # fmt: skip
        for index in range(1, sites + 1):  # the one of index 0 would serve a coordinator
            site = {"BENCH_INDEX": str(index), "BENCH_RESULT": os.devnull, "XDG_STATE_HOME": str(folder / str(index))}
            behind = {"COLLAB_ADVERTISE": "none"} if index > 2 else {}
            self.sites.append(
                subprocess.Popen([build / "tests/bench/mechanism_site"], env=kept | common | site | behind)
            )

    def _told(self, pattern: str) -> str:
        assert self.coordinator.stdout is not None
        while line := self.coordinator.stdout.readline():
            if found := re.search(pattern, line):
                return found[1]
        sys.exit("bench_page.py: the coordinator ended")

    def look(self) -> dict[str, object]:
        with urllib.request.urlopen(self.url, timeout=LIMIT) as answer:
            text = answer.read()
        return {"bytes": len(text), **json.loads(text)["swarm"]}

    def wait_for_rounds(self, rounds: int) -> dict[str, object]:
        until = time.monotonic() + LIMIT
        while (seen := self.look())["round"] < rounds or len(seen["members"]) < len(self.sites):
            if time.monotonic() > until or any(site.poll() is not None for site in self.sites):
                sys.exit(f"bench_page.py: {len(seen['members'])} sites are here, round {seen['round']}")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.coordinator.wait(EVERY)
        return seen

    def share(self, viewers: int) -> float:
        """Of a core, with so many viewers."""
        end = threading.Event()

        def view(number: int) -> None:
            end.wait(EVERY * number / viewers)
            while not end.is_set():
                self.look()
                end.wait(EVERY)

        threads = [threading.Thread(target=view, args=(number,)) for number in range(viewers)]
        for thread in threads:
            thread.start()
        if viewers:
            end.wait(EVERY)  # until all have come
        used, begin = processor_seconds(self.coordinator.pid), time.monotonic()
        end.wait(SECONDS)
        share = (processor_seconds(self.coordinator.pid) - used) / (time.monotonic() - begin)
        end.set()
        for thread in threads:
            thread.join()
        return share

    def close(self) -> None:
        for process in (*self.sites, self.coordinator):
            process.kill()
            process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="What the coordinator's page costs.")
    parser.add_argument("--build", type=Path, default=Path("build/release"))
    parser.add_argument("--sites", type=int, default=100)
    parser.add_argument("--viewers", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--out", type=Path, default=Path("out/bench/page.json"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        swarm = Swarm(arguments.build.resolve(), arguments.sites, Path(folder))
        try:
            seen = swarm.wait_for_rounds(1)
            shares: dict[int, list[float]] = {arguments.viewers: [], 0: []}
            for number in range(arguments.pairs):
                for viewers in shares if number % 2 == 0 else reversed(shares):
                    shares[viewers].append(swarm.share(viewers))
        finally:
            swarm.close()
    low, median, high = interval([a - b for a, b in zip(*shares.values(), strict=True)])
    print(f"{len(seen['members'])} sites, status.json of {seen['bytes']} bytes; {machine()}")
    print(f"{arguments.viewers} viewers cost {median:.4f} of a core [{low:.4f}, {high:.4f}]", end=", ")
    print(f"beside {interval(shares[0])[1]:.4f} without; at most {AT_MOST}: {'met' if median <= AT_MOST else 'MISSED'}")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    row = {"machine": machine(), "low": low, "share": median, "high": high, "bytes": seen["bytes"], "shares": shares}
    arguments.out.write_text(json.dumps(row, indent=1) + "\n")
    sys.exit(not median <= AT_MOST)


if __name__ == "__main__":
    main()
