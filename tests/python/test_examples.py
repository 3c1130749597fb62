"""The examples: the GPT-2 script on torch's own Gloo, the quickstart from end to end, the picture."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ranks import free_port

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples" / "gpt2_ddp.py"
LIMIT = 240


def start_ranks(world: int, *arguments: object) -> list[subprocess.Popen[str]]:
    """What torchrun would start, without its agent."""
    shared = {"WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    return [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), *map(str, arguments)],
            env=os.environ | {k: str(v) for k, v in (shared | {"RANK": rank, "LOCAL_RANK": rank}).items()},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]


def run_ranks(world: int, *arguments: object) -> list[tuple[int, str, str]]:
    """(exit code, stdout, stderr) of each rank."""
    processes = start_ranks(world, *arguments)
    try:
        outputs = [process.communicate(timeout=LIMIT) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, out, err) for process, (out, err) in zip(processes, outputs, strict=True)]


def train(world: int, folder: Path, *arguments: object) -> list[list[dict[str, float]]]:
    """Runs the script on a few steps of a small text; the lines of each rank's log."""
    text = folder / "text.txt"
    if not text.exists():
        text.write_text("".join(f"{n} squared is {n * n}, cubed {n**3}.\n" for n in range(4000)))
    common = ("--backend", "gloo", "--data", f"text:{text}", "--context", 32, "--batch", 4, "--warmup", 2)
    results = run_ranks(world, *common, "--eval-samples", 8, "--log-file", folder / "loss.jsonl", *arguments)
    for code, _, err in results:
        assert code == 0, err
    assert "held-out perplexity" in results[0][1]
    logs = [folder / f"loss.rank{rank}.jsonl" for rank in range(world)]
    return [[json.loads(line) for line in log.read_text().splitlines()] for log in logs]


def losses(lines: list[dict[str, float]]) -> list[float]:
    return [line["loss"] for line in lines if "loss" in line]


def test_the_script_is_short_and_says_collab_once() -> None:
    text = SCRIPT.read_text()
    assert re.findall("collab", text, re.IGNORECASE) == ["collab"]
    assert 'parser.add_argument("--backend", default="collab"' in text
    assert len(text.splitlines()) <= 300


def test_two_ranks_learn_and_each_keeps_its_own_log(tmp_path: Path) -> None:
    first, second = train(2, tmp_path, "--steps", 12, "--lr", "3e-3")
    assert len(losses(first)) == len(losses(second)) == 12
    assert losses(first) != losses(second)  # each saw its own half of the batches
    assert losses(first)[-1] < losses(first)[0] - 0.5
    assert first[-1]["world"] == 2 and first[-1]["batch"] == 2
    assert first[-1]["perplexity"] == pytest.approx(second[-1]["perplexity"], rel=1e-6)  # one model


def test_resume_continues_the_same_training(tmp_path: Path) -> None:
    whole = losses(train(1, tmp_path, "--steps", 8, "--checkpoint", tmp_path / "a.pt", "--save-every", 5)[0])
    # The checkpoint of step 5 comes from a run that stops there without knowing it is early.
    checkpoint = tmp_path / "b.pt"
    process = start_ranks(
        1, "--backend", "gloo", "--data", f"text:{tmp_path / 'text.txt'}", "--context", 32, "--batch", 4, "--warmup", 2,
        "--steps", 8, "--checkpoint", checkpoint, "--save-every", 5, "--eval-every", 6, "--eval-samples", 4000,
    )[0]  # fmt: skip
    try:
        deadline = time.monotonic() + LIMIT
        while not checkpoint.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert checkpoint.exists()
    finally:
        process.kill()
        process.communicate()
    resumed = losses(train(1, tmp_path, "--steps", 8, "--checkpoint", checkpoint, "--resume")[0])
    assert resumed == whole[5:]


