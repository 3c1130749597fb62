"""`collab.toml`: what the machines of a swarm are started with.

    version = 1
    [swarm]     what is the same at every machine
    [site]      this machine: the one of that `name`, and ignored where the site is called otherwise

Keys are the knobs in small letters, and a few words of torchrun's. Paths are relative to the file's folder. Words of
torchrun's are judged here; values of knobs by the core, once they are merged with the environment's (`knobs.merged`).
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import functools
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch_collab import native
from torch_collab.escape import escaped
from torch_collab.knob_fields import OLD_NAMES, OptionFields
from torch_collab.network import addresses, keys


def variable_of(knob: str) -> str:
    return f"COLLAB_{knob.upper()}"


NAME = "collab.toml"
KEY = "swarm.key"
STATE = "state"  # the folder of the agreed model, for `collab init`
VERSION = 1
# What listens at the first machine's ports, from the endpoint's port on, as `collab init` sets them.
PORTS = ("rendezvous", "links", "coordinator")

KNOBS = frozenset(field.name for field in dataclasses.fields(OptionFields))
KEY_VARIABLES = frozenset(map(variable_of, keys.KNOBS))
_OF_BOTH = frozenset({"coordinator_port", "max_restarts"})
_OWN = {
    "swarm": _OF_BOTH | {"endpoint", "nnodes"},
    "site": _OF_BOTH | {"name", "first", "nproc_per_node"},
}
_ELSEWHERE = {
    "site": 'a site\'s name is `name` in [site], as in name = "paris"',
    "token": 'a file that is copied must not hold the token: name its own file, as in token_file = "swarm.key"',
}


_DEVICES = ("auto", "cpu", "gpu", "xpu")


def check_torchrun(key: str, text: str) -> None:
    """Raises ValueError for values that torchrun would refuse, with a traceback, for these keys."""
    numbers = text.split(":") if key == "nnodes" else [text]
    fits = len(numbers) <= 2 and all(number.isascii() and number.isdigit() for number in numbers)
    if key == "nnodes":
        expected = "N or N:MAX machines, at least 1"
        fits = fits and 1 <= int(numbers[0]) <= int(numbers[-1])
    elif key == "nproc_per_node":
        expected = f"a number of processes, at least 1, or {', '.join(_DEVICES[:-1])} or {_DEVICES[-1]}"
        fits = text in _DEVICES or (fits and int(text) >= 1)
    else:
        expected = "a whole number"
    if not fits:
        raise ValueError(f"expected {expected}, got {text!r} [cli.torchrun-value]")


@dataclass(frozen=True)
class Entry:
    text: str  # as in the knob's variable
    where: str  # the file, and the line if it is known


@dataclass(frozen=True)
class SwarmFile:
    path: Path
    swarm: Mapping[str, Entry]
    site: Mapping[str, Entry]

    def site_name(self) -> str:
        return self.site["name"].text if "name" in self.site else ""

    def entries(self, site: str) -> dict[str, Entry]:
        """The entries for the site of this name; "": the one in the file. [site] wins over [swarm]. If [site] is
        another site's and says that it is the first, this site is not."""
        if site in ("", self.site_name()) or not self.site_name():
            return {**self.swarm, **self.site}
        first = self.site.get("first")
        return {**self.swarm, **({"first": Entry("0", first.where)} if first and first.text == "1" else {})}

    def variables(self, entries: Mapping[str, Entry], given: Mapping[str, str]) -> dict[str, Entry]:
        """The entries that are knobs, by variable, without those in `given` (also variables). If the environment has a
        token or certificates, those of the file are ignored: a token replaces certificates."""
        found = {variable_of(name): entry for name, entry in entries.items() if name in KNOBS}
        if "name" in entries:
            found[variable_of("site")] = entries["name"]
        taken = set(given) | (KEY_VARIABLES if KEY_VARIABLES & set(given) else set())
        taken |= {variable_of(name) for old, names in OLD_NAMES.items() if variable_of(old) in given for name in names}
        return {variable: entry for variable, entry in found.items() if variable not in taken}

    def coordinator(self, entries: Mapping[str, Entry]) -> Entry | None:
        """The coordinator at the endpoint's host, if its port is known."""
        if "endpoint" not in entries or "coordinator_port" not in entries:
            return None
        port = entries["coordinator_port"]
        host, _ = addresses.host_and_port(entries["endpoint"].text)
        return Entry(addresses.join_host_port(host, int(port.text)), port.where) if port.text != "0" else None


def add_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help=f"the swarm's file (default: {NAME} in this folder, if there)")


def find(given: str | None) -> SwarmFile | None:
    """The named file, or the one in this folder if there is one. Raises ValueError that names the line."""
    path = Path(NAME if given is None else given)
    if given is None and not path.is_file():
        return None
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or error} [cli.swarm-file-unreadable]"
        ) from None
    return read(path, text)


