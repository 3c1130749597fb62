"""How well training over rare rounds learns: loss on held-out text, beside gradients that are averaged at every step.

    python tests/bench/bench_learning.py [--sizes 36k 121k] [--settings h30 h30-int8 ...] [--seeds 8] [--tune]

Two sites (or four) train a small GPT from scratch on the text of Python's standard library, with equal samples, in one
process on one thread (in_process.py: sessions of the product). With --tune the model has been trained on that text as
one, and the sites fine-tune it on the prose of Python's reference (pydoc_data/topics.py). For one seed all settings
have the same start, the same samples in the same order and the same learning rates. What is compared is the loss of the
common model at the end, seed by seed, in % of the loss that it is beside; the interval is of the median, and
distribution-free.

A run is a line of JSON in --out. What is there is not run again; the table is of all lines there that were trained as
asked for. A setting beyond its bound makes the exit status 1.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pairs

if TYPE_CHECKING:
    import torch

SIZES = {
    "36k": {"width": 32, "layers": 2, "heads": 4},
    "121k": {"width": 64, "layers": 2, "heads": 4},
    "979k": {"width": 160, "layers": 3, "heads": 4},
    "3.2M": {"width": 256, "layers": 4, "heads": 4},
}
VOCABULARY = 256
FEWEST = 6  # seeds: of five the smallest and the largest do not hold the median with 95 %
# % of DDP's loss more, of a model that was trained before
TUNED_AT_MOST = {"h30": 0.5, "h30-nesterov": 0.5, "h100": 1.0, "h100-nesterov": 1.0}
WARMUP = 0.05  # of the steps, in which the learning rate grows; then it falls to 0


@dataclass(frozen=True)
class Setting:
    what: str
    knobs: Mapping[str, str] = field(default_factory=dict)  # none: nothing is averaged by collab
    merge_after: int = 0  # steps, of a round behind the training
    sites: int = 2
    beside: str = ""  # the run that it is compared with, but for DDP
    at_most: float | None = None  # % of that one's loss more


def sites(
    what: str, period: int = 30, at_most: float | None = None, merge_after: int = 0, count: int = 2, **knobs: str
) -> Setting:
    """Beside the same period and number of sites, blocking and uncompressed."""
    plain = {"sync_every": str(period), "codec": "fp32"}
    beside = f"h{period}" + ("-four" if count == 4 else "") if knobs else ""
    return Setting(f"every {period} steps{what}", {**plain, **knobs}, merge_after, count, beside, at_most)


def behind(merge: str, steps: int, what: str = "", at_most: float | None = 1.5, **of_sites: Any) -> Setting:
    what = f", behind the training, `{merge}`, merged {steps} steps later{what}"
    return sites(what, at_most=at_most, merge_after=steps, overlap="1", merge=merge, **of_sites)


# Biases, norms and embeddings: all tensors of these models are `small`.
KEPT = "wte,wpe,ln_,bias"
SLOW = {"codec": "topk64/int4", "keep_fp16": KEPT}
SLOW_WORDS = f"`topk64/int4`, `keep_fp16={KEPT}`"
SETTINGS = {
    "ddp": Setting("DDP, gradients averaged at every step"),
    "alone": Setting("one site alone, the same samples in twice the steps"),
    "h30": sites(", blocking, `fp32`"),
    "h100": sites(", blocking, `fp32`", period=100),
    "h30-fp16": sites(", `fp16`", codec="fp16"),
    "h30-int8": sites(", `int8`", at_most=0.3, codec="int8"),
    "h30-int4": sites(", `int4`", at_most=1.0, codec="int4"),
    "h30-int4-kept": sites(f", `int4`, `keep_fp16={KEPT}`", at_most=1.0, codec="int4", keep_fp16=KEPT),
    "h30-topk64": sites(", `topk64/int8`, `feedback_decay=1`", codec="topk64/int8", feedback_decay="1"),
    "h30-topk64-decay": sites(", `topk64/int8`", codec="topk64/int8"),
    "h30-rebase0.5-7": behind("rebase:0.5", 7),
    "h30-rebase0.5-15": behind("rebase:0.5", 15),
    "h30-rebase1-7": behind("rebase:1", 7),
    "h30-rebase1-15": behind("rebase:1", 15),
    "h30-rebase0.5-29": behind("rebase:0.5", 29, at_most=None),
    "h30-rebase1-29": behind("rebase:1", 29, at_most=None),
    "h30-mix0.5-7": behind("mix:0.5", 7),
    "h30-mix0.5-15": behind("mix:0.5", 15),
    "h30-wan": behind("rebase:0.5", 15, f", `int4`, `keep_fp16={KEPT}`", codec="int4", keep_fp16=KEPT),
    "h30-slow": behind("rebase:0.5", 15, f", {SLOW_WORDS}", None, **SLOW),
    "h30-slow-rebase1": behind("rebase:1", 15, f", {SLOW_WORDS}", None, **SLOW),
    "h30-slow-blocking": sites(f", {SLOW_WORDS}", **SLOW),
    "h30-fragments3-behind": behind("rebase:0.5", 7, ", of each of three fragments", fragments="3"),
    "h30-nesterov-behind": behind("rebase:0.5", 15, ", `nesterov`", None, outer_optimizer="nesterov"),
    "h30-rda-behind": behind("rebase:0.5", 15, ", `rda`", None, outer_optimizer="rda"),
    "h30-four": sites(", blocking, `fp32`, four sites", count=4),
    "h30-four-behind": behind("rebase:0.5", 15, ", four sites", count=4),
    "h30-fragments3": sites(" of each of three fragments, `fp32`", at_most=1.0, codec="fp32", fragments="3"),
    "h30-nesterov": sites(", `nesterov`", outer_optimizer="nesterov"),
    "h30-rda": sites(", `rda`", outer_optimizer="rda"),
    "h30-warm": sites(", every step in the first sixth", sync_warmup="104"),
    "h30-warm-rda": sites(", every step in the first sixth, `rda`", sync_warmup="104", outer_optimizer="rda"),
    "h100-warm": sites(", every step in the first sixth", period=100, sync_warmup="106"),
    "h100-nesterov": sites(", `nesterov`", period=100, outer_optimizer="nesterov"),
    "h100-rda": sites(", `rda`", period=100, outer_optimizer="rda"),
}


# ---- one run --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Course:
    """What all settings of a comparison have in common."""

    steps: int = 600  # of each site
    batch: int = 8  # samples at each site
    context: int = 64  # bytes in a sample
    lr: float = 3e-3  # the highest
    eval_samples: int = 512
    trained: int = 0  # steps of both sites' samples before, on code; then all is on prose


TUNING = Course(steps=400, lr=5e-4, trained=2 * Course.steps)


@cache
def data_of(course: Course) -> tuple[torch.Tensor, torch.Tensor]:
    """Samples to train on, and held-out ones: of code every 20th file, the bytes that examples/gpt2_ddp.py has; of
    prose every 20th page."""
    import torch

    def samples(chosen: Sequence[bytes]) -> torch.Tensor:
        text = b"\0".join(chosen)
        whole = len(text) // course.context * course.context
        return torch.frombuffer(bytearray(text[:whole]), dtype=torch.uint8).view(-1, course.context)

    pages = prose() if course.trained else code()
    train, held_out = samples([page for i, page in enumerate(pages) if i % 20]), samples(pages[::20])
    return train, held_out[:: max(1, len(held_out) // course.eval_samples)][: course.eval_samples].long()


def code() -> list[bytes]:
    root = Path(sysconfig.get_paths()["stdlib"])
    unwanted = {"site-packages", "dist-packages", "test", "tests", "idle_test"}
    files = [file for file in sorted(root.rglob("*.py")) if not unwanted & set(file.relative_to(root).parts)]
    return [file.read_bytes() for file in files]


def prose() -> list[bytes]:
    from pydoc_data.topics import topics

    return [topics[name].encode() for name in sorted(topics)]


class Batches:
    """The batches of a seed: of n sites, site i trains on number n s + i in step s."""

    def __init__(self, course: Course, seed: int) -> None:
        import torch

        self._pieces = data_of(course)[0]
        self._order = torch.randperm(len(self._pieces), generator=torch.Generator().manual_seed(seed))
        self._size = course.batch

    def __call__(self, first: int, count: int = 1) -> torch.Tensor:
        return self._pieces[self._order[first * self._size : (first + count) * self._size]].long()


@cache
def make_model(size: str, course: Course, seed: int) -> torch.nn.Module:
    """What all settings start from: not to be changed."""
    import torch
    from small_gpt import SmallGpt

    torch.manual_seed(seed)
    model = SmallGpt(VOCABULARY, course.context, **SIZES[size])
    if course.trained:
        before = Course(steps=course.trained)
        batches, learner = Batches(before, seed), Learner(model, before.steps, before.lr)
        for step in range(before.steps):
            learner.step(batches(2 * step, 2))
    return model


def held_out_loss(model: torch.nn.Module, course: Course) -> float:
    import torch

    with torch.no_grad():
        return float(model(data_of(course)[1]))


class Learner:
    """A model with its optimizer, over so many steps."""

    def __init__(self, model: torch.nn.Module, steps: int, lr: float) -> None:
        import torch

        self.model = model
        self._clip = torch.nn.utils.clip_grad_norm_
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
        warmup = max(1.0, WARMUP * steps)
        self._rates = torch.optim.lr_scheduler.LambdaLR(
            self._optimizer, lambda step: min((step + 1) / warmup, 1 - step / steps)
        )

    def step(self, batch: torch.Tensor) -> None:
        self.model(batch).backward()
        self._clip(self.model.parameters(), 1.0)
        self._optimizer.step()
        self._rates.step()
        self._optimizer.zero_grad()


def train_apart(setting: Setting, start: torch.nn.Module, course: Course, batches: Batches) -> torch.nn.Module:
    from in_process import Sites, digest_of

    learners = [Learner(copy.deepcopy(start), course.steps, course.lr) for _ in range(setting.sites)]
    joined = Sites([learner.model for learner in learners], setting.knobs, setting.merge_after)
    for step in range(course.steps):
        for site, learner in enumerate(learners):
            learner.step(batches(setting.sites * step + site))
        joined.stepped(course.batch)
    joined.finish()
    if len({digest_of(learner.model) for learner in learners}) != 1:
        raise RuntimeError("the sites hold different models after the last round")
    return learners[0].model


def train_as_one(name: str, start: torch.nn.Module, course: Course, batches: Batches) -> torch.nn.Module:
    """`ddp`: the mean gradient of the sites' batches is that of one batch of both."""
    at_once = SETTINGS[name].sites if name == "ddp" else 1
    steps = SETTINGS[name].sites * course.steps // at_once
    learner = Learner(copy.deepcopy(start), steps, course.lr)
    for step in range(steps):
        learner.step(batches(at_once * step, at_once))
    return learner.model


