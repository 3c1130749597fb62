"""What a way of training costs on given lines: seconds a round, time spent waiting, bytes a day.

A round's `seconds` are its exchange (lines.py), one RTT for the commit, and the processor's work. Training waits one
RTT longer (ready, and the start). With overlap it waits only for a copy of the parameters and for the merge. Only one
round runs at a time, so a round that takes longer than the steps between two rounds delays the next one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from torch_collab import native
from torch_collab.native import Settings
from torch_collab.planning import codecs
from torch_collab.planning.lines import Between, Line, exchange, gloo_all_reduce
from torch_collab.planning.parameters import Model

# Seconds a parameter: for an exchange that no line bounds (bench_round.py on loopback), and for one pass over anchor
# and parameters (the outer step, a copy, a merge).
EXCHANGE_WORK = 5e-9
APPLY_WORK = 2.5e-9
DAY = 86400.0
_FORWARD = 1 / 3  # share of a step before DDP has gradients to send

_TIME = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_time(text: str, what: str) -> float:
    """Returns seconds. Raises ValueError if the unit is missing."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)", text.strip())
    seconds = float(found[1]) * _TIME[found[2]] if found else 0.0
    if seconds <= 0:
        raise ValueError(
            f"{what} {text!r}: expected a time above 0 with its unit, such as 0.3s or 300ms [cli.plan-costs]"
        )
    return seconds


def steps_between(settings: Settings, step: float, a_round: float) -> float:
    """Steps from one round to the next, of any fragment. With auto it is the period that the swarm's leader chooses for
    rounds of `a_round` seconds."""
    every = settings.sync_every
    if isinstance(every, str):
        return float(native.auto_period(step, a_round, settings.target_overhead, settings.overlap))
    if isinstance(every, int):
        return float(max(1, every // settings.fragments))
    return max(1.0, every / settings.fragments / step)


def settings_text(settings: Settings) -> str:
    every = settings.sync_every
    words = [
        settings.codec,
        f"every {every}" + (" steps" if isinstance(every, int) else "s" * isinstance(every, float)),
    ]
    words += [settings.outer_optimizer] * (settings.outer_optimizer != "average") + ["overlap"] * settings.overlap
    words += [f"{settings.fragments} fragments"] * (settings.fragments > 1)
    return ", ".join(words)


@dataclass(frozen=True)
class Cost:
    """The cost of one way of training. `waits` are shares of the whole time; None if that way does not exist."""

    name: str
    settings: str
    every_seconds: float  # seconds of training from one round to the next
    exchange: float  # seconds
    round: float
    waits: float
    waits_overlap: float | None
    every_overlap: float  # seconds of training from one round to the next, with overlap
    steps_a_second: float
    of_alone: float  # steps as a share of the steps without any exchange
    bytes_up: tuple[float, ...]  # for each site, in one exchange
    bytes_down: tuple[float, ...]
    gb_day_up: tuple[float, ...]
    gb_day_down: tuple[float, ...]
    shares: tuple[float, ...] = field(default=())


def alone(sites: int, step: float) -> Cost:
    nothing = (0.0,) * sites
    return Cost("never talking", "", step, 0, 0, 0, None, step, 1 / step, 1, nothing, nothing, nothing, nothing)


def gloo_ddp(lines: Sequence[Line], path: Between, parameters: int, step: float, ranks: int) -> Cost:
    """Each step's gradients travel as float32, while the backward pass (two thirds of a step) computes them."""
    seconds, volume = gloo_all_reduce(lines, path, 4.0 * parameters, ranks)
    whole = _FORWARD * step + max((1 - _FORWARD) * step, seconds)
    each = (volume,) * len(lines)
    day = (volume * DAY / whole / 1e9,) * len(lines)
    return Cost(
        "DDP over Gloo", "every step", step, seconds, seconds, 1 - step / whole, None, step, 1 / whole, step / whole,
        each, each, day, day,
    )  # fmt: skip


def local_sgd(name: str, settings: Settings, lines: Sequence[Line], path: Between, model: Model, step: float) -> Cost:
    parameters = math.ceil(model.parameters / settings.fragments)  # in one round
    kept = (model.kept(settings.keep_fp16) or 0) / settings.fragments
    up, down = (codecs.encoded(codec, parameters, kept) for codec in native.parse_codecs(settings.codec))
    sent = exchange(lines, path, up, down)
    on_lines = max(sent.seconds, EXCHANGE_WORK * parameters)
    a_round = on_lines + path.rtt + APPLY_WORK * parameters
    blocking = path.rtt + a_round

    def trains(overlap: bool) -> float:
        return steps_between(replace(settings, overlap=overlap), step, blocking) * step

    training = trains(overlap=False)
    overlapped = APPLY_WORK * parameters * (settings.fragments + 1)  # copies all, merges one fragment
    behind = max(trains(overlap=True), blocking)
    every, stall = (behind, overlapped) if settings.overlap else (training, blocking)
    whole = every + stall
    return Cost(
        name=name,
        settings=settings_text(settings),
        every_seconds=every,
        exchange=on_lines,
        round=a_round,
        waits=blocking / (training + blocking),
        waits_overlap=overlapped / (behind + overlapped),
        every_overlap=behind,
        steps_a_second=every / step / whole,
        of_alone=every / whole,
        bytes_up=sent.up,
        bytes_down=sent.down,
        gb_day_up=tuple(each * DAY / whole / 1e9 for each in sent.up),
        gb_day_down=tuple(each * DAY / whole / 1e9 for each in sent.down),
        shares=sent.shares,
    )