def test_bpe_is_trained_once_for_all_ranks(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    train(2, tmp_path, "--steps", 1, "--tokenizer", "bpe", "--vocab", 300, "--cache", cache)
    assert len(list(cache.glob("*.pt"))) == 1
    before = {file: file.stat().st_mtime_ns for file in cache.glob("*.pt")}
    train(2, tmp_path, "--steps", 1, "--tokenizer", "bpe", "--vocab", 300, "--cache", cache)
    assert {file: file.stat().st_mtime_ns for file in cache.glob("*.pt")} == before


def test_imdb_folder(tmp_path: Path) -> None:
    for part in ("train/pos", "train/neg", "test/pos", "test/neg"):
        (tmp_path / part).mkdir(parents=True)
        for n in range(4):
            (tmp_path / part / f"{n}_7.txt").write_text(f"film {n} of {part} was long and good " * 20)
    train(1, tmp_path, "--steps", 2, "--data", f"imdb:{tmp_path}")


def answer(
    arguments: list[str], world: int | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """What the script prints when it refuses; run in this process, since refusals come before the ranks meet."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    script = importlib.import_module("gpt2_ddp")
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--backend", "gloo", *arguments])
    monkeypatch.delenv("RANK", raising=False)
    if world is not None:
        monkeypatch.setenv("RANK", "0")
        monkeypatch.setenv("WORLD_SIZE", str(world))
    with pytest.raises(SystemExit) as end:
        script.main()
    assert end.value.code != 0
    said = capsys.readouterr().err + (end.value.code if isinstance(end.value.code, str) else "")
    return " ".join(said.split())


@pytest.mark.parametrize(
    ("arguments", "world", "expected"),
    [
        (["--data", "imdb:/nowhere"], 1, "no .txt files in /nowhere/train/pos; expected the unpacked aclImdb folder"),
        (["--data", "text:/nowhere.txt"], 1, "cannot read /nowhere.txt: No such file or directory"),
        (["--data", "wikipedia"], 1, "expected stdlib, imdb:DIR or text:FILE"),
        (["--batch", "3"], 2, "--batch 3 is over all ranks and must be a multiple of their number, 2"),
        (["--steps", "0"], 1, "--steps must be at least 1, not 0"),
        (["--resume"], 1, "--resume needs --checkpoint FILE"),
        (["--resume", "--checkpoint", "/nowhere.pt"], 1, "--resume: there is no checkpoint /nowhere.pt"),
        (["--init", "/nowhere.pt"], 1, "--init: there is no checkpoint /nowhere.pt"),
        (["--context", "2048", "--size", "gpt2"], 1, "--size gpt2 takes at most 1024"),
        (["--data", f"text:{ROOT / 'LICENSE'}", "--batch", "512"], 1, "are too few for --batch 512"),
        ([], None, "start it with torchrun: torchrun --nproc-per-node=1"),
    ],
)
def test_bad_input_is_answered_in_words(
    arguments: list[str],
    world: int | None,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert expected in answer(arguments, world, monkeypatch, capsys)


# ---- the quickstart -----------------------------------------------------------------------------------------------

two_cores = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="the quickstart gives each site a core of its own"
)


def start_quickstart(out: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(ROOT / "examples" / "quickstart.sh"), "--quick", "--no-setup", "--out", str(out)],
        env=os.environ | {"PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@two_cores
def test_quickstart_ends_with_table_and_picture(tmp_path: Path) -> None:
    process = start_quickstart(tmp_path)
    out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, out + err
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


@two_cores
def test_quickstart_leaves_nothing_behind_on_ctrl_c(tmp_path: Path) -> None:
    process = start_quickstart(tmp_path)
    try:
        deadline = time.monotonic() + LIMIT
        workers: list[int] = []
        while not (tmp_path / "a.rank0.jsonl").exists() and time.monotonic() < deadline:
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        workers = descendants(process.pid)
        assert workers
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 130
        alive = [pid for pid in workers if Path(f"/proc/{pid}/cmdline").exists()]
        assert not [pid for pid in alive if b"gpt2_ddp" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    finally:
        process.kill()


def test_the_plot_names_what_is_missing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "plot.py"), str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode != 0
    assert "start.rank0.jsonl is missing; run examples/quickstart.sh" in done.stderr
