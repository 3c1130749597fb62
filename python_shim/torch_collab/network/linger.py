"""A coordinator stays until the other sites have left, at most COLLAB_LINGER."""

from __future__ import annotations

import time
from collections.abc import Callable

from torch_collab import log, native

_LOOK_SECONDS = 1.0


def linger(server: object, limit: float, began: float, others: Callable[[], list[str]] = list) -> None:
    """Waits for at most `limit` seconds after `began` (time.monotonic). `others`: agents that may bring sites back."""
    said = ""
    while True:
        left = began + limit - time.monotonic()
        reason = native.wait_until_empty(server, max(0.0, min(_LOOK_SECONDS, left)))  # type: ignore[arg-type]
        living = others()
        if reason is None and not living:
            return
        reason = reason or f"agents are still there: {', '.join(living)}"
        if left <= 0:
            log.warning(
                f"after {limit:.0f} s (COLLAB_LINGER) the coordinator stops although sites are still there: {reason} "
                "[coordinator.stops-early]"
            )
            return
        if reason != said:
            said = reason
            log.info(
                f"nothing trains here any more; the coordinator stays up to {limit:.0f} s (COLLAB_LINGER): {reason}"
            )
        if living:
            time.sleep(min(_LOOK_SECONDS, left) / 4)
