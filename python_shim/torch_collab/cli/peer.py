"""The ports of a swarm, and whether another machine's can be reached from this one; nothing is sent."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence

from torch_collab.cli import forms, swarm_file
from torch_collab.network import addresses

_USUAL = dict(enumerate(swarm_file.PORTS, addresses.RENDEZVOUS_PORT))
_SECONDS = 5.0


def ports(peer: str, config: str | None) -> tuple[str, dict[int, str]]:
    """The host to check, and what listens at each of its ports. Raises ValueError."""
    host, *given = peer.split(",")
    if ":" in host and not host.endswith("]"):
        with forms.usage("--peer"):
            host, first = addresses.split_host_port(host)
        numbers = [str(first), *given]
    else:
        host, numbers = host.strip("[]"), given
    if not host or not all(number.isdigit() and 0 < int(number) < 65536 for number in numbers):
        raise forms.WrongUsage(f"--peer: expected HOST or HOST:PORT,PORT,..., got {peer!r} [cli.doctor-peer]")
    known = usual(config)
    return host, {int(number): known.get(int(number), "") for number in numbers} if numbers else known


def usual(config: str | None) -> dict[int, str]:
    """The ports in collab.toml, else those that `collab init` uses."""
    return _of_file(config) or _USUAL


def of_links(wanted: dict[int, str]) -> int:
    """The port where links are dialled: the known one, else the first that was named."""
    return next((port for port, what in wanted.items() if what == "links"), next(iter(wanted)))


def _of_file(config: str | None) -> dict[int, str]:
    """The first machine's ports."""
    file = swarm_file.find(config)
    if file is None or "endpoint" not in file.swarm:
        return {}
    entries = file.entries("")
    found = {addresses.host_and_port(entries["endpoint"].text)[1]: "rendezvous"}
    if "listen" in entries:
        found[addresses.split_host_port(entries["listen"].text)[1]] = "links"
    if "coordinator_port" in entries:
        found[int(entries["coordinator_port"].text)] = "coordinator"
    return {port: what for port, what in found.items() if port}


def try_ports(host: str, wanted: dict[int, str]) -> Iterator[tuple[int, bool, str]]:
    """For each port: whether it accepts a connection, and what that means."""
    try:
        found = sorted({str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)})
    except OSError as error:
        yield 0, False, f"{host} has no address here: {error.strerror}"
        return
    for port, what in wanted.items():
        where = f"port {port} of {host}" + (f" ({what})" if what else "")
        yield port, *_try(host, port, where, found)


def _try(host: str, port: int, where: str, found: Sequence[str]) -> tuple[bool, str]:
    try:
        socket.create_connection((host, port), _SECONDS).close()
    except ConnectionRefusedError:
        return False, f"{where} is refused: the machine is up, but nothing listens there; is the swarm running?"
    except TimeoutError:
        return (
            False,
            f"{where} does not answer within {_SECONDS:.0f} s ({', '.join(found)}): a firewall, or the wrong address",
        )
    except OSError as error:
        return False, f"{where} cannot be reached: {error.strerror or error}"
    return True, f"{where} can be reached"
