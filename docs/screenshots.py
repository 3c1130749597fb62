"""The documents' screenshots of the coordinator's page, taken of a run that goes on.

    python docs/screenshots.py      writes docs/images/page-desktop.png and page-phone.png

Three sites and a helper train on this machine; one site is killed, and comes back. Needs chromium (Debian's package,
which ci/setup.sh does not install) and the Pillow that comes with matplotlib. Pages that show something else are not
kept. tests/python/test_page.py looks at the same run through the same browser.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Self

ROOT = Path(__file__).resolve().parents[1]
DESKTOP, PHONE = (ROOT / "docs" / "images" / f"page-{name}.png" for name in ("desktop", "phone"))
OBJECTIVE = "Learn the next letter of Python's own source text"
BATCHES = {"paris": 64, "tokyo": 48, "lima": 32}  # samples a step
LIMIT = 240.0  # seconds for what must come


def browser() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser")


def _ask(url: str, password: str, *options: str) -> str:
    """What the browser writes of a page that it has had for some seconds; it asks no other machine for anything."""
    name = browser()
    assert name, "no chromium is here: apt-get install chromium"
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run(
            [
                name, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--lang=en-GB", "--enable-logging=stderr",
                f"--user-data-dir={profile}", "--virtual-time-budget=3000", *options,
                url.replace("://", f"://me:{password}@") if password else url,
            ],
            env={**os.environ, "TZ": "UTC"}, capture_output=True, text=True, timeout=LIMIT,
        )  # fmt: skip
    # What the page's script complained of, a policy that it breaks among others.
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert done.returncode == 0 and not complaints, "\n".join(complaints) or done.stderr
    return done.stdout


class Seen(HTMLParser):
    """What stands on the page: text by the id around it; tables and lists as rows of cells."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: dict[str, str] = {}
        self.rows: dict[str, list[list[str]]] = {}
        self._ids: list[str] = []
        self._skips = False
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._skips = tag in ("script", "style")
        if tag in ("meta", "link"):
            return
        self._ids.append(dict(attributes).get("id") or (self._ids[-1] if self._ids else ""))
        if tag in ("tr", "li"):
            self.rows.setdefault(self._ids[-1], []).append([])
        if tag in ("td", "th", "li"):
            self.rows.setdefault(self._ids[-1], [[]])[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._skips = False
        self._ids.pop()

    def handle_data(self, data: str) -> None:
        if self._skips or not self._ids:
            return
        self.texts[self._ids[-1]] = self.texts.get(self._ids[-1], "") + data
        if (rows := self.rows.get(self._ids[-1])) and rows[-1]:
            rows[-1][-1] += data

    def row(self, table: str, first: str) -> list[str]:
        """The cells of the row that begins so; none, if there is none."""
        return next((row for row in self.rows.get(table, []) if row and row[0] == first), [])


def look(url: str, password: str = "") -> Seen:
    return Seen(_ask(url, password, "--dump-dom"))


def picture(url: str, password: str, width: int, height: int, to: Path) -> None:
    """As high as the page is, and no higher than that."""
    from PIL import Image, ImageChops

    with tempfile.TemporaryDirectory() as folder:
        shot = Path(folder) / "page.png"
        _ask(url, password, f"--window-size={width},{height}", f"--screenshot={shot}")
        image = Image.open(shot).convert("RGB")
    empty = Image.new("RGB", image.size, "white")
    _, _, _, bottom = ImageChops.difference(image, empty).getbbox() or (0, 0, 0, height)
    shown = image.crop((0, 0, width, min(height, bottom + 16)))
    shown.quantize(32, dither=Image.Dither.NONE).save(to, optimize=True)


class Run:
    """A coordinator with its page, and sites that train until they are killed."""

    def __init__(self, folder: Path, objective: str = OBJECTIVE) -> None:
        self.folder = folder
        self._kept = {name: value for name, value in os.environ.items() if not name.startswith("COLLAB_")}
        self._kept |= {"COLLAB_RUN": "letters", "COLLAB_TOKEN_FILE": str(folder / "swarm.key"), "OMP_NUM_THREADS": "1"}
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._objective = objective

    def __enter__(self) -> Self:
        key = str(self.folder / "swarm.key")
        self._tool("token", "--out", key)
        self.password = self._tool("token", "--page-password", key).strip()
        own = ("--listen", "127.0.0.1:0", "--sites", str(len(BATCHES)), "--http", "127.0.0.1:0")
        command = [*self._command("coordinator"), *own, "--objective", self._objective]
        try:
            said = self._start("coordinator", command, {})
            self.coordinator = self._told(said, r" at (127\.0\.0\.1:\d+)")
            self.url = self._told(said, r" page at (http://[^ ,;]+)")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    @staticmethod
    def _command(name: str) -> list[str]:
        return [sys.executable, "-m", "torch_collab.cli", name]

    def _tool(self, name: str, *arguments: str) -> str:
        command = [*self._command(name), *arguments]
        return subprocess.run(command, env=self._kept, check=True, capture_output=True, text=True).stdout

    def _start(self, name: str, command: list[str], environment: dict[str, str]) -> Path:
        said = self.folder / f"{name}.log"
        with said.open("a") as output:
            self._processes[name] = subprocess.Popen(
                command, env=self._kept | environment, stdout=output, stderr=subprocess.STDOUT, text=True
            )
        return said

    def _told(self, said: Path, pattern: str) -> str:
        until = time.monotonic() + LIMIT
        while not (found := re.search(pattern, said.read_text())):
            assert time.monotonic() < until, said.read_text()
            time.sleep(0.05)
        return found[1]

    def start(self, site: str) -> None:
        own = {
            "COLLAB_SITE": site, "COLLAB_SITE_INDEX": str(list(BATCHES).index(site)), "COLLAB_SYNC_EVERY": "40",
            "COLLAB_COORDINATOR": self.coordinator, "XDG_STATE_HOME": str(self.folder / f"state-{site}"),
            "RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0",
        }  # fmt: skip
        self._start(site, [sys.executable, __file__, "--train", site], own)

    def start_helper(self, name: str) -> None:
        command = [*self._command("helper"), "--coordinator", self.coordinator]
        self._start(name, command, {"COLLAB_SITE": name, "XDG_STATE_HOME": str(self.folder / f"state-{name}")})

    def kill(self, site: str) -> None:
        self._processes[site].send_signal(signal.SIGKILL)
        self._processes[site].wait()

    def wait_for(self, what: Callable[[Seen], object]) -> Seen:
        """Until the page shows it."""
        until = time.monotonic() + LIMIT
        while not what(seen := look(self.url, self.password)):
            assert time.monotonic() < until, seen.texts
            for name, process in self._processes.items():
                ended = process.poll()
                assert ended in (None, -signal.SIGKILL), (self.folder / f"{name}.log").read_text()
        return seen


def is_back(site: str) -> Callable[[Seen], object]:
    """It contributes again."""
    return lambda seen: "".join(seen.row("sites", site)[1:2]).startswith("active") and site in seen.rows["rounds"][0][0]


def fails_and_comes_back(run: Run, site: str) -> tuple[Seen, Seen, Seen]:
    """The page with everybody there, without that one, and when it is back."""
    for each in BATCHES:
        run.start(each)
    run.start_helper("iceland")
    all_here = run.wait_for(lambda seen: len(seen.rows.get("rounds", [])) > 3 and seen.row("sites", "iceland (helper)"))
    run.kill(site)
    gone = run.wait_for(lambda seen: not seen.row("sites", site))
    run.start(site)
    return all_here, gone, run.wait_for(is_back(site))


def train(site: str) -> None:
    import torch
    import torch.distributed as dist
    import torch_collab
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(BATCHES[site])
    text = torch.frombuffer(bytearray(Path(argparse.__file__).read_bytes()), dtype=torch.uint8).long()
    dist.init_process_group("collab")
    letters = nn.Sequential(nn.Embedding(256, 32), nn.Flatten(), nn.Linear(8 * 32, 128), nn.ReLU(), nn.Linear(128, 256))
    model = DistributedDataParallel(letters)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    while True:
        at = torch.randint(len(text) - 8, (BATCHES[site], 1))
        loss = nn.functional.cross_entropy(model(text[at + torch.arange(8)]), text[at.flatten() + 8])
        optimizer.zero_grad()
        loss.backward()
        torch_collab.log_metrics({"loss": loss})
        optimizer.step()
        time.sleep(0.03)  # so that a round is a second or two after the other


def main() -> None:
    form = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    form.add_argument("--train", metavar="SITE", help=argparse.SUPPRESS)
    if site := form.parse_args().train:
        return train(site)
    if not browser():
        sys.exit("screenshots.py: no chromium is here: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder, Run(Path(folder)) as run:
        fails_and_comes_back(run, "lima")
        run.wait_for(lambda seen: len(seen.rows["rounds"]) >= 16 and is_back("lima")(seen))
        picture(run.url, run.password, 1000, 2000, DESKTOP)
        picture(run.url, run.password, 390, 1640, PHONE)
    print(", ".join(f"{file.relative_to(ROOT)} {file.stat().st_size:,} bytes" for file in (DESKTOP, PHONE)))


if __name__ == "__main__":
    main()
