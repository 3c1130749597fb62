"""`collab plan`: what a training would cost on given lines, before anything is rented."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

from torch_collab import native
from torch_collab.cli import forms
from torch_collab.formatting import counted
from torch_collab.native import Settings
from torch_collab.planning import costs, lines, measured, memory, parameters, presets
from torch_collab.planning.costs import Cost

_ABOUT = (
    "Works out what rounds would cost. It compares collab's defaults and each preset with DDP over Gloo, and with "
    "sites that never talk. Rates are in Mbit/s, down/up, as for `collab lab`. Seconds are estimated from measurements "
    "over emulated lines (tests/bench/README.md); memory is a rough estimate. --measure puts a run's own figures "
    "beside the plan."
)
_EXAMPLES = (
    "collab plan --parameters 124M --sites paris:1000 tokyo:100/20 --rtt 180 --loss 0.1 --step 0.3s",
    "collab plan --parameters 124M --sites 2 --line 100 --rtt 100 --step 0.3s --measure paris.jsonl tokyo.jsonl",
)


def add_to(parsers: Any) -> None:
    sub = forms.add(
        parsers,
        "plan",
        "estimate the seconds, bytes and memory of a training run on given lines, before it runs",
        _ABOUT,
        _EXAMPLES,
        {0: "worked out", 1: "a file is refused"},
    )
    model = sub.add_mutually_exclusive_group()
    model.add_argument("--parameters", metavar="N", help="how many parameters are trained, e.g. 124M or 1.5B")
    model.add_argument("--config", metavar="FILE", type=Path, help="a Hugging Face config.json, or its folder")
    sub.add_argument(
        "--sites", nargs="+", metavar="SITE", default=["2"], help="how many sites, or NAME[:DOWN/UP][,nat] for each"
    )
    sub.add_argument("--line", metavar="DOWN/UP", help="Mbit/s of sites that have no rates of their own, e.g. 100/20")
    sub.add_argument("--rtt", metavar="MS", default="50", help="round trip between sites (default: %(default)s)")
    sub.add_argument("--loss", metavar="PERCENT", default="0", help="packets lost, each way (default: %(default)s)")
    sub.add_argument("--step", metavar="TIME", help="time of one step at a site on its own, e.g. 0.3s")
    sub.add_argument("--ranks", metavar="N", default="1", help="ranks at each site (default: %(default)s)")
    sub.add_argument(
        "--optimizer", choices=memory.OPTIMIZERS, default="adamw", help="of each rank (default: %(default)s)"
    )
    sub.add_argument(
        "--dtype",
        choices=["fp32", "bf16"],
        default="fp32",
        help="type of parameters and gradients (default: %(default)s)",
    )
    sub.add_argument(
        "--tokens", metavar="N", default="0", help="tokens in a rank's batch, for its activations; needs --config"
    )
    sub.add_argument("--preset", nargs="+", metavar="NAME", help="compare only these values of COLLAB_PRESET")
    sub.add_argument(
        "--set", action="append", default=[], metavar="KNOB=VALUE", help="add a row with these knobs, e.g. codec=int8"
    )
    sub.add_argument(
        "--measure", nargs="+", type=Path, metavar="EVENTS", help="compare with a run: its COLLAB_EVENTS_FILE"
    )
    sub.add_argument("--json", action="store_true", help="print everything as JSON")


@dataclasses.dataclass(frozen=True)
class Plan:
    model: parameters.Model
    sites: tuple[lines.Line, ...]
    path: lines.Between
    step: float
    ranks: int
    optimizer: str
    element: float
    tokens: int
    rows: tuple[Cost, ...]
    settings: dict[str, Settings]  # of the rows that are for collab


def run(arguments: argparse.Namespace) -> int:
    plan = make(arguments)
    beside = compare(plan, arguments.measure) if arguments.measure else None
    if arguments.json:
        print(json.dumps(as_json(plan, beside), indent=1))
    else:
        print("\n".join(render(plan) + (render_measured(beside) if beside else [])))
    return 0


# ---- arguments ------------------------------------------------------------------------------------


def _number(text: str, what: str, low: float, high: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise ValueError(f"{what}: expected a plain number from {low:g} to {high:g}, got {text!r} [cli.plan-arguments]")
    return value


def _whole(text: str, what: str, low: int, high: int) -> int:
    if not text.isdigit() or not low <= int(text) <= high:
        raise ValueError(f"{what}: expected a whole number from {low} to {high}, got {text!r} [cli.plan-arguments]")
    return int(text)


def _own(given: list[str]) -> dict[str, Settings]:
    """The row for --set."""
    knobs = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"--set {text}: expected KNOB=VALUE, such as codec=int8 [cli.plan-arguments]")
        knob = name.removeprefix("COLLAB_").lower()
        if knob in knobs:
            raise ValueError(f"--set {text}: {knob} is given twice; all of --set make one row [cli.plan-arguments]")
        knobs[knob] = value
    if knobs.get("sync_every", "").startswith("samples:"):
        raise ValueError(
            f"--set sync_every={knobs['sync_every']}: a plan does not know how many samples a step has. Give a number "
            "of steps: N divided by the samples that one step of all sites takes [cli.plan-arguments]"
        )
    return {"yours": presets.of_knobs(knobs)} if knobs else {}


def make(arguments: argparse.Namespace) -> Plan:
    """Raises ValueError or OSError with one line."""
    model = parameters.read_config(arguments.config) if arguments.config is not None else None
    with forms.usage():
        return _make(arguments, model)


def _make(arguments: argparse.Namespace, model: parameters.Model | None) -> Plan:
    if model is None and arguments.parameters is not None:
        model = parameters.Model(parameters.parse_count(arguments.parameters))
    missing = []
    if model is None:
        missing.append("the model: --parameters 124M, or --config FILE")
    if arguments.step is None:
        missing.append("the time of one step at a site on its own: --step 0.3s")
    if arguments.line is None and any(":" not in site for site in arguments.sites):
        missing.append("the rates of each site's line in Mbit/s: --line DOWN/UP, or --sites NAME:DOWN/UP ...")
    if model is None or arguments.step is None:
        raise ValueError(f"give {'; '.join(missing)} [cli.plan-arguments]")
    step = costs.parse_time(arguments.step, "--step")
    sites = lines.parse_sites(arguments.sites, arguments.line)
    path = lines.Between(
        rtt=_number(arguments.rtt, "--rtt in milliseconds", 0, 60_000) / 1e3,
        loss=_number(arguments.loss, "--loss in percent", 0, 100 * lines.MOST_LOSS) / 100,
    )
    ranks = _whole(arguments.ranks, "--ranks", 1, 4096)
    tokens = _whole(arguments.tokens, "--tokens", 0, 10**9)
    if tokens and not model.layers:
        raise ValueError(
            "--tokens needs --config FILE: activations follow from the model's layers [cli.plan-arguments]"
        )
    settings = {"collab": presets.of_knobs({}), **presets.choose(arguments.preset or []), **_own(arguments.set)}
    rows = [
        costs.alone(len(sites), step),
        costs.gloo_ddp(sites, path, model.parameters, step, ranks),
        *(costs.local_sgd(name, each, sites, path, model, step) for name, each in settings.items()),
    ]
    element = 4.0 if arguments.dtype == "fp32" else 2.0
    return Plan(model, sites, path, step, ranks, arguments.optimizer, element, tokens, tuple(rows), settings)


# ---- the table ------------------------------------------------------------------------------------


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms" if seconds < 1 else f"{seconds:.2f} s" if seconds < 100 else f"{seconds:.0f} s"


def _gigabytes(value: float) -> str:
    return f"{value / 1e9:.2f} GB"


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def _rate(rate: float) -> str:
    return f"{rate / 1e6:g}"


def render(plan: Plan) -> list[str]:
    count = plan.model.parameters
    text = [
        f"model   {count:,} parameters, {4 * count / 1e6:,.0f} MB as float32",
        f"sites   {_sites_text(plan)}; {plan.path.rtt * 1e3:g} ms, {plan.path.loss * 100:g} % loss",
        f"step    {_time(plan.step)} alone, {plan.optimizer}, {counted(plan.ranks, 'rank')} a site",
        "",
    ]
    head = ["", "", "round", "trains", "waits", "or with", "steps", "of never", "GB a day"]
    under = ["", "", "", "between", "", "overlap", "per s", "talking", "up / down"]
    rows = [head, under]
    for cost in plan.rows:
        talks = cost.round > 0
        rows.append([
            cost.name,
            cost.settings,
            _time(cost.round) if talks else "",
            _time(cost.every_seconds) if talks else "",
            f"{cost.waits:.1%}" if talks else "",
            f"{cost.waits_overlap:.1%}" if cost.waits_overlap is not None else "",
            f"{cost.steps_a_second:.3g}",
            f"{cost.of_alone:.1%}",
            f"{_short(max(cost.gb_day_up))} / {_short(max(cost.gb_day_down))}" if talks else "",
        ])  # fmt: skip
    text += forms.table(rows) + _render_delays(plan)
    text += _render_shares(plan) + _render_memory(plan)
    text += [
        "",
        "GB count the payload of the site that carries most; headers and acknowledgements add about a tenth.",
    ]
    text.append("Round times assume bbr. The first rounds take longer, while connections find the speed of the line.")
    if not_counted := _not_counted(plan):
        text.append(
            f"COLLAB_KEEP_FP16 ({', '.join(not_counted)}) is not counted: give --config, which has the tensors."
        )
    return text


def _not_counted(plan: Plan) -> list[str]:
    """The rows to which COLLAB_KEEP_FP16 would add bytes, for a model whose tensors are not known."""

    def thin(codec: str) -> bool:
        return any(map(native.needs_error_feedback, native.parse_codecs(codec)))

    return [
        name for name, each in plan.settings.items() if thin(each.codec) and plan.model.kept(each.keep_fp16) is None
    ]


def _sites_text(plan: Plan) -> str:
    rates = {(site.down, site.up) for site in plan.sites}
    if len(rates) == 1:
        site = plan.sites[0]
        return f"{len(plan.sites)}, {_rate(site.down)}/{_rate(site.up)} Mbit/s down/up"
    return ", ".join(f"{site.site} {_rate(site.down)}/{_rate(site.up)} Mbit/s" for site in plan.sites)


def _render_delays(plan: Plan) -> list[str]:
    """Rounds that come less often with overlap, but do not make training wait."""
    late = []
    for cost in plan.rows:
        if cost.name in plan.settings:
            due = costs.steps_between(plan.settings[cost.name], plan.step, cost.round + plan.path.rtt)
            steps = cost.every_overlap / plan.step
            late += [f"{steps:.0f} ({cost.name})"] * (steps > due + 0.5)
    return [f"  with overlap, rounds would come only every {', '.join(late)} steps"] if late else []


def _render_shares(plan: Plan) -> list[str]:
    """What each site carries in a round, if sites own different shares."""
    cost = next(row for row in plan.rows if row.shares)
    if max(cost.shares) - min(cost.shares) < 1e-9:
        return []
    rows = [["site", "", "owns", "MB up", "MB down"]]
    for site, share, up, down in zip(plan.sites, cost.shares, cost.bytes_up, cost.bytes_down, strict=True):
        rows.append([site.site, "", f"{share:.0%}", f"{up / 1e6:.1f}", f"{down / 1e6:.1f}"])
    return ["", f"a round of {cost.name} ({cost.settings})", *forms.table(rows)]


def _render_memory(plan: Plan) -> list[str]:
    rows = [["memory of a rank", "", "device", "host", "a step takes"]]
    for option in memory.rank_options(plan.model, plan.optimizer, plan.tokens, plan.element):
        rows.append([
            f"  {option.name}",
            "",
            _gigabytes(option.device),
            _gigabytes(option.offloaded) if option.offloaded else "",
            f"x {option.step_factor:.2f}" if option.step_factor != 1 else "",
        ])  # fmt: skip
    leaders = [["beside it, at a leader", "in vectors of float32", "host"]]
    for name, (bytes_of, held) in _leaders(plan).items():
        leaders.append(
            [f"  {name}", ", ".join(f"{part} {count:.2g}" for part, count in held.items()), _gigabytes(bytes_of)]
        )
    copy = memory.optimizer_copy(plan.model.parameters, plan.optimizer)
    joins = [
        f"  and {_gigabytes(copy)} for the optimizer's state while a site joins, there and at the member serving it"
    ]
    counted = [] if plan.tokens else ["  activations are not included: give --config and --tokens"]
    return ["", *forms.table(rows), *counted, "", *forms.table(leaders), *joins[: copy > 0]]


def _leaders(plan: Plan) -> dict[str, tuple[float, dict[str, float]]]:
    """Bytes and vectors of the leader with the largest share, by row."""
    found = {}
    for cost in plan.rows:
        if cost.name in plan.settings:
            settings, sites, largest = plan.settings[cost.name], len(plan.sites), max(cost.shares)
            bytes_of = memory.leader(settings, plan.model.parameters, sites, largest)
            found[cost.name] = bytes_of, memory.leader_vectors(settings, sites, largest)
    return found


# ---- comparison with a run ------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Beside:
    run: measured.Measured
    settings: Settings
    cost: Cost


def compare(plan: Plan, files: list[Path]) -> Beside:
    """Compares with the run's own codec and interval."""
    run = measured.read(files)
    settings = plan.settings.get("yours", plan.settings["collab"])
    settings = dataclasses.replace(settings, codec=run.codec, overlap=run.overlap, fragments=run.fragments)
    if run.between is not None and run.between > run.stall:
        settings = dataclasses.replace(settings, sync_every=max(run.between - run.stall, plan.step) * run.fragments)
    cost = costs.local_sgd("measured", settings, plan.sites, plan.path, plan.model, plan.step)
    return Beside(run, settings, cost)


