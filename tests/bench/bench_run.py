"""What `collab run` adds to torchrun, of a script that does nothing.

    python tests/bench/bench_run.py [--pairs 10] [--out out/bench/run.json]

`collab run` against the torchrun command that it prints, in the environment that it prints: one machine, one process,
from the start of the command to its end. Pairs are interleaved; reported are the medians of the differences, in seconds
on the clock, which has to be at most 0.5, and of the processor, which a busy machine changes less. Beside it stands
what the printed command takes beyond `torchrun --standalone`.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pairs import bare_environment, free_port, interval, machine

AT_MOST = 0.5  # seconds
LIMIT = 300


class Commands:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "nothing.py").write_text("")
        self._environment = bare_environment() | {"XDG_STATE_HOME": str(folder), "OMP_NUM_THREADS": "1"}
        self._collab = [sys.executable, "-m", "torch_collab.cli"]
        own = ["init", "--endpoint", f"127.0.0.1:{free_port()}", "--site", "paris", "--nnodes", "1"]
        self._end([*self._collab, *own], {})
        self._run = [*self._collab, "run", "--nproc-per-node", "1", "nothing.py"]
        *variables, command = self._printed()
        self._variables = dict(each.split("=", 1) for each in variables)
        self._torchrun = [sys.executable, "-m", "torch.distributed.run"]
        self._words = shlex.split(command)[1:]

    def _printed(self) -> list[str]:
        said = self._end([*self._run[:4], "--dry-run", *self._run[4:]], {}).stdout.splitlines()
        lines = [line.removeprefix("collab: ") for line in said]
        variables = [shlex.split(line, comments=True)[0] for line in lines if line.startswith("COLLAB_")]
        return [*variables, next(line for line in lines if line.startswith("torchrun"))]

    def _end(self, command: list[str], variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command, cwd=self.folder, env=self._environment | variables, capture_output=True, text=True, timeout=LIMIT
        )
        if done.returncode != 0:
            sys.exit(f"bench_run.py: {shlex.join(command)}\n{done.stdout}{done.stderr}")
        return done

    def timed(self, name: str) -> tuple[float, float]:
        """Seconds on the clock, and of the processor."""
        command, variables = {
            "collab run": (self._run, {}),
            "torchrun": ([*self._torchrun, *self._words], self._variables),
            "standalone": ([*self._torchrun, "--standalone", "--nproc-per-node=1", "nothing.py"], {}),
        }[name]
        used, begin = os.times(), time.perf_counter()
        self._end(command, variables)
        took, now = time.perf_counter() - begin, os.times()
        return took, now.children_user + now.children_system - used.children_user - used.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description="What `collab run` adds to torchrun.")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("out/bench/run.json"))
    arguments = parser.parse_args()
    names = ["collab run", "torchrun", "standalone"]
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        commands = Commands(Path(folder))
        for name in names:
            commands.timed(name)  # so that files are in memory
        for number in range(arguments.pairs):
            for name in names if number % 2 == 0 else reversed(names):
                runs[name].append(commands.timed(name))
    rows = []
    for more, less in (("collab run", "torchrun"), ("torchrun", "standalone")):
        for which, unit in enumerate(("clock", "processor")):
            low, median, high = interval([a[which] - b[which] for a, b in zip(runs[more], runs[less], strict=True)])
            of_less = interval([b[which] for b in runs[less]])[1]
            rows.append({"what": f"{more} beyond {less}", "of": unit, "low": low, "seconds": median, "high": high})
            print(f"{more} beyond {less}, {unit}: {median:+.2f} s [{low:+.2f}, {high:+.2f}] beyond {of_less:.2f} s")
    met = rows[0]["seconds"] <= AT_MOST
    print(f"at most {AT_MOST} s on the clock: {'met' if met else 'MISSED'}; {machine()}")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps({"machine": machine(), "rows": rows, "runs": runs}, indent=1) + "\n")
    sys.exit(not met)


if __name__ == "__main__":
    main()
