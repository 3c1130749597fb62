"""The knobs in force for a command: its own options win over the environment, which wins over collab.toml."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from torch_collab import environment, log, native
from torch_collab.cli import swarm_file
from torch_collab.cli.swarm_file import Entry

_COORDINATOR = "COLLAB_COORDINATOR"


def load(given: Mapping[str, str] | None = None, file: str | None = None, dials: bool = False) -> native.Settings:
    """Warns, once, of COLLAB_ variables that are nobody's and of old names.

    `file`: what --config names. `dials`: the coordinator at the file's endpoint counts where no other is named. Raises
    ValueError.
    """
    variables = environment.collab_variables()
    options = given or {}
    added = _of_file(file, variables, options, dials)
    try:
        config = native.load_config({name: entry.text for name, entry in added.items()} | variables, options)
    except ValueError as error:
        places = [f"{name}: {entry.where}" for name, entry in added.items() if name in str(error)]
        raise ValueError(f"{error} ({'; '.join(places)})" if places else str(error)) from None
    config = dataclasses.replace(config, values=_with_places(config, added))
    log.set_level(config.log_level, config.given("log_level"))
    for warning in native.environment_warnings(variables):
        log.warn_once(warning)
    log.flush()  # before what the command prints
    return config


def load_of_swarm(given: Mapping[str, str], file: str | None, how: str) -> native.Settings:
    """Of a command that asks a swarm's coordinators, which are named by `how` or as `load` has them."""
    config = load(given, file, dials=True)
    if not config.coordinator:
        raise ValueError(
            f"which swarm? {how}, set COLLAB_COORDINATOR, or go where its collab.toml is [cli.which-swarm]"
        )
    return config


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
    """The line of the file as the source of what came from there."""
    places = {name: added.get(swarm_file.variable_of(name)) for name, _, _ in config.values}
    return tuple(
        (name, value, source if (place := places[name]) is None or source != "environment" else place.where)
        for name, value, source in config.values
    )
