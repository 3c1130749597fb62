"""`collab helper`: a member without a model, which reduces for sites that cannot be dialled or have thin lines."""

from __future__ import annotations

import argparse
import os
import socket
from datetime import timedelta
from typing import Any

from torch_collab import native
from torch_collab.cli import forms, knobs, swarm_file
from torch_collab.network import addresses, links

_LOOK = timedelta(seconds=0.5)


def add_to(parsers: Any) -> None:
    sub = forms.add(
        parsers,
        "helper",
        "reduce slices for the sites of a swarm, without training, until Ctrl-C",
        "Runs a member that trains no model, on a machine that all sites can dial. It reduces slices for sites that "
        "cannot be dialled or have slow lines.",
        ["collab helper --coordinator HOST:29500 --listen 0.0.0.0:29501"],
        {0: "ended by Ctrl-C or SIGTERM", 1: "no swarm is named, or it refuses the helper"},
    )
    sub.add_argument("--coordinator", metavar="HOST:PORT", help="the swarm's coordinator (COLLAB_COORDINATOR)")
    sub.add_argument("--listen", metavar="HOST:PORT", help="where sites reach it (COLLAB_LISTEN)")
    sub.add_argument("--site", metavar="NAME", help="its name in the swarm (COLLAB_SITE; default: helper-HOSTNAME)")
    swarm_file.add_option(sub)


def run(arguments: argparse.Namespace) -> int:
    given = {name: getattr(arguments, name) for name in ("coordinator", "listen", "site")}
    given = {name: value for name, value in given.items() if value is not None}
    # It needs a name of its own even if the file's [site] is for this machine: that is the site that trains here.
    given.setdefault("site", os.environ.get("COLLAB_SITE") or f"helper-{socket.gethostname()}"[:64])
    config = knobs.load_of_swarm(given, arguments.config, "give --coordinator HOST:PORT")
    advertise = addresses.dial_address(config.advertise, config.listen, list(config.coordinator))
    config = knobs.load(given | {"advertise": advertise}, arguments.config, dials=True)
    site = config.site
    choice = links.choose(config)
    stop = forms.ended()
    server = native.serve_helper(config.raw, site, links.make(config, config.advertise))
    print(f"collab: {site} helps the swarm of {','.join(config.coordinator)}; Ctrl-C ends it", flush=True)
    print(f"collab: {choice}", flush=True)
    while not stop.is_set():
        server.wait(_LOOK)
    server.leave()
    print("collab: helper ends", flush=True)
    return 0
