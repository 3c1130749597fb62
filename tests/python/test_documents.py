"""The documents: their commands run or parse, their links lead somewhere, their figures are those of the benchmarks.

A block of shell in README.md or docs/ runs here, those of a page one after the other in one folder, unless the line
above it says why not: `<!-- not run: reason -->`. One that serves runs until it has said so, and ends well on Ctrl-C:
`<!-- serves: what it says -->`. Lines of `collab` and `torchrun` in all documents are parsed by the real thing.
"""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import charts
import pytest
import recording
import torch
import yaml
from commands import bare_environment
from PIL import Image
from ranks import expect_success, run_ranks
from torch.distributed.run import get_args_parser
from torch_collab.cli import lab, parser

ROOT = Path(__file__).resolve().parents[2]
PLACES = ("*.md", "docs/**/*.md", "plugin/**/*.md", "tests/**/*.md")
PAGES = sorted(str(path.relative_to(ROOT)) for place in PLACES for path in ROOT.glob(place))
FOR_USERS = [page for page in PAGES if page == "README.md" or page.startswith("docs/")]
LIMIT = 120


@dataclass
class Block:
    page: str
    line: int
    language: str
    text: str
    not_run: str  # why, or nothing
    serves: str  # what it says once it does, or nothing


def blocks(page: str) -> Iterator[Block]:
    before, language, start, body = "", None, 0, []
    for number, line in enumerate((ROOT / page).read_text("utf-8").splitlines(), 1):
        fence = re.match(r" *```(\w*)", line)
        if language is None and fence:
            language, start, body = fence.group(1), number, []
        elif language is not None and fence:
            mark = re.fullmatch(r"<!-- (not run|serves): (.+) -->", before)
            marked = {mark[1]: mark[2]} if mark else {}
            text = "\n".join(body)
            yield Block(page, start, language, text, marked.get("not run", ""), marked.get("serves", ""))
            language = None
        elif language is not None:
            body.append(line)
        before = line if language is None else before
    assert language is None, f"{page}:{start}: a block without an end"


SHELL = [block for page in PAGES for block in blocks(page) if block.language == "bash"]


def commands(text: str) -> Iterator[list[str]]:
    """The words of each simple command, without variables before it; what stands in quotes is one word."""
    text = re.sub(r"(?m)(^|\s)#.*$", "", text).replace("\\\n", " ").replace("\n", " ;; ")
    lexer = shlex.shlex(text, posix=True, punctuation_chars="();|&")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";;"]:
        if not word or set(word) - set("();|&"):
            words.append(word)
            continue
        while words and re.match(r"\w+=", words[0]):
            words.pop(0)
        if words:
            yield words
        words = []


