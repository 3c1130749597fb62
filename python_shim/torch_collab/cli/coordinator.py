"""`collab coordinator`: decides who takes part in rounds, for sites that are worlds of their own."""

from __future__ import annotations

import argparse
from typing import Any

from torch_collab import log, native
from torch_collab.cli import forms, knobs, page, swarm_file
from torch_collab.formatting import counted
from torch_collab.network import addresses, links
from torch_collab.network.page import serve as serve_page


def add_to(parsers: Any) -> None:
    sub = forms.add(
        parsers,
        "coordinator",
        "serve the coordinator until Ctrl-C",
        "Decides which sites take part in rounds, for sites that are worlds of their own. It handles no tensors.",
        [
            "collab coordinator --listen 0.0.0.0:29500 --sites 2",
            "collab coordinator --listen 0.0.0.0:29500 --http 127.0.0.1:8080",
            "collab coordinator --listen 0.0.0.0:29500 --http 0.0.0.0:8443 --http-cert page.pem --http-key page.key",
        ],
        {0: "ended by Ctrl-C or SIGTERM", 1: "it cannot listen there, or a value is refused"},
    )
    sub.add_argument("--listen", metavar="HOST:PORT", required=True, help="where sites reach it, e.g. 0.0.0.0:29500")
    sub.add_argument("--sites", metavar="N", type=int, help="round 0 waits for this many sites (COLLAB_MIN_SITES)")
    page.add_options(sub)
    swarm_file.add_option(sub)


def run(arguments: argparse.Namespace) -> int:
    shown = page.options_of(arguments)
    given = {"listen": arguments.listen}
    if arguments.sites is not None:
        given["min_sites"] = str(arguments.sites)
    config = knobs.load(given, arguments.config)
    host, _ = addresses.split_host_port(arguments.listen)
    log.set_source("coordinator", None)
    choice = links.choose(config)
    stop = forms.ended()
    server = native.serve_coordinator(config.raw, links.make(config, config.advertise), arguments.listen)
    where = dialled = server.address
    if addresses.is_wildcard(host) and config.advertise in ("", addresses.NOT_DIALABLE):
        port = addresses.split_host_port(where)[1]
        where, dialled = f"port {port} on every address of this machine", f"HOST:{port}"
    served = serve_page(config, server, dialled, shown)
    print(f"collab: coordinator of run {config.run!r} at {where}, waiting for "
          f"{counted(config.min_sites, 'site')}; Ctrl-C ends it", flush=True)  # fmt: skip
    print(f"collab: {choice}", flush=True)
    if served is not None:
        print(f"collab: {served.announcement}", flush=True)
    if config.coordinator:
        print(
            f"collab: COLLAB_COORDINATOR={','.join(config.coordinator)} applies to sites and is not used here",
            flush=True,
        )
    while not stop.wait(0.5):
        pass
    if served is not None:
        served.close()
    server.close()
    print("collab: coordinator ends", flush=True)
    return 0
