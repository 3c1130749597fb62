"""`torch_collab.Options`: the knobs as an object, for `init_process_group(..., pg_options=torch_collab.Options(...))`.

A field that is left at None is not given, so the environment variable or the default holds. A field that is given
wins over the environment. The fields are the rows of the knob table (`collab config` prints it). `codec` is a name
for both ways, or "UP/DOWN" for the deltas and for their mean, such as "int4/int8"; `error_feedback` puts what a codec
of 8 bits or fewer leaves out into the next round.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import timedelta


@dataclass(kw_only=True)
class Options:
    # Who we are and where the swarm is.
    run: str | None = None
    site: str | None = None
    site_index: int | None = None
    site_count: int | None = None
    init_from: str | None = None
    coordinator: str | None = None
    listen: str | None = None
    advertise: str | None = None
    transport: str | None = None
    connections: int | str | None = None
    # Links of the tcp transport.
    token: str | None = dataclasses.field(default=None, repr=False)
    token_file: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_ca: str | None = None
    insecure: bool | None = None
    congestion: str | None = None
    max_mbit_up: float | None = None
    max_mbit_down: float | None = None
    egress_gb: float | None = None
    # Rounds.
    sync_every: int | str | None = None
    codec: str | None = None
    error_feedback: bool | None = None
    outer: str | None = None
    outer_lr: float | None = None
    outer_momentum: float | None = None
    weight: str | None = None
    buffers: bool | None = None
    on_nonfinite: str | None = None
    shares: str | None = None
    chunk_kib: int | None = None
    join_optimizer: bool | None = None
    reseed: bool | None = None
    # Waits: seconds, a timedelta, or text with a unit such as "30s".
    join_timeout: float | str | timedelta | None = None
    round_timeout: float | str | timedelta | None = None
    straggler_grace: float | str | timedelta | None = None
    forget_after: float | str | timedelta | None = None
    link_grace: float | str | timedelta | None = None
    heartbeat: float | str | timedelta | None = None
    linger: float | str | timedelta | None = None
    # What is kept and told.
    state_dir: str | None = None
    save_every: int | None = None
    events: str | None = None
    log: str | None = None

    def pairs(self) -> dict[str, str]:
        """The given fields as the texts the knob table reads."""
        given: dict[str, str] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None:
                given[field.name] = _as_text(value)
        return given


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, timedelta):
        return f"{round(value.total_seconds() * 1000)}ms"
    if isinstance(value, float):
        return repr(value)
    return str(value)


def pairs_of(backend_options: object) -> dict[str, str]:
    """The options a script passed as `pg_options`, or nothing.

    Raises ValueError when they are another backend's.
    """
    if backend_options is None:
        return {}
    if isinstance(backend_options, Options):
        return backend_options.pairs()
    raise ValueError(
        f"collab: pg_options is a {type(backend_options).__qualname__}; the collab backend takes "
        "torch_collab.Options(...)"
    )
