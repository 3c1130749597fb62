"""How `--help` of a command looks: what it does, its options, an example, its exit status."""

from __future__ import annotations

import argparse
import shutil
import textwrap
from collections.abc import Sequence
from typing import Any

# Of every command; its own say more of 0 and 1.
_ALWAYS = {2: "wrong usage", 130: "ended by Ctrl-C"}


def add(
    parsers: Any,
    name: str,
    sentence: str,
    description: str,
    examples: Sequence[str],
    status: dict[int, str],
    usage: str | None = None,
) -> argparse.ArgumentParser:
    """The form of a command. `examples` are command lines, a remark behind `  #`; `status` has 0 and 1 at least."""
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
    )
    return form
