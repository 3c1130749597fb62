"""`collab status`: what the swarm's coordinator knows."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

from torch_collab import native
from torch_collab.cli import forms, knobs, swarm_file
from torch_collab.escape import escaped
from torch_collab.network import links

_CLEAR = "\x1b[H\x1b[J"  # moves to the top and clears everything below


def add_to(parsers: Any) -> None:
    sub = forms.add(
        parsers,
        "status",
        "ask the coordinator which sites are there and which round it is",
        "Asks every coordinator that is named, and shows the answer of the one that leads. If the coordinator is "
        "taken from collab.toml, it asks the first machine's coordinator and that of this machine's own site.",
        ["collab status HOST:29500", "collab status --watch  # where collab.toml is"],
        {0: "one has answered", 1: "no coordinator has answered, or none is named"},
    )
    sub.add_argument(
        "address",
        metavar="HOST:PORT[,HOST:PORT...]",
        nargs="?",
        help="all coordinators (default: COLLAB_COORDINATOR, else the one at the endpoint in collab.toml)",
    )
    sub.add_argument(
        "--json", action="store_true", help="print the coordinator's answer as JSON; with --watch one on each line"
    )
    sub.add_argument(
        "--watch", metavar="SECONDS", nargs="?", type=float, const=2.0, help="ask again every SECONDS (2), until Ctrl-C"
    )  # fmt: skip
    sub.add_argument(
        "--timeout", metavar="SECONDS", type=float, default=5.0, help="for each coordinator (default: %(default)s)"
    )
    swarm_file.add_option(sub)


def run(arguments: argparse.Namespace) -> int:
    if arguments.watch is not None and not 0.1 <= arguments.watch <= 86400:
        raise forms.WrongUsage(f"--watch: expected 0.1 to 86400 seconds, got {arguments.watch:g} [cli.status-watch]")
    if not 0 < arguments.timeout <= 86400:
        raise forms.WrongUsage(
            f"--timeout: expected more than 0 and up to 86400 seconds, got {arguments.timeout:g} [cli.status-timeout]"
        )
    given = {"coordinator": arguments.address} if arguments.address else {}
    config = knobs.load_of_swarm(given, arguments.config, "name its coordinator (HOST:PORT)")
    asked = dict.fromkeys(config.coordinator, "")
    if own := knobs.of_this_machine(config, arguments.config):
        asked[own] = config.run
    transport = links.make(config, "")
    limit = timedelta(seconds=arguments.timeout)
    if arguments.watch is None:
        print(_shown(ask(transport, asked, limit), arguments.json))
        return 0
    return _watch(lambda: ask(transport, asked, limit), arguments)


def ask(transport: dict[str, Any], asked: Mapping[str, str], limit: timedelta) -> dict[str, Any]:
    """The answer of the leading coordinator, or else the first answer. If none answers, raises the last one's error.

    `asked`: addresses, each with the run that the answer must be from, or "" for any run."""

    def one(address: str) -> dict[str, Any] | Exception:
        try:
            told = json.loads(native.query_status(transport, address, limit))
        except (OSError, RuntimeError) as error:
            return error
        if asked[address] not in ("", told.get("swarm")):
            return ConnectionError(f"the coordinator there belongs to the run {told.get('swarm')!r}")
        return {"coordinator": address, **told}

    with ThreadPoolExecutor(len(asked)) as pool:
        answers = list(pool.map(one, asked))
    heard = [answer for answer in answers if isinstance(answer, dict)]
    if heard:
        return next((answer for answer in heard if answer.get("leads")), heard[0])
    failed = [answer for answer in answers if isinstance(answer, Exception)]
    if len(failed) == 1:
        raise failed[0]
    told = "; ".join(
        f"{address}: {str(error).removeprefix('collab: ')}" for address, error in zip(asked, failed, strict=True)
    )
    raise ConnectionError(f"none of the {len(asked)} coordinators answers: {told} [cli.status-no-answer]")


def _watch(look: Any, arguments: argparse.Namespace) -> int:
    """Shows the status until Ctrl-C, which ends `main`. A lost coordinator is reported, and asked again."""
    clear = sys.stdout.isatty() and not arguments.json
    while True:
        try:
            text = _shown(look(), arguments.json)
        except (OSError, RuntimeError) as error:
            text = json.dumps({"error": str(error)}) if arguments.json else escaped(str(error))
        if not arguments.json:
            text = f"{datetime.now(UTC):%H:%M:%S} UTC, every {arguments.watch:g} s\n{text}"
        print(_CLEAR + text if clear else text, flush=True)
        time.sleep(arguments.watch)


def _shown(answer: dict[str, Any], as_json: bool) -> str:
    return json.dumps(answer) if as_json else render(answer)


def render(answer: dict[str, Any]) -> str:
    """Scalars first, then a table for each list of objects."""
    if answer.get("period") == 0:  # the leader has not announced one
        answer = {**answer, "period": "as COLLAB_SYNC_EVERY says"}
    lines = [_no_round_yet(answer)] if answer.get("round") == 0 and answer.get("run") == 0 else []
    lines += [f"{escaped(name)}: {_cell(value)}" for name, value in answer.items() if not _is_table(value)]
    for name, value in answer.items():
        if _is_table(value):
            lines += ["", f"{escaped(name)}:", *_table(value)]
    return "\n".join(lines)


def _no_round_yet(answer: Mapping[str, Any]) -> str:
    """Explains why most of the status is still empty."""
    here = len(answer.get("applicants") or []) + len(answer.get("members") or [])
    return f"There has been no round yet: sites are still starting ({here} so far)."


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) for row in value)


def _table(rows: list[dict[str, Any]]) -> list[str]:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = ([_cell(row.get(column, "")) for column in columns] for row in rows)
    return forms.table([list(map(escaped, columns)), *cells], left=len(columns))


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(_cell(item) for item in value) or "none"
    return "none" if value in (None, "") else escaped(str(value))
