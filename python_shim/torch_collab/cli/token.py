"""`collab token`: makes a swarm's token, and derives from it the password for the coordinator's page."""

from __future__ import annotations

import argparse
import hashlib
import os
import secrets
from pathlib import Path
from typing import Any

from torch_collab import native
from torch_collab.cli import forms, swarm_file

_PAGE_PURPOSE = "page password"  # the same label as in the core


def add_to(parsers: Any) -> None:
    sub = forms.add(
        parsers,
        "token",
        "make a swarm's token, for COLLAB_TOKEN or COLLAB_TOKEN_FILE",
        "Makes a random token. Every site of the swarm needs the same one. Anyone who has it can join.",
        ["collab token", "collab token --rotate swarm.key", "collab token --page-password swarm.key"],
        {0: "made", 1: "the file cannot be written, or existed already; or there is no token"},
    )
    place = sub.add_mutually_exclusive_group()
    place.add_argument(
        "--out",
        metavar="FILE",
        default=swarm_file.KEY,
        help="write it to a new file that only you can read, for COLLAB_TOKEN_FILE (default: %(default)s)",
    )
    place.add_argument("--print", action="store_true", dest="shown", help="show the token, but write no file")
    place.add_argument(
        "--rotate",
        metavar="FILE",
        help="put it in front of the token in this file; the old token is accepted until you remove its line",
    )
    place.add_argument(
        "--page-password",
        metavar="FILE",
        nargs="?",
        const="",
        help="show the password of the coordinator's page, made from the token in this file (default: "
        "COLLAB_TOKEN_FILE or COLLAB_TOKEN, else that of collab.toml). Anyone who has it can look, but cannot join",
    )


def make() -> str:
    """256 random bits, and a checksum by which the core recognises a generated token."""
    body = "clb_" + secrets.token_urlsafe(32)
    return body + hashlib.sha256(body.encode()).hexdigest()[:8]


def run(arguments: argparse.Namespace) -> int:
    if arguments.page_password is not None:
        print(page_password(arguments.page_password))
        return 0
    token = make()
    if arguments.rotate is not None:
        return rotate(Path(arguments.rotate), token)
    if arguments.shown:
        print(token)
        return 0
    write(Path(arguments.out), token)
    print(f"wrote {arguments.out}; copy it to every site and set COLLAB_TOKEN_FILE to its path there")
    return 0


def page_password(path: str) -> str:
    """The password of the token in this file, else of the environment's; of two tokens the first. Raises ValueError."""
    environment = {"COLLAB_TOKEN_FILE": path} if path else _token_variables()
    made = native.swarm_secrets(native.load_config(environment, {}).raw, _PAGE_PURPOSE)
    if not made:
        raise ValueError(
            f"name the file of the swarm's token, set COLLAB_TOKEN_FILE, or change to the folder of {swarm_file.NAME} "
            "[token.no-key-for-page]"
        )
    return made[0][:16].hex()


def _token_variables() -> dict[str, str]:
    """The token's variables, from the environment, else from the swarm's file in this folder."""
    names = ("COLLAB_TOKEN", "COLLAB_TOKEN_FILE")
    if given := {name: os.environ[name] for name in names if name in os.environ}:
        return given
    file = swarm_file.find(None)
    found = file.variables(file.entries(""), {}) if file else {}
    return {name: found[name].text for name in names if name in found}


def write(path: Path, token: str) -> None:
    """Writes a new file that only its owner can read. Raises ValueError with a message."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ValueError(
            f"{path} is a folder: name a file in it, such as {path / swarm_file.KEY} [token.folder]"
            if path.is_dir()
            else f"{path} already exists, and a token is not overwritten: name another file [token.exists]"
        ) from None
    except OSError as error:
        why = str(error.strerror) if path.parent.is_dir() else f"there is no folder {path.parent}"
        raise ValueError(f"{path} cannot be written: {why} [token.not-written]") from None
    with os.fdopen(file, "w", encoding="ascii") as stream:
        stream.write(token + "\n")


def rotate(path: Path, token: str) -> int:
    """Puts the new token first and the current one second, and drops an older one."""
    try:
        tokens = path.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read: {getattr(error, 'strerror', error)} [token.not-read]") from None
    if not tokens:
        raise ValueError(f"{path} is empty: make a token with `collab token --out` [token.empty-file]")
    fresh = path.with_name(path.name + ".new")
    try:
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
            stream.write(f"{token}\n{tokens[0]}\n")
        os.replace(fresh, path)
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error.strerror} [token.not-rotated]") from None
    print(
        f"wrote {path}: a new token, and below it the old one, which is still accepted. Copy the file to every site "
        "and coordinator; then remove its second line everywhere"
    )
    return 0
