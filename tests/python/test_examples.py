"""The examples: the GPT-2 script on torch's own Gloo, the small ones, and the comparisons in the lab."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import Started
from forks import bare_environment, usual_environment
from ranks import free_port

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples" / "gpt2_ddp.py"
LIMIT = 240


def start_ranks(world: int, *arguments: object) -> list[Started]:
    """What torchrun would start, without its agent."""
    shared = {"WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    ranks = [{k: str(v) for k, v in (shared | {"RANK": rank, "LOCAL_RANK": rank}).items()} for rank in range(world)]
    command = [str(SCRIPT), *map(str, arguments)]
    return [Started(command, usual_environment() | variables, rank) for rank, variables in enumerate(ranks)]


def run_ranks(world: int, *arguments: object) -> list[tuple[int, str, str]]:
    """(exit code, stdout, stderr) of each rank."""
    processes = start_ranks(world, *arguments)
    try:
        outputs = [process.communicate(timeout=LIMIT) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, out, err) for process, (out, err) in zip(processes, outputs, strict=True)]


def write_text(folder: Path, lines: int) -> None:
    text = "".join(f"{n} squared is {n * n}, cubed {n**3}.\n" for n in range(lines))
    (folder / "text.txt").write_text(text)


def train(world: int, folder: Path, *arguments: object) -> list[list[dict[str, float]]]:
    """Runs the script on a few steps of a small text; the lines of each rank's log."""
    text = folder / "text.txt"
    if not text.exists():
        write_text(folder, lines=4000)
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
    write_text(tmp_path, lines=100_000)  # of which the second run evaluates long enough to be killed meanwhile
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
def test_bad_input_gets_an_error_message(
    arguments: list[str],
    world: int | None,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert expected in answer(arguments, world, monkeypatch, capsys)


# ---- the small ones -----------------------------------------------------------------------------------------------

SMALL = {"STEPS": "60", "COLLAB_SYNC_EVERY": "20", "OMP_NUM_THREADS": "1", "COLLAB_JOIN_TIMEOUT": "60s"}
LOSS = re.compile(r"^rank (\d): loss (\d+\.\d+) -> (\d+\.\d+), model (\w+)(.*)$", re.M)


def start_small(script: str, sites: tuple[str, ...], *arguments: str, **more: str) -> list[Started]:
    """One rank at each of these sites, as torchrun would start it."""
    world = {"WORLD_SIZE": str(len(sites)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    common = bare_environment() | SMALL | world | more
    command = [str(ROOT / "examples" / script), *arguments]
    return [
        Started(command, common | {"RANK": str(rank), "COLLAB_SITE": site}, rank) for rank, site in enumerate(sites)
    ]


def ended_small(processes: list[Started]) -> list[re.Match[str]]:
    """What each rank said at its end, by rank; the loss fell everywhere."""
    try:
        said = [process.communicate(timeout=LIMIT) for process in processes]
    finally:
        for process in processes:
            process.kill()
    lines = []
    for process, (out, err) in zip(processes, said, strict=True):
        assert process.returncode == 0, out + err
        (line,) = LOSS.finditer(out)
        assert float(line[3]) < 0.9 * float(line[2]), line[0]
        lines.append(line)
    return lines


def alone_and_at_two_sites(script: str, folder: Path, *arguments: str) -> list[re.Match[str]]:
    """The lines of one who is alone, of paris and of tokyo. Both sites end with one model, which is of neither alone,
    and every round was of both."""
    told = folder / "events.jsonl"
    alone = start_small(script, ("alone",), *arguments)
    both = start_small(script, ("paris", "tokyo"), *arguments, COLLAB_EVENTS_FILE=str(told))
    lines = ended_small(both) + ended_small(alone)
    assert lines[0][4] == lines[1][4], "the sites hold different models"
    assert lines[2][4] != lines[0][4], "two sites have the model of one"
    assert lines[0][2] != lines[1][2], "both sites trained the same data"
    rounds: dict[str, dict[int, str]] = {"paris": {}, "tokyo": {}}
    for event in map(json.loads, told.read_text().splitlines()):
        if event["event"] == "round" and event["site"] in rounds:
            assert event["contributors"] == event["members"] and sorted(event["members"]) == ["paris", "tokyo"]
            rounds[event["site"]][event["round"]] = event["digest"]
    assert rounds["paris"] == rounds["tokyo"] and len(rounds["paris"]) >= 3
    return [lines[2], lines[0], lines[1]]


def test_the_plain_script_is_short_and_says_collab_once(tmp_path: Path) -> None:
    code = (ROOT / "examples" / "plain.py").read_text().split('"""')[2]
    assert code.count("collab") == 1 and len([line for line in code.splitlines() if line]) <= 34
    alone_and_at_two_sites("plain.py", tmp_path)


def test_lora_averages_the_adapters_alone(tmp_path: Path) -> None:
    tail = re.compile(r", base (\w+), (\d+) of (\d+) parameters are averaged, (\d+) bytes sent")
    alone, paris, tokyo = (tail.fullmatch(line[5]) for line in alone_and_at_two_sites("lora.py", tmp_path))
    assert alone and paris and tokyo and alone[1] == paris[1] == tokyo[1], "the base is what it was, everywhere"
    trained, whole, sent = (int(paris[i]) for i in (2, 3, 4))
    assert trained < 0.05 * whole
    # Two or three rounds in fp16, of two sites: each sends half of its delta and half of the mean.
    assert 2 * trained < sent < 4 * 2 * trained + 20_000 < 2 * whole, (sent, trained, whole)


@pytest.mark.parametrize("script", ["checkpointing.py", "offload.py"])
def test_waiting_on_the_cpu_changes_nothing(script: str, tmp_path: Path) -> None:
    keeping = start_small(script, ("alone",), "--keep")
    alone, _, _ = alone_and_at_two_sites(script, tmp_path)
    (kept,) = ended_small(keeping)
    assert kept[0] == alone[0], "the same loss and the same model, bit for bit"


def test_each_line_of_the_stream_is_read_by_one_rank(tmp_path: Path) -> None:
    alone, paris, tokyo = (
        json.loads(line[5].removeprefix(", lines ")) for line in alone_and_at_two_sites("stream.py", tmp_path)
    )
    count = 60 * 32
    assert sorted(alone) == list(range(count)), "one reads them all, in the order of its two workers"
    assert sorted(paris + tokyo) == list(range(2 * count)) and len(paris) == len(tokyo) == count


def test_a_cut_site_prints_its_model_after_each_round() -> None:
    processes = start_small("cut.py", ("paris", "tokyo"), ROUNDS="2")
    try:
        said = [process.communicate(timeout=LIMIT) for process in processes]
    finally:
        for process in processes:
            process.kill()
    rounds = [re.findall(r"^round (\d): loss \d+\.\d+ in \d+ steps, model (\w+)$", out, re.M) for out, _ in said]
    assert rounds[0] == rounds[1] and [number for number, _ in rounds[0]] == ["1", "2"], said
    assert len({model for _, model in rounds[0]}) == 2, "a round changes the model"


@pytest.mark.wan
@pytest.mark.usefixtures("allowed")
def test_the_small_plain_example_runs_in_the_lab_as_documented() -> None:
    text = (ROOT / "examples" / "plain.py").read_text().split('"""')[1]
    command = re.search(r"^collab lab (.*?) +# two sites$", text, re.M | re.S)
    assert command, text
    words = command[1].replace("\\\n", " ").split()
    done = subprocess.run(
        [sys.executable, "-m", "torch_collab.cli", "lab", *words],
        env=os.environ | SMALL | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    ends = re.findall(r"loss \d+\.\d+ -> \d+\.\d+, model (\w+)", done.stdout)
    assert len(ends) == 2 and len(set(ends)) == 1, done.stdout


# ---- the comparisons in the lab -----------------------------------------------------------------------------------


def compared(script: str, out: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    small = ("--out", out, "--size", "nano", "--context", 16, "--eval-samples", 8, "--data", f"text:{ROOT / 'LICENSE'}")
    return subprocess.run(
        [sys.executable, str(ROOT / "examples" / script), *map(str, (*small, *arguments))],
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.wan
@pytest.mark.timeout(700)
@pytest.mark.usefixtures("allowed")
def test_the_founding_table_is_made_and_resumed(tmp_path: Path) -> None:
    given = ("--scale", 0.002, "--pretrain", 2, "--batch", 8, "--every", 2000)
    done = compared("founding_table.py", tmp_path, *given)
    assert done.returncode == 0, done.stderr
    row = re.search(r"N = 2000 +(\d+\.\d+) / (\d+\.\d+)( +\d+\.\d+){5} +3$", done.stdout, re.M)
    assert row, "its last column are rounds: after four steps, after eight, and the last one\n" + done.stdout
    assert row[1] != row[2], "a step after an averaging the sites have two models"
    made = json.loads((tmp_path / "table.json").read_text())["runs"]
    curves = [dict(curve) for curve in made["N = 2000"]["curves"]]
    for step in (4, 8):
        assert curves[0][step] == pytest.approx(curves[1][step], rel=1e-5), "they meet at every averaging"
    assert curves[0][2] != pytest.approx(curves[1][2], rel=1e-5)
    assert made["alone"]["steps"] == 9 and "| N = 2000 |" in (tmp_path / "table.md").read_text()
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    before = (tmp_path / "n2000" / "run.0.jsonl").stat().st_mtime_ns
    again = compared("founding_table.py", tmp_path, *given)
    assert again.returncode == 0 and again.stderr == "", again.stderr
    assert (tmp_path / "n2000" / "run.0.jsonl").stat().st_mtime_ns == before
    beside = compared("founding_table.py", tmp_path, *given, "--beside")
    assert beside.returncode == 0 and "never …\nn2000-behind …" in beside.stderr, beside.stderr
    assert re.search(r"^never .* 1\.000 ", beside.stdout, re.M) and "\nN = 2000, behind " in beside.stdout
    other = compared("founding_table.py", tmp_path, *given, "--rtt", 10)
    assert other.returncode != 0 and "has results with --rtt 60" in other.stderr


@pytest.mark.wan
@pytest.mark.timeout(700)
@pytest.mark.usefixtures("allowed")
def test_averaging_now_and_then_is_compared_over_one_line(tmp_path: Path) -> None:
    """The other ways, but for collab's settings, are those of the quickstart (test_quickstart.py)."""
    given = ("--seeds", 1, "--seconds", 6, "--look", 1, "--batch", 4, "--period", 2, "--rtt", 20)
    done = compared("compare.py", tmp_path, *given, "--ways", "postlocal", "--every", 8, "--reach", 1)
    assert done.returncode == 0, done.stderr
    for way in ("PostLocalSGD over Gloo", "collab, wan, every 8 steps"):
        assert re.search(rf"^{way} +\d+\.\d+ +not in 1 of 1 +\d+ +\d+\.\d+$", done.stdout, re.M), done.stdout
    (run,) = json.loads((tmp_path / "table.json").read_text())["runs"]["postlocal"]
    assert run["steps"] > 0 and run["points"][0]["validation"] > 0
    assert "made by" not in done.stderr and "examples/compare.py --out" in (tmp_path / "table.md").read_text()
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    again = compared("compare.py", tmp_path, *given, "--look", "1.0", "--ways", "postlocal", "--reach", 9)
    assert again.returncode == 0 and again.stderr == "", again.stderr
    assert re.search(r"^PostLocalSGD over Gloo +\d+\.\d+ +\d\.\d +\d+ +\d+\.\d+$", again.stdout, re.M), again.stdout


@pytest.mark.parametrize(
    ("script", "arguments", "words"),
    [
        ("founding_table.py", ["--scale", "0"], "--scale 0: expected more than 0, at most 1"),
        ("founding_table.py", ["--init", "/nowhere"], "--init /nowhere: expected a folder with config.json"),
        ("founding_table.py", ["--every", "0"], "--every 0: expected at least 1"),
        ("founding_table.py", ["--batch", "2"], "--batch 2: two sites need at least 4"),
        ("compare.py", ["--seconds", "0"], "--seconds must be above 0, not 0"),
        ("compare.py", ["--ways", "horovod"], "invalid choice: 'horovod'"),
        ("compare.py", ["--every", "8", "0"], "--every must be above 0, not 0"),
    ],
)
def test_an_impossible_comparison_is_refused_with_the_reason(script: str, arguments: list[str], words: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / script), *arguments], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2 and words in " ".join(done.stderr.split()), done.stderr


def test_the_founding_preset_takes_its_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    script = importlib.import_module("founding_table")
    monkeypatch.setattr(sys, "argv", ["founding_table.py", "--preset", "founding", "--rtt", "7"])
    args = script.parse_args()
    assert (args.size, args.context, args.batch, args.lr, args.scale) == ("gpt2", 20, 256, 5e-4, 1.0)
    assert (args.rtt, args.eval_samples, tuple(args.every)) == (7, 0, (100, 1000, 2000))
    assert [script.batch_of(rank, 2, 256) for rank in (0, 1)] == [127, 128] and script.batch_of(0, 1, 256) == 256


def test_imdb_is_split_as_the_founding_experiment_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for part in ("train/pos", "train/neg", "test/pos", "test/neg"):
        (tmp_path / part).mkdir(parents=True)
        for n in range(5):
            (tmp_path / part / f"{n}_7.txt").write_text(f"{part} {n}")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    script = importlib.import_module("founding_table")
    train, validation, test = script.split_documents(f"imdb:{tmp_path}")
    assert (len(train), len(validation), len(test)) == (8, 2, 10)  # of 25,000 and 25,000: 20,000, 5,000 and 25,000
    assert not set(train) & set(validation) and all(text.startswith("test") for text in test)


def test_a_local_gpt2_is_what_the_founding_table_tunes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tokenizers import ByteLevelBPETokenizer
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(["a film that was long and good"] * 4, 300, special_tokens=["<|endoftext|>"])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe._tokenizer, eos_token="<|endoftext|>")
    tokenizer.save_pretrained(tmp_path)
    size = len(tokenizer)
    saved = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=8, n_positions=32, vocab_size=size))
    saved.save_pretrained(tmp_path)

    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    script = importlib.import_module("founding_table")
    monkeypatch.setattr(sys, "argv", ["founding_table.py", "--preset", "founding", "--init", str(tmp_path)])
    args = script.parse_args()
    encode, vocabulary = script.encoder_of(args)
    tokens = encode(["a good film", "long"]).tolist()
    assert vocabulary == size and tokens.count(tokenizer.eos_token_id) == 2 and tokens[-1] == tokenizer.eos_token_id
    loaded = script.load_model(args, vocabulary).state_dict()
    assert all(loaded[name].equal(tensor) for name, tensor in saved.state_dict().items())
