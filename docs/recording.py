"""The recording of the documents: the lab cuts a site off, the others go on, it comes back, and all have one model.

    python docs/recording.py           runs what the top of examples/cut.py says, and writes docs/images/cut.*
    python docs/recording.py --draw    draws cut.svg and cut.png of the cut.cast that is there

Needs what `collab lab` needs, and Pillow and the font that come with matplotlib. cut.cast is an asciicast of version 2
with the times as they were: who plays it shortens pauses to `idle_time_limit`. cut.svg plays in a page without a
script, and stands still at its end for who wants no motion; cut.png is its last screen. A run that shows something
else, since the machine was busy, is not kept.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import html
import json
import os
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "cut.py"
CAST, SVG, PNG = (ROOT / "docs" / "images" / f"cut.{kind}" for kind in ("cast", "svg", "png"))

COLUMNS, ROWS = 120, 44
PAUSE = 0.8  # seconds, the longest that is shown
REST = 8.0  # seconds that the last screen stands

CHARACTER, LINE, MARGIN = 7.2, 16, 10  # pixels
GROUND, TEXT = "#14181d", "#c9d1d9"
COLOURS = {
    "$": "#ffffff",
    "lab:": "#f0c04c",
    "paris": "#7cb7ff",
    "tokyo": "#ff8f70",
    "rome": "#8bd49c",
}  # by first word


@dataclass(frozen=True)
class Cast:
    header: dict[str, object]
    output: list[tuple[float, str]]  # seconds, text

    def text(self) -> str:
        lines = [json.dumps(self.header), *(json.dumps([at, "o", said]) for at, said in self.output)]
        return "\n".join(lines) + "\n"

    @classmethod
    def of(cls, text: str) -> Cast:
        header, *events = map(json.loads, text.splitlines())
        return cls(header, [(at, said) for at, kind, said in events if kind == "o"])

    def rows(self) -> list[tuple[float, str]]:
        """Each row of the terminal, with the second at which a player shows it."""
        found, line, shown, before = [], "", 0.0, 0.0
        for at, said in self.output:
            shown += min(at - before, PAUSE)
            before = at
            *whole, line = (line + said.replace("\r\n", "\n")).split("\n")
            found += [(shown, each[i : i + COLUMNS]) for each in whole for i in range(0, max(1, len(each)), COLUMNS)]
        return found


def commands() -> list[str]:
    """Those at the top of the example."""
    block = EXAMPLE.read_text("utf-8").split("\n\n")[1]
    return re.split(r"(?<!\\)\n", block)


def record() -> Cast:
    """Runs them in one shell, at a terminal of this size."""
    script = "\n".join(f"echo {shlex.quote(f'$ {command}')}\n{command}" for command in commands())
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("COLLAB_")}
    kept |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "TERM": "dumb"}
    with tempfile.TemporaryDirectory() as state:  # the sites remember nothing of other runs
        kept["XDG_STATE_HOME"] = state
        begun = time.time()
        shell = subprocess.Popen(["bash", "-c", script], cwd=ROOT, env=kept, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        output = list(read(ours, begun))
        shell.wait()
    header = {
        "version": 2, "width": COLUMNS, "height": ROWS, "timestamp": int(begun), "idle_time_limit": PAUSE,
        "command": "python docs/recording.py", "title": "A site is cut off, and comes back",
    }  # fmt: skip
    return Cast(header, output)


def read(terminal: int, begun: float) -> Iterator[tuple[float, str]]:
    """What is written there, whole lines at a time; it is shown here as well."""
    waiting = b""
    with contextlib.suppress(OSError):  # Linux's word for the end of a terminal
        while got := os.read(terminal, 65536):
            whole, end, waiting = (waiting + got).rpartition(b"\n")
            if end:
                said = (whole + end).decode("utf-8", "replace")
                sys.stdout.write(said)
                yield round(time.time() - begun, 3), said


def problem(cast: Cast) -> str:
    """Why it does not show what it is there to show; nothing if it does."""
    text = "\n".join(row for _, row in cast.rows())
    if "\x1b" in text:
        return "it has escapes, which the pictures do not know"
    cut, heal = text.find("s: cut tokyo"), text.find("s: heal tokyo")
    if not 0 < cut < heal:
        return "it shows no cut that is healed"
    models: dict[int, dict[str, str]] = {}
    places: dict[int, int] = {}
    for found in re.finditer(r"^(\w+) +\| round +(\d+): .* model (\w+)$", text, re.MULTILINE):
        site, number, model = found[1], int(found[2]), found[3]
        models.setdefault(number, {})[site] = model
        places.setdefault(number, found.start())
    if any(len(set(of_sites.values())) != 1 for of_sites in models.values()):
        return "after a round two sites have two models"
    everyone = {"paris", "tokyo", "rome"}
    three, two = ([n for n in models if set(models[n]) == who] for who in (everyone, everyone - {"tokyo"}))
    if not any(places[n] < cut for n in three):
        return "all three agree in no round before the cut"
    if not any(cut < places[n] < heal for n in two):
        return "the others do not go on in the cut"
    if not (heal < places[max(models)] and max(models) in three):
        return "all three do not agree at the end"
    return ""


def colour(row: str) -> str:
    return COLOURS.get(row.partition(" ")[0], TEXT)


def svg(cast: Cast) -> str:
    """All rows, moved up as they come, behind a cover that moves down."""
    rows = cast.rows()
    width, height = COLUMNS * CHARACTER, ROWS * LINE
    lasts = rows[-1][0] + REST
    style = "text{font:12px monospace;white-space:pre}@media (prefers-reduced-motion:reduce){.up,.down{animation:none}}"
    for name, pixels in (
        ("down", [LINE * count for count in range(len(rows) + 1)]),
        ("up", [-LINE * max(0, count - ROWS) for count in range(len(rows) + 1)]),
    ):
        moves = {0.0: 0, **{round(100 * at / lasts, 2): moved for (at, _), moved in zip(rows, pixels[1:], strict=True)}}
        frames = "".join(f"{percent}%{{transform:translateY({moved}px)}}" for percent, moved in moves.items())
        style = (
            f"@keyframes {name}{{{frames}}}.{name}{{transform:translateY({pixels[-1]}px);"
            f"animation:{name} {lasts:.2f}s steps(1,end) infinite}}{style}"
        )
    texts = "\n".join(
        f'<text y="{(i + 0.75) * LINE:g}" fill="{colour(row)}">{html.escape(row, quote=False)}</text>'
        for i, (_, row) in enumerate(rows)
    )
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{width + 2 * MARGIN:g}" height="{height + 2 * MARGIN:g}">
<title>{cast.header["title"]}</title><desc>{cast.header["command"]}, with pauses shortened</desc>
<style>{style}</style>
<rect width="100%" height="100%" fill="{GROUND}"/>
<svg x="{MARGIN}" y="{MARGIN}" width="{width:g}" height="{height}"><g class="up">
{texts}
<rect class="down" width="100%" height="{height}" fill="{GROUND}"/>
</g></svg>
</svg>
"""


