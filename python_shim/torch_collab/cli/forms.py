"""Shared by the commands: the layout of `--help`, and the end by a signal."""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import signal
import textwrap
import threading
from collections.abc import Iterator, Sequence
from typing import Any

# Exit codes of every command; a command says more about 0 and 1.
_ALWAYS = {2: "wrong usage", 130: "ended by Ctrl-C"}


class WrongUsage(ValueError):
    """The request makes no sense: the exit status is 2, as in argparse."""


@contextlib.contextmanager
def usage(option: str = "") -> Iterator[None]:
    """A ValueError inside becomes wrong usage; the message names `option` if it is given."""
    try:
        yield
    except ValueError as error:
        text = str(error).removeprefix("collab: ")
        if option:  # without the variable that stands for the option elsewhere
            text = re.sub(r"^COLLAB_[A-Z_]+: ", "", text)
        raise WrongUsage(f"{option}: {text}" if option else text) from None


def ended() -> threading.Event:
    """An event that Ctrl-C and SIGTERM set from here on."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop


def add(
    parsers: Any,
    name: str,
    sentence: str,
    description: str,
    examples: Sequence[str],
    status: dict[int, str],
    usage: str | None = None,
) -> argparse.ArgumentParser:
    """Makes a command's argument parser. `examples`: command lines, with a remark after `  #`. `status`: the meaning of
    its exit codes, at least of 0 and 1."""
    width = max(60, min(110, shutil.get_terminal_size().columns - 2))
    meant = {**status, **{number: text for number, text in _ALWAYS.items() if number not in status}}
    rows = [
        textwrap.fill(text, width, initial_indent=f"  {number:<5}", subsequent_indent=" " * 7)
        for number, text in sorted(meant.items())
    ]
    epilog = "\n".join(
        [
            "examples:" if len(examples) > 1 else "example:",
            *(f"  {line}" for line in examples),
            "",
            "exit status:",
            *rows,
        ]
    )
    form: argparse.ArgumentParser = parsers.add_parser(
        name,
        help=sentence,
        usage=usage,
        description=textwrap.fill(description, width),
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # `collab run` passes unknown options on to a script
    )
    return form


def table(rows: Sequence[Sequence[str]], left: int = 2) -> list[str]:
    """Lines of aligned cells: the first `left` columns to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  " + "  ".join(
            cell.ljust(width) if number < left else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]  # fmt: skip
