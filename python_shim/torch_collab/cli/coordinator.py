"""`collab coordinator`: decides who takes part in rounds, for sites that are worlds of their own."""

from __future__ import annotations

import argparse
from typing import Any

from torch_collab import log, native
from torch_collab.cli import forms, knobs, swarm_file
from torch_collab.network import addresses, links


def add_to(parsers: Any) -> None:
    sub = forms.add(
        parsers,
        "coordinator",
        "serve the coordinator until Ctrl-C",
        "Decides who takes part in rounds, for sites that are worlds of their own. It touches no tensor.",
        [
            "collab coordinator --listen 0.0.0.0:29500 --sites 2",
            "collab coordinator --listen 0.0.0.0:29500 --http 127.0.0.1:8080",
            "collab coordinator --listen 0.0.0.0:29500 --http 0.0.0.0:8443 --http-cert page.pem --http-key page.key",
        ],
        {0: "ended by Ctrl-C or SIGTERM", 1: "it cannot listen there, or a value is refused"},
    )
    sub.add_argument("--listen", metavar="HOST:PORT", required=True, help="where sites reach it, e.g. 0.0.0.0:29500")
    sub.add_argument("--sites", metavar="N", type=int, help="round 0 waits for this many sites (COLLAB_MIN_SITES)")
    sub.add_argument(
        "--http",
        metavar="HOST:PORT",
        help="serve a read-only page for a browser there, e.g. 127.0.0.1:8080; port 0 takes a free one",
    )
    sub.add_argument(
        "--http-cert",
        metavar="FILE",
        default="",
        help="serve the page over HTTPS with this certificate (PEM, its chain after it)",
    )
    sub.add_argument("--http-key", metavar="FILE", default="", help="the private key of --http-cert (PEM)")
    sub.add_argument("--http-insecure", action="store_true", help="let other machines reach the page, in the clear")
    sub.add_argument("--objective", metavar="TEXT", default="", help="what the run is for, in your words, for the page")
    sub.add_argument(
        "--leaderboard",
        metavar="FILE",
        default="",
        help="keeps who has contributed how much, for the page, across restarts",
    )
    swarm_file.add_option(sub)


def run(arguments: argparse.Namespace) -> int:
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
        where, dialled = f"port {port} of every address of this machine", f"HOST:{port}"
    page = _serve_page(arguments, config, server, dialled)
    print(f"collab: coordinator of run {config.run!r} at {where}, waiting for {config.min_sites} "
          f"site{'s' if config.min_sites != 1 else ''}; Ctrl-C ends it", flush=True)  # fmt: skip
    print(f"collab: {choice}", flush=True)
    if page is not None:
        print(f"collab: {page.announcement}", flush=True)
    if config.coordinator:
        print(f"collab: COLLAB_COORDINATOR={','.join(config.coordinator)} is for sites, and not used here", flush=True)
    while not stop.wait(0.5):
        pass
    if page is not None:
        page.close()
    server.close()
    print("collab: coordinator ends", flush=True)
    return 0


def _serve_page(arguments: argparse.Namespace, config: native.Settings, server: Any, dialled: str) -> Any:
    """None without --http."""
    if arguments.http is None:
        return None
    return native.serve_page(
        config.raw,
        server,
        dialled,
        http=arguments.http,
        insecure=arguments.http_insecure,
        certificate=arguments.http_cert,
        key=arguments.http_key,
        objective=arguments.objective,
        leaderboard=arguments.leaderboard,
    )
