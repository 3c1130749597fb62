"""How fast bytes get from site to site: a line's share that is payload, who owns how much, and what Gloo makes of it.

The constants are fitted to what `tests/bench/bench_wan.py` measured (its table is in tests/bench/README.md); each line
of that table is met within 4 % for collab, within 10 % for Gloo.

    exchange of collab = longest of volume / (rate * 0.95 * (1 - 3 loss)) over all lines and directions, + 1.5 RTT
    all-reduce of Gloo = volume / rate', of the slowest line, where without loss
                         rate' = rate * 0.95 * W / (W + rate * RTT), W = 19.3 Mbit (2.3 MiB on their way at a time)
                         and from 0.1 % of loss on at most 4.28 Mbit * (loss / 0.1 %)^-0.105 in an RTT; between, in
                         proportion

0.95 is what is payload of IP packets (1448 of 1500 bytes, acknowledgements on the way back); BBR keeps its rate in
spite of loss, and what is lost is sent again; the RTTs are the start, the last means and the owners' turn.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

PAYLOAD = 0.95
RESENT = 3.0  # of the rate, for each part that is lost
START_RTTS = 1.5
GLOO_WINDOW = 19.3e6  # bits on their way
GLOO_LOSSY = 4.28e6  # bits an RTT, at most, at this loss:
GLOO_LOSS = 0.001
GLOO_FALL = -0.105
MOST_LOSS = 0.15  # BBR gives way beyond that

_WORTH_MOVING = 1.1  # as core/protocol/allocation: shares move where that is gained,
_LEAST_OF_EQUAL = 20  # and who would own less than this part of an equal share owns nothing


@dataclass(frozen=True)
class Line:
    """A site's access line; rates in bit/s of IP packets, headers included."""

    site: str
    down: float
    up: float
    dialable: bool = True  # else it owns no part of the vector


@dataclass(frozen=True)
class Between:
    """What every pair of sites has between them."""

    rtt: float  # seconds
    loss: float = 0.0  # of packets, in each direction


@dataclass(frozen=True)
class Exchange:
    seconds: float
    up: tuple[float, ...]  # bytes that each site sends, and receives
    down: tuple[float, ...]
    shares: tuple[float, ...]  # of the vector that each site owns


def parse_rates(text: str, what: str) -> tuple[float, float]:
    """`100/20` is 100 Mbit/s down and 20 up, `100` both. In bit/s. Raises ValueError."""
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
    """NAME[:DOWN/UP][,nat][,queue=MS], as `collab lab` takes it. Raises ValueError."""
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
    """`2` with a line for all, or names. Raises ValueError."""
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
    """bit/s of collab's payloads, of a line's rate."""
    return rate * PAYLOAD * (1 - RESENT * loss)


@dataclass(frozen=True)
class _Straight:
    """A time as a function of the share owned: with none, and what a whole one adds."""

    none: float
    slope: float

    def at(self, share: float) -> float:
        return self.none + self.slope * share


class _Site:
    """Both directions of a site, in seconds for one encoded delta, as functions of its share."""

    def __init__(self, line: Line, sites: int, mean_ratio: float, loss: float) -> None:
        self.volume_up = _Straight(1, (sites - 1) * mean_ratio - 1)
        self.volume_down = _Straight(mean_ratio, sites - 1 - mean_ratio)
        self.times = [
            _Straight(volume.none / rate, volume.slope / rate)
            for volume, rate in (
                (self.volume_up, payload_rate(line.up, loss)),
                (self.volume_down, payload_rate(line.down, loss)),
            )
        ]
        self.most = 1.0 if line.dialable else 0.0
        up, down = self.times
        ends = [0.0, self.most]
        if up.slope != down.slope and 0 < (at := (down.none - up.none) / (up.slope - down.slope)) < self.most:
            ends.append(at)
        self.least_time = min(map(self.worst, ends))

    def worst(self, share: float) -> float:
        return max(time.at(share) for time in self.times)

    def within(self, time: float) -> tuple[float, float]:
        """The shares that keep both directions within a time; below the least time that is possible, those that take
        that."""
        time = max(time, self.least_time)
        least, most = 0.0, self.most
        for line in self.times:
            if line.slope > 0:
                most = min(most, (time - line.none) / line.slope)
            elif line.slope < 0:
                least = max(least, (time - line.none) / line.slope)
        least = min(max(least, 0.0), self.most)
        return least, min(max(most, least), self.most)


def _filled(sites: Sequence[_Site]) -> list[float]:
    """Shares, in all 1, with which the slowest direction is done soonest: all lines are filled to one level."""
    low, high = 0.0, max(site.worst(1.0) for site in sites)
    for _ in range(100):
        level = (low + high) / 2
        if sum(site.within(level)[1] for site in sites) >= 1:
            high = level
        else:
            low = level
    ranges = [site.within(high) for site in sites]
    least, most = (sum(ends) for ends in zip(*ranges, strict=True))
    part = (1 - least) / (most - least) if most > least else 0.0
    shares = [a + (b - a) * part for a, b in ranges]
    owners = sum(share > 0 for share in shares)
    kept = [share if share >= 1 / (_LEAST_OF_EQUAL * owners) else 0.0 for share in shares]
    return [share / sum(kept) for share in kept]


def exchange(lines: Sequence[Line], path: Between, delta: float, mean: float) -> Exchange:
    """Of a delta of so many encoded bytes a site, and as many of their mean. Raises ValueError."""
    if not any(line.dialable for line in lines):
        raise ValueError(
            "all sites are behind NAT, so nobody can own a part of the vector: one must be reachable [cli.plan-sites]"
        )
    sites = [_Site(line, len(lines), mean / delta, path.loss) for line in lines]
    dialable = sum(line.dialable for line in lines)
    shares = [1 / dialable if line.dialable else 0.0 for line in lines]

    def takes(owned: Sequence[float]) -> float:
        return max(site.worst(share) for site, share in zip(sites, owned, strict=True))

    filled = _filled(sites)
    if takes(filled) * _WORTH_MOVING < takes(shares):
        shares = filled
    both = list(zip(sites, shares, strict=True))
    return Exchange(
        delta * 8 * takes(shares) + START_RTTS * path.rtt,
        tuple(delta * site.volume_up.at(share) for site, share in both),
        tuple(delta * site.volume_down.at(share) for site, share in both),
        tuple(shares),
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
    """(seconds, bytes each line carries in each direction) of a ring over all ranks, those of a site side by side."""
    world = len(lines) * ranks
    volume = 2 * (world - 1) / world * size
    slowest = min(min(line.up, line.down) for line in lines)
    return volume * 8 / gloo_rate(slowest, path), volume
