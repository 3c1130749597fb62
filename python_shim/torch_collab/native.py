"""The one place that calls the compiled module `_C`; it is loaded at the first use, never at `import torch`.

Errors arrive as ValueError (bad input), ConnectionError (nobody there), TimeoutError, and `_C.RefusedError`,
`_C.CorruptError` (both RuntimeError); `_prefix_errors` puts "collab: " in front of each.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar, cast

from torch_collab import log
from torch_collab.environment import rendezvous_run
from torch_collab.escape import escaped
from torch_collab.knob_fields import KnobValues

if TYPE_CHECKING:
    from torch_collab import _C

P = ParamSpec("P")
R = TypeVar("R")


def _extension(folder: Path, torch_version: str) -> Any:
    """`_C` for this torch. A wheel holds one for each of several releases of torch. An installation from source has
    just one, whose release `torch_compat.check_build` compares."""
    prefix, suffix = "_C-torch", EXTENSION_SUFFIXES[0]
    releases = [path.name[len(prefix) : -len(suffix)] for path in folder.glob(f"{prefix}*{suffix}")]
    if not releases:
        from torch_collab import _C

        return _C
    release = ".".join(torch_version.split(".")[:2])
    if release not in releases:
        known = " and ".join(sorted(releases, key=lambda text: [int(part) for part in text.split(".")]))
        raise RuntimeError(
            f"collab: this wheel is for torch {known}, and this is torch {torch_version}: install one of those, or "
            "install torch-collab from source [ddp.torch-not-in-wheel]"
        )
    spec = importlib.util.spec_from_file_location("torch_collab._C", folder / f"{prefix}{release}{suffix}")
    assert spec is not None and spec.loader is not None  # the suffix is that of extension modules
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def _module() -> Any:
    import torch  # its libraries must be in the process first

    module = _extension(Path(__file__).parent, torch.__version__)
    log.start(module)
    return module


def start_log() -> None:
    """For a forked child whose parent had already loaded the module."""
    log.start(_module())


def _prefix_errors(function: Callable[P, R]) -> Callable[P, R]:
    """Gives an error of the core its prefix, and removes the chain below from its traceback."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (ValueError, OSError, RuntimeError) as error:
            if len(error.args) != 1:
                raise
            text = escaped(str(error))  # it may quote a peer
            raise type(error)(text if text.startswith("collab:") else f"collab: {text}") from None

    return call


class _PrefixedErrors:
    """Wraps an object of the core: errors of its methods get the prefix `collab:`."""

    def __init__(self, held: object) -> None:
        self._held = held

    def __getattr__(self, name: str) -> Any:
        self.__dict__[name] = method = _prefix_errors(getattr(self._held, name))
        return method


if TYPE_CHECKING:  # functions of _C that are called directly; _C.pyi describes them
    from torch_collab._C import (  # noqa: I001
        answer_line as answer_line, auto_period as auto_period, build_info as build_info,
        call_communication_hook as call_communication_hook, choose_links as choose_links, codec_bytes as codec_bytes,
        connect_hub as connect_hub, end_by_parent_only as end_by_parent_only,
        environment_warnings as environment_warnings, find_orphan_arenas as find_orphan_arenas,
        find_records as find_records, has_made_token as has_made_token, is_near as is_near,
        kept_elements as kept_elements, knob_table as knob_table, make_backend as make_backend,
        measure_line as measure_line, needs_error_feedback as needs_error_feedback, parse_codecs as parse_codecs,
        plan_exchange as plan_exchange, preset_table as preset_table, query_status as query_status,
        read_state as read_state, read_state_header as read_state_header, remove_orphan_arena as remove_orphan_arena,
        remove_record as remove_record, serve_coordinator as serve_coordinator, serve_helper as serve_helper,
        serve_page as serve_page,
        set_in_step as set_in_step, swarm_secrets as swarm_secrets, termination_requested as termination_requested,
        termination_signal as termination_signal,
        try_transport as try_transport, watch_for_termination as watch_for_termination,
    )  # fmt: skip
