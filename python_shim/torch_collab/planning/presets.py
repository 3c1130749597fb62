"""The settings that `collab plan` compares, by name."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable, Mapping

from torch_collab import native


@functools.cache
def all_presets() -> dict[str, dict[str, str]]:
    """(knob, text) by a preset's name."""
    return {row["name"]: dict(row["values"]) for row in native.preset_table()}


def of_knobs(knobs: Mapping[str, str]) -> native.Settings:
    """Of knobs by name in small letters, the others at their defaults. Raises ValueError."""
    return native.load_config({}, knobs, run="")


def choose(names: Iterable[str]) -> dict[str, native.Settings]:
    """All where none is named. Raises ValueError that names the nearest."""
    chosen = {}
    known = all_presets()
    for name in names or known:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0.0)
            raise ValueError(f"--preset {name}: there is no such preset, the nearest is {near[0]} [cli.plan-preset]")
        chosen[name] = of_knobs(known[name])
    return chosen