def last_screen(cast: Cast) -> str:
    return "\n".join(row for _, row in cast.rows()[-ROWS:])


def draw_png(cast: Cast) -> None:
    import matplotlib
    from PIL import Image, ImageDraw, ImageFont, PngImagePlugin

    font = ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSansMono.ttf", 12)
    size = (round(COLUMNS * CHARACTER) + 2 * MARGIN, ROWS * LINE + 2 * MARGIN)
    image = Image.new("RGB", size, GROUND)
    draw = ImageDraw.Draw(image)
    for i, row in enumerate(last_screen(cast).split("\n")):
        draw.text((MARGIN, MARGIN + i * LINE), row, font=font, fill=colour(row))
    told = PngImagePlugin.PngInfo()
    told.add_text("screen", last_screen(cast), zip=True)
    image.quantize(32, dither=Image.Dither.NONE).save(PNG, optimize=True, pnginfo=told)


def main() -> None:
    form = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    form.add_argument("--draw", action="store_true", help="draw the recording that is there")
    cast = Cast.of(CAST.read_text("utf-8")) if form.parse_args().draw else record()
    if why := problem(cast):
        sys.exit(f"recording.py: {why}; nothing is written. Run it again when the machine has nothing else to do")
    CAST.write_text(cast.text(), "utf-8")
    SVG.write_text(svg(cast), "utf-8")
    draw_png(cast)
    print(", ".join(f"{file.relative_to(ROOT)} {file.stat().st_size:,} bytes" for file in (CAST, SVG, PNG)))


if __name__ == "__main__":
    main()