def _pairs(beside: Beside) -> list[tuple[str, float, float]]:
    run, cost = beside.run, beside.cost
    stall = (cost.waits_overlap if beside.settings.overlap else cost.waits) or 0.0
    waited = stall / (1 - stall) * cost.every_seconds
    return [
        ("exchange, s", cost.exchange, run.exchange),
        ("round, s", cost.round, run.round),
        ("waits a round, s", waited, run.stall),
        ("MB sent a round", max(cost.bytes_up) / 1e6, run.bytes_sent / 1e6),
        ("MB received a round", max(cost.bytes_down) / 1e6, run.bytes_received / 1e6),
    ]


def render_measured(beside: Beside) -> list[str]:
    rows = [[f"{beside.run.codec}, {beside.run.rounds} warm rounds", "", "planned", "measured", "of the plan"]]
    for what, planned, seen in _pairs(beside):
        rows.append([what, "", f"{planned:.3g}", f"{seen:.3g}", f"{seen / planned:.2f}" if planned > 0 else ""])
    return ["", *forms.table(rows), "waits a round: measured with waits for slower sites, which a plan cannot know"]


def as_json(plan: Plan, beside: Beside | None) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "parameters": plan.model.parameters,
        "sites": [dataclasses.asdict(site) for site in plan.sites],
        "rtt_seconds": plan.path.rtt,
        "loss": plan.path.loss,
        "step_seconds": plan.step,
        "ranks": plan.ranks,
        "ways": [dataclasses.asdict(row) for row in plan.rows],
        "keep_fp16_not_counted": _not_counted(plan),
        "memory_rank": [
            dataclasses.asdict(each)
            for each in memory.rank_options(plan.model, plan.optimizer, plan.tokens, plan.element)
        ],
        "memory_joining": memory.optimizer_copy(plan.model.parameters, plan.optimizer),
        "memory_leader": {
            name: {"bytes": bytes_of, "vectors": held} for name, (bytes_of, held) in _leaders(plan).items()
        },
    }
    if beside is not None:
        answer["measured"] = {what: {"planned": planned, "measured": seen} for what, planned, seen in _pairs(beside)}
        answer["run"] = dataclasses.asdict(beside.run)
    return answer
