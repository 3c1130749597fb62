"""The command line: `collab COMMAND`; the commands are in the order in which `collab --help` has them.

Each command is a module with `add_to(parsers)` and `run(arguments)`, which returns the exit status: 0 fine, 1 problems
found or the thing asked for could not be done, 2 wrong usage. `lab` reads its own command line.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import sys
from collections.abc import Sequence
from typing import NoReturn

from torch_collab import __version__
from torch_collab.cli.forms import WrongUsage
from torch_collab.escape import escaped

COMMANDS = (
    "init", "run", "config", "plan", "doctor", "status", "forget", "coordinator", "helper", "token", "export", "plot",
    "lab", "completion",
)  # fmt: skip


class Parser(argparse.ArgumentParser):
    """The parsers of the commands are of this class, too."""

    def error(self, message: str) -> NoReturn:
        super().error(f"{message} [cli.usage]")


def parser() -> Parser:
    top = Parser(prog="collab", description="Training across distant sites with torch.distributed.")
    top.add_argument("--version", action="version", version=f"collab {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        command = importlib.import_module(f"torch_collab.cli.{name}")
        command.add_to(commands)
        commands.choices[name].set_defaults(run=command.run, form=commands.choices[name])
    return top


def check_command(given: Sequence[str]) -> None:
    """Raises WrongUsage for a near miss of a command's name. For other words argparse lists the commands."""
    name = given[0] if given else ""
    if name in COMMANDS or name.startswith("-"):
        return
    if nearest := difflib.get_close_matches(name, COMMANDS, 1):
        raise WrongUsage(f"there is no command {name!r}; the nearest is {nearest[0]} [cli.no-command]")


def main(argv: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if argv is None else argv)
    if given[:1] == ["help"]:
        given = [*given[1:], "--help"]
    try:
        if given[:1] == ["lab"]:
            from torch_collab.cli import lab

            lab.run(given[1:])
        check_command(given)
        arguments, unknown = parser().parse_known_args(given)
        if unknown:
            arguments.form.error(f"unrecognized arguments: {' '.join(unknown)}")  # with the command's own usage
        return int(arguments.run(arguments))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 141
    except (ValueError, RuntimeError, OSError) as error:
        text = "\n".join(map(escaped, str(error).split("\n")))
        print(text if text.startswith("collab:") else f"collab: {text}", file=sys.stderr)
        return 2 if isinstance(error, WrongUsage) else 1