def train(name: str, size: str, seed: int, course: Course) -> dict[str, Any]:
    import torch
    from in_process import digest_of

    torch.set_num_threads(1)
    setting, batches, start = SETTINGS[name], Batches(course, seed), make_model(size, course, seed)
    there, wanted = len(data_of(course)[0]), setting.sites * course.steps * course.batch
    if there < wanted:
        sys.exit(f"the standard library has {there} samples, {wanted} are needed: take fewer --steps")
    began = time.monotonic()
    if setting.knobs:
        model = train_apart(setting, start, course, batches)
    else:
        model = train_as_one(name, start, course, batches)
    seconds = time.monotonic() - began
    return {"loss": held_out_loss(model, course), "digest": digest_of(model), "seconds": round(seconds, 2)}


# ---- all of them ----------------------------------------------------------------------------------


def asked(name: str, size: str, seed: int, course: Course) -> dict[str, Any]:
    """What a run is known by: a line of it counts as long as nothing of this has changed."""
    setting = SETTINGS[name]
    of_setting = {"knobs": dict(setting.knobs), "merge_after": setting.merge_after, "sites": setting.sites}
    return {"setting": name, "size": size, "seed": seed, **of_setting, **asdict(course)}


class Results:
    """A file of lines of JSON."""

    def __init__(self, file: Path) -> None:
        self._file = file
        lines = file.read_text().splitlines() if file.exists() else []
        self._lines = [{"sites": 2, "trained": 0, **json.loads(line)} for line in lines]  # earlier ones do not say it

    def find(self, run: Mapping[str, Any]) -> dict[str, Any] | None:
        return next((line for line in self._lines if run.items() <= line.items()), None)

    def add(self, line: dict[str, Any]) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a") as file:
            file.write(json.dumps(line) + "\n")
        self._lines.append(line)

    def losses(self, name: str, size: str, course: Course) -> dict[int, float]:
        """By seed."""
        seeds = {line["seed"] for line in self._lines}
        found = {seed: self.find(asked(name, size, seed, course)) for seed in sorted(seeds)}
        return {seed: line["loss"] for seed, line in found.items() if line is not None}


