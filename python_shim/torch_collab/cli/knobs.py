"""The knobs in force for a command: its own options win over the environment."""

from __future__ import annotations

from collections.abc import Mapping

from torch_collab import environment, log, native


def load(given: Mapping[str, str] | None = None, without: str = "") -> native.Settings:
    """Warns, once, of COLLAB_ variables that are nobody's; passes over the variable `without`. Raises ValueError."""
    variables = {name: value for name, value in environment.collab_variables().items() if name != without}
    config = native.load_config(variables, given or {})
    log.set_level(config.log)
    if foreign := native.foreign_in_words(variables):
        log.warn_once(foreign)
    return config