else:

    def __getattr__(name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        globals()[name] = function = _prefix_errors(getattr(_module(), name))
        return function


# ---- knobs -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Settings(KnobValues):
    """The knobs in force. Times are seconds."""

    raw: _C.Config
    values: tuple[tuple[str, str, str], ...]  # (knob, value as text, where it came from)

    def given(self, knob: str) -> bool:
        """Whether the knob's value was set, and is not just the default."""
        return any(name == knob and source != "default" for name, _, source in self.values)


@_prefix_errors
def load_config(environment: Mapping[str, str], options: Mapping[str, str], run: str | None = None) -> Settings:
    """`run`: the run's name if neither mapping gives it; by default that of the rendezvous that started this process.

    Raises ValueError that names the knob, its value and what is accepted.
    """
    named = rendezvous_run(environment, options) if run is None else run
    raw = _module().load_config(dict(environment), dict(options), {"run": named} if named else {})
    typed = raw.typed
    fields = {name: typed[name] for name in KnobValues.__dataclass_fields__}
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    return Settings(raw=raw, values=tuple(raw.values), **fields)


# ---- transports --------------------------------------------------------------------------------


def ucx_library_dir() -> str:
    """Where the PyPI wheel `libucx-cu12` keeps its libraries; empty: the loader searches by itself."""
    spec = importlib.util.find_spec("libucx")
    if spec is None or not spec.submodule_search_locations:
        return ""
    found = Path(next(iter(spec.submodule_search_locations))) / "lib"
    return str(found) if found.is_dir() else ""


def ucx_description() -> str:
    version, path = _module().ucx_description(ucx_library_dir())
    return f"{version} at {path}"


def ucx_problem() -> str | None:
    """Why UCX cannot be used, or None."""
    try:
        _module().ucx_description(ucx_library_dir())
    except (OSError, RuntimeError, ValueError) as error:
        return str(error)
    return None


def addressed_transport(kind: str, config: Settings, advertise: str) -> dict[str, Any]:
    """`kind` is ucx or tcp. `advertise` is the host that others dial; if empty, the one it listens at."""
    return {"kind": kind, "config": config.raw, "advertise_host": advertise, "library_dir": ucx_library_dir()}


# ---- sessions ----------------------------------------------------------------------------------


def digest(tensor: Any) -> str:
    """Digest of the tensor's bytes. If it is made of other tensors (quantised weights), of theirs. Raises TypeError."""
    if hasattr(tensor, "__tensor_flatten__"):
        names, _ = tensor.__tensor_flatten__()
        parts = "".join(digest(getattr(tensor, name)) for name in names)
        return hashlib.blake2b(parts.encode(), digest_size=16).hexdigest()
    tensor = tensor.detach()
    if tensor.numel() > 0 and not _address(tensor):
        raise TypeError(
            f"collab: a tensor of {type(tensor).__name__} has no memory of its own, and no __tensor_flatten__ that "
            "names its parts. So collab cannot check that all sites hold the same values [capture.no-memory]"
        )
    return str(_module().tensor_digest(tensor))


def _address(tensor: Any) -> int:
    try:
        return int(tensor.data_ptr())
    except RuntimeError:  # newer releases of torch
        return 0


@_prefix_errors
def make_session(config: Settings, **arguments: Any) -> _C.Session:
    return cast("_C.Session", _PrefixedErrors(_module().make_session(config=config.raw, **arguments)))


def carry_out_termination() -> NoReturn:
    log.stop()
    _module().carry_out_termination()
    raise SystemExit(143)  # never reached


# ---- coordinators ------------------------------------------------------------------------------


def wait_until_empty(server: _C.CoordinatorServer, seconds: float) -> str | None:
    """None once no site is a member; otherwise a text that says which are still there."""
    try:
        server.wait_until_empty(timedelta(seconds=seconds))
    except TimeoutError as error:
        return str(error)
    return None


@_prefix_errors
def tell_forget(transport: dict[str, Any], address: str, sites: Sequence[str], seconds: float) -> tuple[bool, str]:
    """(whether the coordinator there accepted it, what follows from it or why nothing does)."""
    module = _module()
    try:
        return True, str(module.tell_forget(transport, address, list(sites), timedelta(seconds=seconds)))
    except module.RefusedError as refused:
        return False, str(refused)
