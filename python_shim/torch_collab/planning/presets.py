"""The settings that `collab plan` compares, by name."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable

from torch_collab import native
from torch_collab.planning.costs import Settings


@functools.cache
def all_presets() -> dict[str, dict[str, str]]:
    """(knob, text) by a preset's name."""
    return {row["name"]: dict(row["values"]) for row in native.preset_table()}


def choose(names: Iterable[str]) -> dict[str, Settings]:
    """All where none is named. Raises ValueError that names the nearest."""
    chosen = {}
    known = all_presets()
    for name in names or known:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0.0)
            raise ValueError(f"--preset {name}: there is no such preset, the nearest is {near[0]} [cli.plan-preset]")
        chosen[name] = Settings.from_knobs(known[name])
    return chosen
