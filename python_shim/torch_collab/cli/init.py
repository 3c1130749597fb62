"""`collab init`: the file and the token of a new swarm, from which `collab run` starts every machine."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import shlex
import socket
from pathlib import Path
from typing import Any

from torch_collab import native
from torch_collab.cli import forms, keys, swarm_file, token
from torch_collab.network import addresses

_FILE = """\
# How the machines of this swarm are started: `collab run train.py` reads this file. Keys are the knobs of
# `collab config` in lower case; environment variables win over this file. Paths are relative to it.
version = {version}

[swarm] # the same on every machine: copy this file and the token
run = {run}
endpoint = {endpoint} # the first machine, as the others reach it
nnodes = {nnodes} # machines that training begins with; more may join later
coordinator_port = {coordinator_port}
token_file = {token_file}
state_dir = {state_dir} # the agreed model, kept across restarts; delete this folder to start over
# sync_every = 100
# codec = "fp16"

[site] # the machine of this name; ignored when `collab run --site` names another machine
name = {name}
first = true # it serves the endpoint
listen = {listen}
advertise = {advertise}
# nproc_per_node = "gpu"
"""


def add_to(parsers: Any) -> None:
    sub = forms.add(
        parsers,
        "init",
        "begin a swarm: write collab.toml and its token, and print what other machines run",
        "Writes collab.toml and the swarm's token. `collab run` starts every machine from collab.toml. Run it on the "
        "first machine, which the others must be able to reach.",
        ["collab init --endpoint paris.example.org --site paris"],
        {0: "both files are written", 1: "one cannot be written, or collab.toml already exists"},
    )
    sub.add_argument(
        "folder",
        metavar="FOLDER",
        nargs="?",
        default=".",
        help="where to write, created if needed (default: this folder)",
    )
    sub.add_argument(
        "--endpoint", metavar="HOST[:PORT]", help="this machine as the others reach it (default: its address, 29400)"
    )
    sub.add_argument("--site", metavar="NAME", help="this machine's name in the swarm (default: the host's)")
    sub.add_argument("--nnodes", metavar="N[:MAX]", default="2", help="machines to begin with (default: %(default)s)")
    sub.add_argument("--run", metavar="NAME", dest="name", help="name of the training (default: a random one)")
    sub.add_argument(
        "--token-file",
        metavar="FILE",
        help=f"the token's file: used if it exists, else created (default: FOLDER/{swarm_file.KEY})",
    )


def run(arguments: argparse.Namespace) -> int:
    with forms.usage("--nnodes"):
        swarm_file.check_torchrun("nnodes", arguments.nnodes)
    folder = Path(arguments.folder)
    path = folder / swarm_file.NAME
    if path.exists():
        raise ValueError(
            f"{path} already exists and is not overwritten: name another folder, or move it away [cli.init-exists]"
        )
    key = folder / swarm_file.KEY if arguments.token_file is None else Path(arguments.token_file)
    given = arguments.endpoint or _own_address()
    with forms.usage("--endpoint"):
        host, port = addresses.host_and_port(given)
    most = 65535 - len(swarm_file.PORTS)
    if not 1 <= port <= most:
        raise forms.WrongUsage(
            f"--endpoint: the ports are {port} and the two after it: expected 1..{most} [cli.init-ports]"
        )
    name = arguments.name or f"run-{secrets.token_hex(3)}"
    site = arguments.site or addresses.as_name(socket.gethostname())
    _check("--site", site=site)
    _check("--run", run=name)
    _check("--endpoint", advertise=host)
    if host == addresses.NOT_DIALABLE or addresses.is_wildcard(host):
        raise forms.WrongUsage(
            f"--endpoint: expected this machine as the others reach it, got {given!r} [cli.init-endpoint]"
        )
    text = _FILE.format(
        version=swarm_file.VERSION,
        run=_quoted(name),
        endpoint=_quoted(addresses.join_host_port(host, port)),
        nnodes=_quoted(arguments.nnodes),
        coordinator_port=port + 2,
        token_file=_quoted(_seen_from(folder, key)),
        state_dir=_quoted(swarm_file.STATE),
        name=_quoted(site),
        listen=_quoted(addresses.join_host_port("::" if ":" in host else "0.0.0.0", port + 1)),
        advertise=_quoted(host),
    )
    swarm_file.read(path, text)  # errors that the path causes are reported before anything is written
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{folder} cannot be made: {error.strerror} [cli.init-folder]") from None
    made = _key(key)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error.strerror} [cli.init-not-written]") from None
    _tell(path, key, made, addresses.join_host_port(host, port))
    return 0


def _check(option: str, **given: str) -> None:
    """A value that `collab run` would refuse for a knob is not written. Raises WrongUsage of the option."""
    with forms.usage(option) if option else contextlib.nullcontext():
        config = native.load_config({swarm_file.variable_of(knob): text for knob, text in given.items()}, {})
        if "token_file" in given:
            native.has_made_token(config.raw)


def _key(path: Path) -> bool:
    """Uses the token file at `path`, or makes it. Returns whether it was made."""
    if path.is_file():
        if wrong := keys.unreadable(str(path)):
            raise ValueError(f"{path} {wrong} [cli.init-key]")
        _check("", token_file=str(path))
        return False
    token.write(path, token.make())
    return True


def _tell(path: Path, key: Path, made: bool, endpoint: str) -> None:
    _, port = addresses.split_host_port(endpoint)
    elsewhere = [] if path.parent == Path() else ["--config", str(path)]
    here = shlex.join(["collab", "run", *elsewhere, "train.py"])
    ports = ", ".join(f"{port + i} ({what})" for i, what in enumerate(swarm_file.PORTS))
    print(f"wrote {path} and {key}, the swarm's token, which only you can read" if made else
          f"wrote {path}; the swarm's token is in {key}, which was already there")  # fmt: skip
    print(f"\nOn this machine, whose ports {ports} the others must be able to reach:\n  {here}")
    print(f"On every other machine, once {path.name} and {key.name} are there (send the token so that nobody else can "
          f"read it), with a NAME of its own:\n  collab run --site NAME train.py")  # fmt: skip
    state = path.parent / swarm_file.STATE
    if any(state.glob("*.collab")):
        print(f"\n{state} has models of an earlier run. To start over, delete that folder. To go on from them, set "
              f"`run` in {path.name} to that run's name; otherwise sites refuse them")  # fmt: skip
    print(f"\nPort {port} is torch's own store, which the token does not protect: let a firewall admit only these "
          "machines")  # fmt: skip


def _own_address() -> str:
    try:
        host = addresses.local_address_towards(addresses.ANYWHERE)
    except OSError as error:
        raise ValueError(
            f"this machine has no address that leads to others ({error}): give --endpoint HOST [cli.init-no-address]"
        ) from None
    return f"[{host}]" if ":" in host else host


def _seen_from(folder: Path, path: Path) -> str:
    """The token file's path as the file in that folder writes it."""
    return os.path.relpath(path, folder) if path.absolute().is_relative_to(folder.absolute()) else str(path.absolute())


def _quoted(text: str) -> str:
    return json.dumps(text)  # JSON strings are valid TOML basic strings
