"""The page for a browser of a coordinator that this process serves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch_collab import native

if TYPE_CHECKING:
    from torch_collab import _C

# As the commands' options are called, with underscores; one of --rdzv-conf each.
OPTIONS = ("http", "http_cert", "http_key", "http_insecure", "objective", "leaderboard")


def serve(
    config: native.Settings, server: _C.CoordinatorServer, dialled: str, options: Mapping[str, str], join: str = ""
) -> _C.Page | None:
    """None where no page is asked for. `dialled`: how sites reach the coordinator; `join`: the command for another
    site, where it is not one that dials it. ValueError names the option that is wrong."""
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
