"""`collab lab`: a command in several sites on this machine, joined by an emulated wide-area network.

The work is done by `collab-lab-emulator`, which takes this process's place: one process to signal, one exit status. It
lies in the package (`torch_collab/bin`); TORCH_COLLAB_LAB_EMULATOR names another one, for development.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

_NAME = "collab-lab-emulator"
_OVERRIDE = "TORCH_COLLAB_LAB_EMULATOR"  # not COLLAB_...: those are knobs, and an unknown one is refused


def add_to(parsers: Any) -> None:
    """For `collab --help` only: all words after `lab` go to the emulator unread (see `main` of the command line)."""
    parsers.add_parser(
        "lab", help="run a command in several sites joined by an emulated wide-area network", add_help=False
    )


def emulator() -> Path:
    """The executable: the override's, the package's, else the one on PATH."""
    override = os.environ.get(_OVERRIDE)
    packaged = Path(__file__).resolve().parents[1] / "bin" / _NAME
    found = override or (str(packaged) if packaged.is_file() else shutil.which(_NAME))
    if not found:
        raise RuntimeError(
            f"{_NAME} is neither at {packaged} nor on PATH; install collab's wheel, or set {_OVERRIDE}=FILE "
            "[cli.no-lab]"
        )
    if not os.access(found, os.X_OK):
        raise RuntimeError(
            f"{found} is not an executable file{f'; {_OVERRIDE} names it' if override else ''} [cli.lab-not-executable]"
        )
    return Path(found)


def run(arguments: Sequence[str]) -> NoReturn:
    path = emulator()
    os.execv(path, [_NAME, *arguments])
