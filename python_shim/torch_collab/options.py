"""`torch_collab.Options`: the knobs as an object, for `init_process_group(..., pg_options=torch_collab.Options(...))`.

A field that is None is not given: the environment variable, the preset or the default applies. A given field wins over
them. The fields are the rows of the knob table (`collab config` prints it). Times are seconds, a timedelta, or text
with a unit such as "30s". `codec` is one name for both directions, or "UP/DOWN" for the deltas and for their mean, such
as "int4/int8".
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from torch_collab.knob_fields import OLD_NAMES, OptionFields

_Options = TypeVar("_Options", bound="type[OptionFields]")


def _renamed(given: Mapping[str, Any]) -> dict[str, Any]:
    """Renames old keywords, each with a DeprecationWarning. Raises ValueError if the old and the new name disagree."""
    fields = {name: value for name, value in given.items() if name not in OLD_NAMES}
    for old, value in given.items():
        names = OLD_NAMES.get(old, ())
        if names:
            warnings.warn(
                f"torch_collab.Options: {old} is now called {' and '.join(names)} [knob.old-option]",
                DeprecationWarning,
                stacklevel=3,
            )
        for name in names:
            if value is not None and fields.get(name) is not None and fields[name] != value:
                raise ValueError(
                    f"collab: torch_collab.Options: {old}={value!r} and {name}={fields[name]!r}: two names of one "
                    f"knob; leave {old} out [knob.two-fields]"
                )
            if fields.get(name) is None:
                fields[name] = value
    return fields


def _takes_old_names(options: _Options) -> _Options:
    made = options.__init__

    @functools.wraps(made)
    def init(self: OptionFields, **given: Any) -> None:
        made(self, **_renamed(given))

    options.__init__ = init  # type: ignore[method-assign]  # wraps() keeps the signature
    return options


@_takes_old_names
@dataclass(kw_only=True)
class Options(OptionFields):
    """The knobs for `pg_options`; None means not given. Times are seconds (a number), a timedelta, or text with a unit.

    Raises TypeError for a keyword that names no knob, and ValueError if a knob's old and new name disagree. Values are
    checked by init_process_group, which raises ValueError.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        known = {name: value} if name in self.__dataclass_fields__ else _renamed({name: value})
        for each, text in known.items():
            if each not in self.__dataclass_fields__:
                raise AttributeError(f"torch_collab.Options has no field {each!r}")
            super().__setattr__(each, text)

    def __getattr__(self, name: str) -> Any:
        """Fields by their old names; Python finds the other fields without this."""
        if name not in OLD_NAMES:
            raise AttributeError(f"torch_collab.Options has no field {name!r}")
        return getattr(self, next(iter(_renamed({name: None}))))

    def pairs(self) -> dict[str, str]:
        """The given fields as texts for the knob table."""
        given: dict[str, str] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None:
                given[field.name] = _as_text(value)
        return given


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, timedelta):
        return f"{round(value.total_seconds() * 1000)}ms"
    if isinstance(value, float):
        return repr(value)
    return str(value)


def pairs_of(backend_options: object) -> dict[str, str]:
    """The options a script passed as `pg_options`, or nothing.

    Raises ValueError if they belong to another backend.
    """
    if backend_options is None:
        return {}
    if isinstance(backend_options, Options):
        return backend_options.pairs()
    raise ValueError(
        f"collab: pg_options is a {type(backend_options).__qualname__}; the collab backend takes "
        "torch_collab.Options(...) [knob.foreign-options]"
    )
