"""How fast bytes travel between sites: the payload's share of a line, the sites' shares of the vector, and Gloo's rate.

The constants are fitted to what `tests/bench/bench_wan.py` measured (its table is in tests/bench/README.md); each line
of that table is met within 4 % for collab, within 10 % for Gloo.

    exchange of collab = longest of volume / (rate * 0.95 * (1 - 3 loss)) over all lines and directions, + 1.5 RTT
    all-reduce of Gloo = volume / rate', of the slowest line, where without loss
                         rate' = rate * 0.95 * W / (W + rate * RTT), W = 19.3 Mbit (2.3 MiB on their way at a time)
                         and from 0.1 % of loss on at most 4.28 Mbit * (loss / 0.1 %)^-0.105 in an RTT; between, in
                         proportion

0.95 is the payload's share of IP packets (1448 of 1500 bytes, and acknowledgements flow back). BBR keeps its rate in
spite of loss, and lost packets are sent again. The RTTs are for the start, the last means and the owners' turnaround.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from torch_collab import native

PAYLOAD = 0.95
RESENT = 3.0  # of the rate, for each part that is lost
START_RTTS = 1.5
GLOO_WINDOW = 19.3e6  # bits in flight
GLOO_LOSSY = 4.28e6  # bits in an RTT, at most, at this loss:
GLOO_LOSS = 0.001
GLOO_FALL = -0.105
MOST_LOSS = 0.15  # BBR slows down beyond that


@dataclass(frozen=True)
class Line:
    """A site's access line; rates in bit/s of IP packets, headers included."""

    site: str
    down: float
    up: float
    dialable: bool = True  # otherwise it owns no part of the vector


@dataclass(frozen=True)
class Between:
    """The network path between every pair of sites."""

    rtt: float  # seconds
    loss: float = 0.0  # of packets, in each direction


@dataclass(frozen=True)
class Exchange:
    seconds: float
    up: tuple[float, ...]  # bytes that each site sends, and receives
    down: tuple[float, ...]
    shares: tuple[float, ...]  # the share of the vector that each site owns


def parse_rates(text: str, what: str) -> tuple[float, float]:
    """`100/20` is 100 Mbit/s down and 20 up, `100` is both. Returns bit/s. Raises ValueError."""
    parts = text.split("/")
    try:
        rates = [float(part) for part in parts]
    except ValueError:
        rates = []
    if not 1 <= len(rates) <= 2 or not all(0 < rate < 1e7 for rate in rates):
        raise ValueError(
            f"{what}: expected DOWN/UP in Mbit/s as plain numbers, such as 100/20, got {text!r} [cli.plan-sites]"
        )
    return rates[0] * 1e6, rates[-1] * 1e6


def parse_site(text: str, default: tuple[float, float] | None) -> Line:
    """NAME[:DOWN/UP][,nat][,queue=MS], as `collab lab` reads it. Raises ValueError."""
    name, *options = text.split(",")
    name, _, rates = name.partition(":")
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}", name):
        raise ValueError(f"--sites {text}: expected NAME:DOWN/UP[,nat] or the number of sites [cli.plan-sites]")
    for option in options:
        if option != "nat" and not option.startswith("queue="):
            raise ValueError(
                f"--sites {text}: expected nat or queue=MS behind the comma, got {option!r} [cli.plan-sites]"
            )
    if not rates and default is None:
        raise ValueError(
            f"--sites {text} names no rates: write {name}:100/20 (Mbit/s down/up), or give --line 100/20 "
            "[cli.plan-sites]"
        )
    down, up = parse_rates(rates, f"--sites {text}") if rates else default or (0.0, 0.0)
    return Line(name, down, up, "nat" not in options)


def parse_sites(texts: Sequence[str], line: str | None) -> tuple[Line, ...]:
    """`2` with one line for all sites, or their names. Raises ValueError."""
    default = parse_rates(line, "--line") if line is not None else None
    if len(texts) == 1 and texts[0].isdigit():
        count = int(texts[0])
        if not 2 <= count <= 4096:
            raise ValueError(f"--sites {count}: expected at least 2 (4096 at most) [cli.plan-sites]")
        if default is None:
            raise ValueError(f"--sites {count} needs --line DOWN/UP in Mbit/s, such as --line 100/20 [cli.plan-sites]")
        return tuple(Line(f"s{index}", *default) for index in range(count))
    sites = tuple(parse_site(text, default) for text in texts)
    names = [site.site for site in sites]
    if len(sites) < 2:
        raise ValueError(f"--sites {' '.join(texts)}: expected at least 2 sites [cli.plan-sites]")
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"--sites: {twice} is there twice [cli.plan-sites]")
    return sites


def payload_rate(rate: float, loss: float) -> float:
    """bit/s of collab's payload on a line of this rate."""
    return rate * PAYLOAD * (1 - RESENT * loss)


def exchange(lines: Sequence[Line], path: Between, delta: float, mean: float) -> Exchange:
    """An exchange with so many encoded bytes for a site's delta, and for the mean. Raises ValueError."""
    if not any(line.dialable for line in lines):
        raise ValueError(
            "all sites are behind NAT, so nobody can own a part of the vector: one must be reachable [cli.plan-sites]"
        )
    rates = [(payload_rate(line.up, path.loss), payload_rate(line.down, path.loss), line.dialable) for line in lines]
    takes, parts = native.plan_exchange(rates, mean / delta)
    shares, up, down = zip(*parts, strict=True)
    return Exchange(
        delta * 8 * takes + START_RTTS * path.rtt,
        tuple(delta * volume for volume in up),
        tuple(delta * volume for volume in down),
        shares,
    )


def gloo_rate(rate: float, path: Between) -> float:
    """bit/s of one all-reduce over Gloo's single connection."""
    clean = rate * PAYLOAD * GLOO_WINDOW / (GLOO_WINDOW + rate * path.rtt)
    if path.loss == 0 or path.rtt == 0:
        return clean
    lossy = GLOO_LOSSY / path.rtt * math.pow(max(path.loss, GLOO_LOSS) / GLOO_LOSS, GLOO_FALL)
    part = min(path.loss / GLOO_LOSS, 1.0)
    return 1 / ((1 - part) / clean + part / min(clean, lossy))


def gloo_all_reduce(lines: Sequence[Line], path: Between, size: float, ranks: int) -> tuple[float, float]:
    """(seconds, bytes each line carries in each direction) of a ring over all ranks, a site's ranks side by side."""
    world = len(lines) * ranks
    volume = 2 * (world - 1) / world * size
    slowest = min(min(line.up, line.down) for line in lines)
    return volume * 8 / gloo_rate(slowest, path), volume
