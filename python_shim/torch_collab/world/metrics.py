"""The metrics that a script logs (`torch_collab.log_metrics`), written to the site's events beside its rounds."""

from __future__ import annotations

import errno
import json
import math
import os
import stat
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch_collab import log

if TYPE_CHECKING:
    from torch_collab import _C
    from torch_collab.world.topology import WorldInfo

_MOST = 64  # names in all
_LONGEST = 128  # characters in a name
_LOSS = "loss"  # the metric that the coordinator gets with the next round


class Metrics:
    """The last values of one generation's metrics."""

    def __init__(self, info: WorldInfo) -> None:
        self._is_leader = info.is_leader
        self._file = info.config.events_file
        self._values: dict[str, float] = {}
        self._round: int | None = None  # the round after which they were last written

    def note(self, values: Mapping[str, Any], session: _C.Session | None) -> None:
        """Replaces earlier values of the same names. Raises ValueError or TypeError."""
        taken = {_name(name): _number(name, value) for name, value in values.items()}
        if len(self._values.keys() | taken.keys()) > _MOST:
            raise ValueError(
                f"collab: log_metrics() takes at most {_MOST} names, over all its calls [capture.metrics-many]"
            )
        if session is not None:
            self.write(session)  # of a round that has ended meanwhile, with the values that it saw
            if self._round is None:
                self._round = session.status().round
            if _LOSS in taken and self._is_leader:
                session.note_loss(taken[_LOSS])
        self._values.update(taken)

    def write(self, session: _C.Session) -> None:
        """Writes the event `metrics`, once after each round."""
        if not (self._values and self._is_leader and self._file):
            return
        now = session.status()
        if self._round is None:  # values were logged before the site was in the swarm
            self._round = now.round
        if now.round <= self._round:
            return
        self._round = now.round
        event = {
            "t": round(time.time(), 6),
            "site": now.site,
            "event": "metrics",
            "round": now.round,
            "step": now.steps,
            "metrics": {name: value if math.isfinite(value) else None for name, value in self._values.items()},
        }
        try:
            _append(self._file, json.dumps(event) + "\n")
        except OSError as error:
            log.warn_once(
                f"COLLAB_EVENTS_FILE: metrics cannot be written to {self._file}: {error.strerror} "
                "[capture.metrics-lost]"
            )


def _append(path: str, line: str) -> None:
    """Appends with one write, because other processes may append to the same file. Raises OSError if the path has
    become a link or a pipe."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        os.write(file, line.encode())
    finally:
        os.close(file)


def _name(name: object) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST:
        raise ValueError(
            f"collab: log_metrics() got the name {name!r}, expected a string of 1 to {_LONGEST} characters "
            "[capture.metrics-name]"
        )
    return name


def _number(name: str, value: Any) -> float:
    try:
        return float(value.detach() if hasattr(value, "detach") else value)  # torch warns if a loss has gradients
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(
            f"collab: log_metrics() got a {type(value).__name__} for {name!r}, expected a number or a tensor with one "
            "element [capture.metrics-value]"
        ) from None
