"""The settings that `collab plan` compares, by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch_collab import native


def of_knobs(knobs: Mapping[str, str]) -> native.Settings:
    """Settings with these knobs (names in small letters), the others at their defaults. Raises ValueError."""
    return native.load_config({}, knobs, run="")


def choose(names: Iterable[str]) -> dict[str, native.Settings]:
    """The named presets; all of them if none is named. Raises ValueError."""
    return {name: of_knobs({"preset": name}) for name in names or [row["name"] for row in native.preset_table()]}
