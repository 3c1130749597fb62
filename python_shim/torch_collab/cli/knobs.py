"""The knobs in force for a command: its own options win over the environment, which wins over collab.toml."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator, Mapping

from torch_collab import environment, log, native
from torch_collab.cli import forms, swarm_file
from torch_collab.cli.swarm_file import Entry
from torch_collab.network import addresses

_COORDINATOR = "COLLAB_COORDINATOR"
_WORDS = {"min_sites": "--sites", "coordinator": "HOST:PORT of the coordinator"}  # names in commands, if they differ


def load(given: Mapping[str, str] | None = None, file: str | None = None, dials: bool = False) -> native.Settings:
    """Loads the knobs. Warns, once, about unknown COLLAB_ variables and old names.

    `given`: values from the command line, by knob. `file`: the argument of --config. `dials`: if no coordinator is
    named, the one at the file's endpoint is used. Raises ValueError; for values in `given`, WrongUsage.
    """
    variables = environment.collab_variables()
    options = given or {}
    added = _of_file(file, variables, options, dials)
    config = merged(variables, added, options)
    config = dataclasses.replace(config, values=_with_places(config, added))
    log.set_level(config.log_level, config.given("log_level"))
    for warning in native.environment_warnings(variables):
        log.warn_once(warning)
    log.flush()  # before the command's own output
    return config


def merged(
    variables: Mapping[str, str], added: Mapping[str, Entry], options: Mapping[str, str] | None = None
) -> native.Settings:
    """The variables win over `added`, and options win over both. Raises as `placed` says."""
    with placed(added):
        return native.load_config({name: entry.text for name, entry in added.items()} | dict(variables), options or {})


@contextlib.contextmanager
def placed(added: Mapping[str, Entry]) -> Iterator[None]:
    """Raises ValueError with the place of the value that is refused, and WrongUsage for an option."""
    try:
        yield
    except ValueError as error:
        text = str(error).removeprefix("collab: ")
        if told := re.match(r'the option "(\w+)"', text):
            raise forms.WrongUsage(_WORDS.get(told[1], f"--{told[1]}") + text[told.end() :]) from None
        name = text.partition(":")[0]
        raise ValueError(_with_place(text, added[name].where) if name in added else text) from None


def _with_place(text: str, where: str) -> str:
    """Puts the place before the code, which stays at the end."""
    return re.sub(r"( \[[\w.-]+\])?$", lambda code: f" ({where}){code[0]}", text, count=1)


def load_of_swarm(given: Mapping[str, str], file: str | None, how: str) -> native.Settings:
    """For a command that asks a swarm's coordinators; `how` says how to name them on the command line."""
    config = load(given, file, dials=True)
    if not config.coordinator:
        raise ValueError(
            f"which swarm? {how}, set COLLAB_COORDINATOR, or change to the folder of its collab.toml [cli.which-swarm]"
        )
    return config


def of_this_machine(config: native.Settings, file: str | None) -> str:
    """The address of this machine's coordinator, if the swarm's file names the first machine's; "": do not look for
    one. Each machine that the training began with has a coordinator, at the same port, and any of them may lead.
    """
    read = swarm_file.find(file)
    named = read and read.coordinator(read.entries(config.site))
    source = next(source for name, _, source in config.values if name == "coordinator")
    if not named or source != named.where:
        return ""
    host, port = addresses.split_host_port(named.text)
    return "" if addresses.is_this_machine(host) else addresses.join_host_port("localhost", port)


def _of_file(
    path: str | None, variables: Mapping[str, str], options: Mapping[str, str], dials: bool
) -> dict[str, Entry]:
    file = swarm_file.find(path)
    if file is None:
        return {}
    entries = file.entries(options.get("site") or variables.get("COLLAB_SITE", ""))
    given = {**variables, **{swarm_file.variable_of(name): text for name, text in options.items()}}
    added = file.variables(entries, given)
    coordinator = file.coordinator(entries) if dials and _COORDINATOR not in given else None
    if coordinator is not None:
        added.setdefault(_COORDINATOR, coordinator)
    return added


def _with_places(config: native.Settings, added: Mapping[str, Entry]) -> tuple[tuple[str, str, str], ...]:
    """For values from the file, adds the line as their source."""
    places = {name: added.get(swarm_file.variable_of(name)) for name, _, _ in config.values}
    return tuple(
        (name, value, source if (place := places[name]) is None or source != "environment" else place.where)
        for name, value, source in config.values
    )