def refused(form: ArgumentParser, words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    try:
        form.parse_args(words)
    except SystemExit as end:
        return capsys.readouterr().err if end.code else ""
    return ""


@functools.cache
def options_of_the_lab() -> set[str]:
    done = subprocess.run([lab.emulator(), "--help"], capture_output=True, text=True, timeout=60)
    return set(re.findall(r"--[a-z][a-z-]*", done.stdout))


def test_a_wrong_line_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    (words,) = commands("A=1 collab plan --sitez 2  # not 'this'\n")
    assert words == ["collab", "plan", "--sitez", "2"]
    assert "--sitez" in refused(parser(), words[1:], capsys)
    assert "unrecognized" in refused(get_args_parser(), ["--nodes=2", "train.py"], capsys)
    assert "--rtt" in options_of_the_lab() and "--rtd" not in options_of_the_lab()


@pytest.mark.parametrize("page", sorted({block.page for block in SHELL}))
def test_lines_of_collab_and_torchrun_parse(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    for block in (block for block in SHELL if block.page == page):
        for words in commands(block.text):
            wrong = ""
            if words[:2] == ["collab", "lab"]:
                own = words[: words.index("--")] if "--" in words else words
                wrong = " ".join(w for w in own if w.startswith("--") and w not in options_of_the_lab())
            elif words[0] == "collab":
                wrong = refused(parser(), words[1:], capsys)
            elif words[0] == "torchrun":
                wrong = refused(get_args_parser(), words[1:], capsys)
            assert not wrong, f"{page}:{block.line}: {' '.join(words)}: {wrong}"


def test_commands_and_options_in_sentences_exist() -> None:
    (action,) = (each for each in parser()._actions if isinstance(each, _SubParsersAction))
    found = 0
    for page in PAGES:
        if page.startswith("docs/protocol/"):  # speaks of labels of TLS
            continue
        for span in re.findall(r"`collab ([a-z]+(?: [^`]*)?)`", (ROOT / page).read_text("utf-8")):
            name, *words = span.split()
            assert name in action.choices, f"{page}: collab {span}"
            known = options_of_the_lab() if name == "lab" else set(action.choices[name]._option_string_actions)
            own = words[: words.index("--")] if "--" in words else words
            wrong = [word for word in own if word.startswith("--") and word.partition("=")[0] not in known]
            assert not wrong, f"{page}: collab {span}: {wrong}"
            found += 1
    assert found > 20


def test_the_page_of_commands_lists_all() -> None:
    (action,) = (each for each in parser()._actions if isinstance(each, _SubParsersAction))
    page = (ROOT / "docs/reference/commands.md").read_text("utf-8")
    listed = re.findall(r"^\| `collab (\w+)` \|", page, re.MULTILINE)
    assert sorted(listed) == sorted(action.choices)


def keep_a_state(folder: Path) -> None:
    """Of a training, as COLLAB_STATE_DIR, and the model that it began with."""
    environment = {"COLLAB_STATE_DIR": str(folder / "state"), "BATCH": "4"}
    expect_success(run_ranks("local_sgd.py", ["a"], str(folder), "2", "1", environment=environment))
    kept = ("0.weight", "0.bias", "2.weight", "2.bias", "4.weight", "4.bias")
    model = dict(zip(kept, torch.load(folder / "0.pt")[-1], strict=True))
    torch.save(model | {"frozen": torch.zeros(2)}, folder / "pretrained.pt")


def make_a_certificate(folder: Path) -> None:
    own = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=page -keyout page.key -out page.pem"
    subprocess.run(["openssl", *own.split()], cwd=folder, check=True, capture_output=True)


# What a page takes for granted.
GIVEN = {"docs/guides/data.md": keep_a_state, "docs/guides/page.md": make_a_certificate}


def serve(block: Block, folder: Path, environment: dict[str, str]) -> None:
    """At ports that are free; until it says that it serves."""
    script = "set -euo pipefail\n" + re.sub(r":(29500|8080|8443)\b", ":0", block.text)
    process = subprocess.Popen(
        ["bash", "-c", script], cwd=folder, env=environment, start_new_session=True, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    watch = threading.Timer(LIMIT, os.killpg, (process.pid, signal.SIGKILL))
    watch.start()
    try:
        assert process.stdout is not None
        said = ""
        while block.serves not in said and (line := process.stdout.readline()):
            said += line
        assert block.serves in said, f"{block.page}:{block.line}:\n{script}\n{said}"
        os.killpg(process.pid, signal.SIGINT)
        said += process.stdout.read()
        assert process.wait() == 0, f"{block.page}:{block.line}:\n{script}\n{said}"
    finally:
        watch.cancel()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_blocks_of_a_page_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environment = bare_environment()
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    shell = [block for block in SHELL if block.page in FOR_USERS]
    run = [block for block in shell if not block.not_run]
    for page in sorted({block.page for block in run}):
        folder = tmp_path / page.replace("/", "-")
        folder.mkdir()
        if page in GIVEN:
            GIVEN[page](folder)
        texts = [block.text for block in run if block.page == page and not block.serves]
        script = "\n".join(["set -euo pipefail", *texts])
        done = subprocess.run(
            ["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT
        )
        assert done.returncode == 0, f"{page}:\n{script}\n{done.stdout}{done.stderr}"
        for block in run:
            if block.page == page and block.serves:
                serve(block, folder, environment)
    assert run
    with capsys.disabled():
        print(f"\ndocuments: {len(run)} blocks of shell ran, {len(shell) - len(run)} are marked as not run")


@pytest.mark.parametrize("page", FOR_USERS)
def test_blocks_of_python_json_and_yaml_are_such(page: str) -> None:
    for block in blocks(page):
        if block.language == "python":
            ast.parse(block.text)
        if block.language == "json":
            json.loads(block.text)
        if block.language == "yaml":
            assert isinstance(yaml.safe_load(block.text), dict), f"{page}:{block.line}"


def anchors(page: Path) -> set[str]:
    """As GitHub, and MkDocs with the slugs of mkdocs.yml, make them of headings."""
    found = re.findall(r"^#+ (.+)$", re.sub(r"^ *```.*?^ *```", "", page.read_text("utf-8"), flags=re.S | re.M), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = re.sub(r"^ *```.*?^ *```", "", (ROOT / page).read_text("utf-8"), flags=re.S | re.M)
    for target in re.findall(r"\]\(([^()\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (ROOT / page).parent / path if path else ROOT / page
        assert there.exists(), f"{page}: {target}"
        assert not anchor or anchor in anchors(there), f"{page}: {target}"


def test_charts_show_what_was_measured() -> None:
    for name, figures in charts.charts().items():
        assert charts.shown(charts.IMAGES / name) == figures, f"{name} is old: run python docs/charts.py"
    other = charts.TABLES.read_text("utf-8").replace("| 0.576 |", "| 0.476 |")
    assert charts.shares(other) != charts.shown(charts.IMAGES / "line-shares.svg"), "another table is another chart"
    other = charts.TABLES.read_text("utf-8").replace("| +8.10 (", "| +7.10 (")
    assert charts.gaps(other) != charts.shown(charts.IMAGES / "gap.svg")


def test_results_of_a_benchmark_can_be_drawn(tmp_path: Path) -> None:
    wan, overlap = tmp_path / "wan.json", tmp_path / "overlap.json"
    rows = [{"line": "clean", "share": 0.93, "gloo_share": 0.58}, {"line": "tls", "share": 0.9}]
    wan.write_text(json.dumps({"benchmark": "wan", "millions": 25, "codec": "fp32", "rows": rows}))
    times = {"training time with rounds behind it, against none": 1.01, "… with rounds that block, against none": 1.7}
    rows = [{"what": what, "ratio": ratio} for what, ratio in times.items()]
    overlap.write_text(json.dumps({"benchmark": "overlap", "rows": rows}))
    assert charts.shown(charts.draw_measured(wan)) == {"clean": {"collab": 0.93, "Gloo": 0.58}, "tls": {"collab": 0.9}}
    assert charts.shown(charts.draw_measured(overlap)) == {"none": 1.0, "behind the training": 1.01, "blocking": 1.7}
    for other in ("{}", "no JSON", '{"benchmark": "run", "rows": []}', '{"benchmark": "overlap", "rows": []}'):
        wan.write_text(other)
        with pytest.raises(ValueError, match=r"wan\.json is not what bench_wan\.py or bench_overlap\.py writes"):
            charts.draw_measured(wan)


def test_the_readme_says_what_was_measured() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    tables = charts.TABLES.read_text("utf-8")
    for system, share in next(iter(charts.shares(tables).values())).items():
        assert f"{system} {share:.2f}" in text, (system, share)
    for kind, of_none in charts.training(tables).items():
        assert kind == "none" or f"{of_none:.3f}" in text, (kind, of_none)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 120


def test_charts_are_small() -> None:
    sizes = {image.name: image.stat().st_size for image in (ROOT / "docs" / "images").iterdir()}
    assert sizes and max(sizes.values()) < 60_000, sizes


def test_the_recording_shows_a_cut_a_return_and_equal_models() -> None:
    text = recording.CAST.read_text("utf-8")
    cast = recording.Cast.of(text)
    assert cast.text() == text and recording.problem(cast) == ""
    head = {"version": 2, "width": recording.COLUMNS, "height": recording.ROWS, "command": "python docs/recording.py"}
    assert head.items() <= cast.header.items()
    times = [at for at, _ in cast.output]
    assert times == sorted(times) and cast.rows()[-1][0] < 60, "seconds"
    said = "".join(said for _, said in cast.output).replace("\r\n", "\n")
    assert all(f"$ {command}\n" in said for command in recording.commands()), "the example has other commands now"
    assert recording.SVG.read_text("utf-8") == recording.svg(cast), "run python docs/recording.py --draw"
    with Image.open(recording.PNG) as png:
        assert png.text["screen"] == recording.last_screen(cast)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (r"lab: \d+ s: heal tokyo", "", "no cut that is healed"),
        (r"(tokyo \| round .* model )\w", r"\1x", "two sites have two models"),
        (r"(?s)(.*)(lab: \d+ s: cut tokyo\r\n)", r"\2\1", "in no round before the cut"),
        (r"(?s)(s: cut tokyo\r\n)(.*)(lab: \d+ s: heal tokyo\r\n)", r"\1\3\2", "do not go on in the cut"),
        (r"(?s)(.*)tokyo \| round ", r"\1tokyo | ", "do not agree at the end"),
        ("lab: traffic", "\x1b[31m", "escapes"),
    ],
)
def test_another_recording_is_refused(old: str, new: str, why: str) -> None:
    cast = recording.Cast.of(recording.CAST.read_text("utf-8"))
    said = "".join(said for _, said in cast.output)
    assert why in recording.problem(recording.Cast(cast.header, [(0.0, re.sub(old, new, said, count=1))]))
