"""The browser page of a coordinator that this process serves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch_collab import native

if TYPE_CHECKING:
    from torch_collab import _C

# Names of the commands' options, with underscores; also single options of --rdzv-conf.
OPTIONS = ("http", "http_cert", "http_key", "http_insecure", "objective", "leaderboard")


def serve(
    config: native.Settings, server: _C.CoordinatorServer, dialled: str, options: Mapping[str, str], join: str = ""
) -> _C.Page | None:
    """Serves the page; None if no page was asked for. `dialled`: how sites reach the coordinator. `join`: the command
    for another site, if it is not one that dials the coordinator. ValueError names the wrong option."""
    if not options.get("http"):
        return None
    return native.serve_page(
        config.raw,
        server,
        dialled,
        http=options["http"],
        insecure=options.get("http_insecure", "") in ("1", "true"),
        certificate=options.get("http_cert", ""),
        key=options.get("http_key", ""),
        objective=options.get("objective", ""),
        leaderboard=options.get("leaderboard", ""),
        join=join,
    )
