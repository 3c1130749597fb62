"""The line to another machine, measured with collab's own links: `collab doctor --peer` here, `--answer` there."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from dataclasses import asdict, dataclass
from datetime import timedelta

from torch_collab import native
from torch_collab.cli import forms
from torch_collab.network import addresses, links

ANSWER = "collab doctor --answer"


@dataclass(frozen=True)
class Figures:
    peer: str  # HOST:PORT
    transport: str
    seconds: float
    round_trip_ms: float  # median
    mbit_to_peer: float  # megabit (10^6) a second of payload
    mbit_from_peer: float
    own_port: int | None  # the port that the peer has dialled; None: it was not asked to
    not_dialled: str  # why dialling it failed, or ""

    def as_json(self) -> dict[str, object]:
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"to {self.peer}: round trip {self.round_trip_ms:.3g} ms, {self.mbit_to_peer:.3g} Mbit/s there, "
            f"{self.mbit_from_peer:.3g} Mbit/s back (over {self.transport}, {self.seconds:g} s)"
        )


def measure(config: native.Settings, host: str, port: int, seconds: float) -> Figures:
    """Measures the line. Raises ValueError, OSError or RuntimeError with a message if nobody answers."""
    where = addresses.join_host_port(host, port)
    dialled = config.advertise != addresses.NOT_DIALABLE
    transport = links.make(config, "")
    told = native.measure_line(transport, where, timedelta(seconds=seconds), config.listen if dialled else "")
    return Figures(
        where,
        transport["kind"],
        seconds,
        told["round_trip_ms"],
        told["mbit_up"],
        told["mbit_down"],
        addresses.split_host_port(told["own_address"])[1] if dialled else None,
        told["not_dialled"],
    )


def answer(config: native.Settings, ports: dict[int, str]) -> int:
    """Runs until Ctrl-C: answers a measuring doctor at the port for links, and accepts connections at the others."""
    host, own = addresses.split_host_port(config.listen)
    measured = own or next(port for port, what in ports.items() if what == "links")
    transport = links.make(config, "")
    stop = forms.ended()
    with contextlib.ExitStack() as held:
        where = {measured: "links"} | {port: what for port, what in ports.items() if what not in ("links", "")}
        answerer = native.answer_line(transport, addresses.join_host_port(host, measured))
        for port in where.keys() - {measured}:
            held.enter_context(_open_port(host, port))
        named = ", ".join(f"{port} ({what})" for port, what in where.items())
        print(
            f"collab: answers at ports {named}; run `collab doctor --peer` on another machine; Ctrl-C ends it",
            flush=True,
        )
        while not stop.wait(0.5):
            pass
        del answerer
    return 0


def _open_port(host: str, port: int) -> socket.socket:
    """Accepts connections and closes them. Raises OSError that names the port."""
    try:
        server = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        # Python adds an address to the system's message.
        why = os.strerror(error.errno) if error.errno else error
        raise OSError(
            f"collab: port {port} cannot be opened here: {why}; {ANSWER} needs the swarm's ports for itself: end the "
            "process that uses them [cli.doctor-answer]"
        ) from None

    def serve() -> None:
        with contextlib.suppress(OSError):  # the socket is closed at the end
            while True:
                server.accept()[0].close()

    threading.Thread(target=serve, daemon=True).start()
    return server