def read(path: Path, text: str) -> SwarmFile:
    try:
        told = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not valid TOML: {error} [cli.swarm-file-toml]") from None
    return _Reader(path, text).read(told)


class _Reader:
    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._lines = dict(_lines(text))

    def read(self, told: Mapping[str, Any]) -> SwarmFile:
        self._check_version(told.get("version", VERSION))
        for key, value in told.items():
            if key != "version" and (key not in _OWN or not isinstance(value, dict)):
                nearest = _nearest(key, {"version", *_OWN})
                raise self._error("", key, f"is not known outside [swarm] and [site]; the nearest is {nearest}")
        return SwarmFile(self._path, *(dict(self._table(name, told.get(name, {}))) for name in _OWN))

    def _check_version(self, version: object) -> None:
        if type(version) is not int or version < 1:
            raise self._error("", "version", f"expected {VERSION}, got {version!r}")
        if version > VERSION:
            raise self._error(
                "",
                "version",
                f"the file was written by a newer collab (version {version}; this one reads {VERSION}): install that "
                "one here, or make a new file with `collab init`",
            )

    def _table(self, table: str, told: Mapping[str, Any]) -> Iterator[tuple[str, Entry]]:
        for key, value in told.items():
            if key in _ELSEWHERE:
                raise self._error(table, key, _ELSEWHERE[key])
            if key not in KNOBS and key not in _OWN[table]:
                raise self._error(table, key, self._unknown(table, key))
            if table == "site" and key in KNOBS and key in _shared():
                raise self._error(table, key, "belongs in [swarm]: it must be the same on all sites")
            yield key, Entry(self._text(table, key, value), self._where(table, key))

    def _unknown(self, table: str, key: str) -> str:
        for other, own in _OWN.items():
            if key in own:
                return f"belongs in [{other}]"
        small = key.lower().removeprefix("collab_")
        if key != small and small in KNOBS - set(_ELSEWHERE) | _OWN[table]:
            return f"is written {small} here"
        if key in OLD_NAMES:
            return f"is now called {' and '.join(OLD_NAMES[key])}"
        return f"is not known; the nearest is {_nearest(key, KNOBS - set(_ELSEWHERE) | _OWN[table])}"

    def _text(self, table: str, key: str, value: object) -> str:
        if isinstance(value, bool):
            return "1" if value else "0"
        if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
            value = ",".join(value)
        if not isinstance(value, str | int | float) or "\0" in str(value):
            raise self._error(table, key, f"expected a string, a number, true or false, got {value!r}")
        if key in ("endpoint", "nnodes", "nproc_per_node", "coordinator_port", "max_restarts", "first"):
            self._check(table, key, value)
        if (key.startswith("tls_") or key.endswith(("_file", "_dir"))) and value:
            return str((self._path.parent / Path(str(value)).expanduser()).absolute())
        return str(value)

    def _check(self, table: str, key: str, value: str | int | float) -> None:
        """Checks the keys that are not in the knob table."""
        if key == "first":
            raise self._error(table, key, f"expected true or false, got {value!r}")
        if key in ("endpoint", "nnodes", "nproc_per_node"):
            try:
                if key != "endpoint":
                    check_torchrun(key, str(value))
                elif isinstance(value, str):
                    addresses.host_and_port(value)
                else:
                    raise ValueError(f'expected a string, "HOST:PORT", got {value!r}')
            except ValueError as error:
                raise self._error(table, key, str(error)) from None
        elif type(value) is not int or not 0 <= value <= 65535:
            raise self._error(table, key, f"expected a whole number, 0..65535, got {value!r}")

    def _where(self, table: str, key: str) -> str:
        line = self._lines.get((table, key))
        return f"{self._path}, line {line}" if line else str(self._path)

    def _error(self, table: str, key: str, what: str) -> ValueError:
        place = f"[{table}] {key}" if table else key
        code = "" if re.search(r" \[[a-z]+\.[a-z-]+\]$", what) else " [cli.swarm-file-entry]"
        return ValueError(escaped(f"{self._where(table, key)}: {place}: {what}{code}"))


def _lines(text: str) -> Iterator[tuple[tuple[str, str], int]]:
    """The line of each key, which tomllib does not tell."""
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if opened := re.match(r"\s*\[\s*([\w-]+)\s*\]", line):
            table = opened[1]
            yield (("", table), number)
        elif key := re.match(r"""\s*["']?([\w-]+)["']?\s*=""", line):
            yield ((table, key[1]), number)


@functools.cache
def _shared() -> frozenset[str]:
    return frozenset(row["name"] for row in native.knob_table() if row["scope"] == "sites")


def _nearest(word: str, words: set[str] | frozenset[str]) -> str:
    return difflib.get_close_matches(word, sorted(words), 1, 0.0)[0]