Train = Callable[[str, str, int, Course], dict[str, Any]]


def run_all(args: argparse.Namespace, course: Course, results: Results, train_one: Train = train) -> None:
    """Whole seeds first: who is stopped has pairs."""
    for seed in range(args.seeds):
        for size in args.sizes:
            for name in args.settings:
                run = asked(name, size, seed, course)
                if results.find(run) is None:
                    line = {**run, **train_one(name, size, seed, course)}
                    results.add(line)
                    print(f"{name}, {size}, seed {seed}: {line['loss']:.4f}", file=sys.stderr, flush=True)


def differences(of: Mapping[int, float], beside: Mapping[int, float]) -> list[float]:
    """In % of what it is beside, for the seeds that both have."""
    return [100 * (loss / beside[seed] - 1) for seed, loss in of.items() if seed in beside]


def in_words(percent: Sequence[float]) -> str:
    if not percent:
        return ""
    low, median, high = (round(bound, 2) + 0.0 for bound in pairs.interval(list(percent)))  # no -0.00
    return f"{median:+.2f} ({low:+.2f} to {high:+.2f})"


def verdict(percent: Sequence[float], at_most: float | None) -> str:
    """Whether the bound holds, and whether the interval lies on one side of it."""
    if at_most is None or not percent:
        return ""
    low, median, high = pairs.interval(list(percent))
    met = median <= at_most
    shown = high <= at_most if met else low > at_most
    doubt = ", too few seeds" if len(percent) < FEWEST else "" if shown else ", interval wider"
    return f"{at_most:g} %: {'held' if met else 'MISSED'}{doubt}"


