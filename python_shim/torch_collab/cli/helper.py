"""`collab helper`: a member without a model, which reduces for sites that cannot be dialled or have thin lines."""

from __future__ import annotations

import argparse
import signal
import socket
import threading
from datetime import timedelta
from typing import Any

from torch_collab import addresses, links, native
from torch_collab.cli import knobs

_LOOK = timedelta(seconds=0.5)


def add_to(parsers: Any) -> None:
    sub = parsers.add_parser("helper", help="reduce slices for the sites of a swarm, training nothing, until Ctrl-C")
    sub.add_argument("--coordinator", metavar="HOST:PORT", help="of the swarm (COLLAB_COORDINATOR)")
    sub.add_argument("--listen", metavar="HOST:PORT", help="where sites reach it (COLLAB_LISTEN)")
    sub.add_argument("--site", metavar="NAME", help="its name in the swarm (COLLAB_SITE); else: helper and the host's")
    sub.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    given = {name: getattr(arguments, name) for name in ("coordinator", "listen", "site")}
    given = {name: value for name, value in given.items() if value is not None}
    config = knobs.load(given)
    if not config.coordinator:
        raise ValueError("which swarm? give --coordinator HOST:PORT or set COLLAB_COORDINATOR")
    advertise = addresses.dial_address(config.advertise, config.listen, list(config.coordinator))
    config = knobs.load(given | {"advertise": advertise})
    site = config.site or f"helper-{socket.gethostname()}"[:64]
    choice = links.choose(config)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    server = native.serve_helper(config, site, links.make(config, config.advertise))
    print(f"collab: {site} helps the swarm of {','.join(config.coordinator)}; Ctrl-C ends it", flush=True)
    print(f"collab: {choice}", flush=True)
    while not stop.is_set():
        server.wait(_LOOK)
    server.leave()
    print("collab: helper ends", flush=True)
    return 0
