"""What commands have in common: the form of `--help`, and the end by a signal."""

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

# Of every command; its own say more of 0 and 1.
_ALWAYS = {2: "wrong usage", 130: "ended by Ctrl-C"}


class WrongUsage(ValueError):
    """What was asked means nothing: the exit status is 2, as argparse has it."""


@contextlib.contextmanager
def usage(option: str = "") -> Iterator[None]:
    """What does not fit within is wrong usage, of the option where it is named."""
    try:
        yield
    except ValueError as error:
        text = str(error).removeprefix("collab: ")
        if option:  # not beside the name of the variable that stands for it elsewhere
            text = re.sub(r"^COLLAB_[A-Z_]+: ", "", text)
        raise WrongUsage(f"{option}: {text}" if option else text) from None


def ended() -> threading.Event:
    """Set by Ctrl-C and by SIGTERM from here on."""
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
    """The argument parser of a command. `examples`: command lines, with a remark behind `  #`; `status`: what its exit
    codes mean, 0 and 1 at least."""
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
        allow_abbrev=False,  # `collab run` hands what it does not know to a script
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