def table_of(
    results: Results, sizes: Sequence[str], names: Sequence[str], course: Course
) -> tuple[list[list[str]], bool]:
    """Rows, the first of which is the heading; whether every bound is met."""
    rows = [["parameters", "rounds", "loss", "% beside DDP", "% beside `fp32`, blocking", "at most", "seeds"]]
    met = True
    for size in sizes:
        for name in names:
            setting, losses = SETTINGS[name], results.losses(name, size, course)
            if not losses:
                continue
            of_ddp = results.losses("ddp", size, course) if setting.sites == 2 and name != "ddp" else {}
            to_ddp = differences(losses, of_ddp)
            to_plain = differences(losses, results.losses(setting.beside, size, course)) if setting.beside else []
            said = verdict(to_plain, setting.at_most)
            if course.trained and name in TUNED_AT_MOST:
                said = verdict(to_ddp, TUNED_AT_MOST[name]) + " beside DDP"
            met = met and "MISSED" not in said
            loss = f"{statistics.median(losses.values()):.3f}"
            rows.append([size, setting.what, loss, in_words(to_ddp), in_words(to_plain), said, str(len(losses))])
    return rows, met


def parse_args(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Loss over rare rounds, beside gradients at every step.")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS), metavar="NAME",
                        help=", ".join(SETTINGS))  # fmt: skip
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["36k", "121k"], metavar="SIZE",
                        help=f"{', '.join(SIZES)} (default: 36k 121k; 979k takes a minute a run)")  # fmt: skip
    parser.add_argument("--seeds", type=int, default=8, help="how many (default: %(default)s)")
    parser.add_argument("--steps", type=int, help="of each site (default: 600; with --tune 400)")
    parser.add_argument("--tune", action="store_true", help="fine-tune models that were trained before")
    parser.add_argument("--out", type=Path, default=Path("out/bench/learning.jsonl"), help="(default: %(default)s)")
    return parser.parse_args(given)


def main() -> None:
    from torch_collab import native

    args = parse_args()
    native.set_log_level("warning")
    course = TUNING if args.tune else Course()
    if args.steps:
        course = replace(course, steps=args.steps)
    results = Results(args.out)
    run_all(args, course, results)
    rows, met = table_of(results, args.sizes, args.settings, course)
    print("\n".join(["| " + " | ".join(row) + " |" for row in [rows[0], ["---"] * len(rows[0]), *rows[1:]]]))
    print(f"{pairs.machine()} -> {args.out}", file=sys.stderr)
    sys.exit(not met)


if __name__ == "__main__":
    main()
