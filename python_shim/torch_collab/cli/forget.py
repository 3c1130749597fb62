"""`collab forget SITE...`: the operator's word that these sites will not come."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from torch_collab import native
from torch_collab.cli import forms, knobs, status, swarm_file
from torch_collab.network import addresses, links


def add_to(parsers: Any) -> None:
    sub = forms.add(
        parsers,
        "forget",
        "declare that sites will not come back, so that the sites that wait for them can go on",
        "If only a minority of the sites that last agreed is left, those sites keep training and wait for the others. "
        "This command tells them that the missing sites will not come. They then go on without them, as another run. A "
        "missing site that comes back joins them. `collab status` and the sites' logs say which sites are missing. If "
        "the coordinator is taken from collab.toml, the command tells the first machine's coordinator and that of this "
        "machine's own site.",
        ["collab forget tokyo osaka HOST:29500"],
        {0: "a coordinator has accepted it", 1: "none has: no site waits for them, or no coordinator answers"},
        usage="collab forget [OPTION ...] SITE [SITE ...] [HOST:PORT[,HOST:PORT...]]",
    )
    sub.add_argument(
        "sites_and_coordinators",
        metavar="SITE",
        nargs="+",
        help="a missing site; after the last one, the coordinators to tell, if COLLAB_COORDINATOR is not set",
    )
    sub.add_argument(
        "--timeout", metavar="SECONDS", type=float, default=5.0, help="for each coordinator (default: %(default)s)"
    )
    swarm_file.add_option(sub)


def run(arguments: argparse.Namespace) -> int:
    """0 if a coordinator has accepted it."""
    sites, given = split(arguments.sites_and_coordinators)
    how = "name its coordinators after the sites (HOST:PORT)"
    config = knobs.load_of_swarm({"coordinator": given} if given else {}, arguments.config, how)
    told = list(config.coordinator)
    own = knobs.of_this_machine(config, arguments.config)
    transport = links.make(config, "")
    if own:
        with contextlib.suppress(OSError, RuntimeError):  # there is none here, or it belongs to another run
            status.ask(transport, {own: config.run}, timedelta(seconds=arguments.timeout))
            told.append(own)

    def tell(address: str) -> tuple[bool | None, str]:
        try:
            return native.tell_forget(transport, address, sites, arguments.timeout)
        except (OSError, RuntimeError) as error:
            return None, f"no answer ({str(error).removeprefix('collab: ')})"

    # Tell all of them, because a site may wait at any of them.
    with ThreadPoolExecutor(len(told)) as pool:
        answers = list(pool.map(tell, told))
    for address, (_, text) in zip(told, answers, strict=True):
        print(f"{address}: {text}")
    if all(taken is None for taken, _ in answers):
        raise ConnectionError(
            "nobody was told, because no coordinator answers. Are they running, with the same token? [cli.nobody-told]"
        )
    return 0 if any(taken for taken, _ in answers) else 1


def split(sites_and_coordinators: Sequence[str]) -> tuple[list[str], str]:
    """The sites, and the addresses that follow them, if there are any."""
    *sites, last = sites_and_coordinators
    if not sites:
        return [last], ""
    try:
        for address in last.split(","):
            addresses.split_host_port(address)
    except ValueError:
        return [*sites, last], ""
    return sites, last
