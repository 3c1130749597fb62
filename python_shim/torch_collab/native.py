"""The one place that calls the compiled module `_C`; it is loaded at the first use, never at `import torch`.

Errors arrive as ValueError (bad input), ConnectionError (nobody there), TimeoutError, and `_C.RefusedError`,
`_C.CorruptError` (both RuntimeError); `_worded` puts "collab: " in front of each.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

from torch_collab.escape import escaped

if TYPE_CHECKING:
    from torch_collab import _C
    from torch_collab.groups import Inner
    from torch_collab.places import Sites
    from torch_collab.vector import Entry

P = ParamSpec("P")
R = TypeVar("R")


def _module() -> Any:
    import torch  # noqa: F401  # its libraries must be in the process first

    from torch_collab import _C

    return _C


def _worded(function: Callable[P, R]) -> Callable[P, R]:
    """Gives an error of the core its prefix, and a traceback without the chain below."""

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


# ---- knobs -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Settings:
    """The knobs in force. Times are seconds."""

    raw: _C.Config
    values: tuple[tuple[str, str, str], ...]  # (knob, value as text, where it came from)
    run: str
    site: str
    site_index: int | None
    site_count: int
    init_from: str
    coordinator: tuple[str, ...]
    listen: str
    advertise: str
    transport: str
    sync_every_steps: int  # 0: rounds are counted in time
    buffers: bool
    join_optimizer: bool
    reseed: bool
    join_timeout: float
    round_timeout: float
    link_grace: float
    linger: float
    state_dir: str
    log: str


@_worded
def load_config(environment: Mapping[str, str], options: Mapping[str, str]) -> Settings:
    """Raises ValueError that names the knob, what came and what is accepted."""
    raw = _module().load_config(dict(environment), dict(options))
    typed = raw.typed
    fields = {
        name: typed[name] for name in Settings.__dataclass_fields__ if name not in ("raw", "values", "coordinator")
    }
    return Settings(raw=raw, values=tuple(raw.values), coordinator=tuple(typed["coordinator"]), **fields)


def foreign_in_words(environment: Mapping[str, str]) -> str:
    """A warning that names COLLAB_ variables that are no knob and not near one, or ""."""
    return str(_module().foreign_in_words(dict(environment)))


def knob_table() -> list[_C.KnobRow]:
    rows: list[_C.KnobRow] = _module().knob_table()
    return rows


def knob_table_markdown() -> str:
    return str(_module().knob_table_markdown())


# ---- the backend -------------------------------------------------------------------------------


@_worded
def make_backend(opts: Any, sites: Sites, inner: Inner, is_world: bool) -> Any:
    number = {rank: index for index, site in enumerate(sites.sites) for rank in site.ranks}
    part = inner.meeting
    meeting = {}
    if part is not None:
        meeting = {"seat": part.seat, "group_id": part.group_id, "ranks": part.ranks, "site_names": part.site_names}
    return _module().make_backend(
        rank=opts.group_rank,
        size=opts.group_size,
        sites=[number[rank] for rank in range(opts.group_size)],
        world=inner.world,
        site=inner.site,
        leaders=inner.leaders,
        **meeting,
        timeout=opts.timeout,
        is_world=is_world,
    )


def step_flag() -> Callable[[bool], None]:
    """What tells the backends that an optimizer's step() runs on the calling thread, or does not."""
    flag: Callable[[bool], None] = _module().set_in_step
    return flag


def call_communication_hook(hook: Callable[..., Any], state: object, bucket: Any) -> Any:
    return _module().call_communication_hook(hook, state, bucket)


@_worded
def enter_meeting(
    config: Settings,
    transport: dict[str, Any],
    world: int,
    rank: int,
    sites: Sequence[str],
    site_of: Sequence[int],
    hubs: Sequence[str],
) -> _C.MeetingSeat:
    seat: _C.MeetingSeat = _module().enter_meeting(
        config=config.raw,
        transport=transport,
        world=world,
        rank=rank,
        sites=list(sites),
        site_of=list(site_of),
        hubs=list(hubs),
    )
    return seat


# ---- transports --------------------------------------------------------------------------------


def ucx_library_dir() -> str:
    """Where the PyPI wheel `libucx-cu12` keeps its libraries; empty: let the loader look."""
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


@_worded
def choose_links(config: Settings, ucx_problem: Callable[[], str | None]) -> tuple[str, str, bool]:
    choice: tuple[str, str, bool] = _module().choose_links(config.raw, ucx_problem)
    return choice


@_worded
def swarm_secrets(config: Settings, purpose: str) -> list[bytes]:
    """32 bytes made for this purpose of each of the swarm's tokens (its file may hold two), the one to speak with
    first; none without one. Raises ValueError."""
    return [bytes(secret) for secret in _module().swarm_secrets(config.raw, purpose)]


@_worded
def has_made_token(config: Settings) -> bool:
    """Whether there is a token and `collab token` of this version made it. Raises ValueError."""
    return bool(_module().has_made_token(config.raw))


def is_near(packed: bytes) -> bool:
    """Is the address (4 or 16 bytes) this machine's or a private network's? There the clear is allowed unasked."""
    return bool(_module().is_near(packed))


def addressed_transport(kind: str, config: Settings, advertise: str) -> dict[str, Any]:
    """`kind` is ucx or tcp; `advertise` the host that others dial, or empty: as it is listened at."""
    return {"kind": kind, "config": config.raw, "advertise_host": advertise, "library_dir": ucx_library_dir()}


@_worded
def try_transport(transport: dict[str, Any]) -> None:
    """Makes it and drops it. Raises what is wrong with its settings, in words."""
    _module().try_transport(transport)


def gloo_transport(backend: Any) -> dict[str, Any]:
    return {"kind": "gloo", "backend": backend}


# ---- sessions ----------------------------------------------------------------------------------


def digest(tensor: Any) -> str:
    """Of the tensor's bytes."""
    return str(_module().tensor_digest(tensor.detach()))


@_worded
def make_session(
    config: Settings,
    site: str,
    job: str,
    record_dir: str,
    record_scope: str,
    site_rank: int,
    site_size: int,
    one_host: bool,
    generation: int,
    egress_spent: int,
    coordinators: Sequence[str],
    entries: Sequence[Entry],
    site_gloo: Any | None,
    transport: dict[str, Any] | None,
    resumed: bool,
) -> _C.Session:
    module = _module()
    model = []
    for entry in entries:
        tensor = entry.tensor.detach()
        digest = "" if entry.trained else str(module.tensor_digest(tensor))
        model.append((entry.name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape), entry.kind, digest))
    session: _C.Session = module.make_session(
        config=config.raw,
        site=site,
        job=job,
        record_dir=record_dir,
        record_scope=record_scope,
        site_rank=site_rank,
        site_size=site_size,
        one_host=one_host,
        generation=generation,
        egress_spent=egress_spent,
        coordinators=list(coordinators),
        model=model,
        # The tensors themselves, not detached ones, which would keep the storage of today.
        parameters=[entry.tensor for entry in entries if entry.trained],
        compared_elements=sum(entry.tensor.numel() for entry in entries if entry.trained and not entry.buffer),
        site_group=site_gloo,
        transport=transport,
        resumed=resumed,
    )
    return session


@_worded
def begin(session: _C.Session) -> None:
    session.begin()


@_worded
def count_step(session: _C.Session, samples: int, lend: _C.Lend) -> bool:
    """True: a round is due."""
    return session.count_step(samples, lend)


@_worded
def replace_tensor(session: _C.Session, position: int, tensor: Any) -> None:
    session.replace_tensor(position, tensor)


@_worded
def synchronize(session: _C.Session, lend: _C.Lend) -> _C.StepOutcome:
    return session.synchronize(lend)


def ask_optimizer(session: _C.Session) -> tuple[str, str, int]:
    return session.ask_optimizer()


def take_optimizer(session: _C.Session) -> Any:
    return session.take_optimizer()


def end_optimizer(session: _C.Session, cold: str) -> None:
    session.end_optimizer(cold)


@_worded
def broadcast(session: _C.Session, data: Any) -> None:
    session.broadcast(data)


def watch_for_termination(seconds: float) -> bool:
    """SIGTERM becomes a wish, and acts after `seconds`. False when the script, or somebody else, handles it."""
    return bool(_module().watch_for_termination(timedelta(seconds=seconds)))


def termination_requested() -> bool:
    return bool(_module().termination_requested())


def carry_out_termination() -> NoReturn:
    _module().carry_out_termination()
    raise SystemExit(143)  # never reached


@_worded
def finish(session: _C.Session, next_generation: int = 0) -> None:
    """`next_generation`: where the site goes on at once; 0: nowhere."""
    session.finish(next_generation)


# ---- coordinators ------------------------------------------------------------------------------


@_worded
def serve_coordinator(config: Settings, transport: dict[str, Any], listen: str) -> _C.CoordinatorServer:
    server: _C.CoordinatorServer = _module().serve_coordinator(config.raw, transport, listen)
    return server


def wait_until_empty(server: _C.CoordinatorServer, seconds: float) -> str | None:
    """None once no site is a member; else who is still there."""
    try:
        server.wait_until_empty(timedelta(seconds=seconds))
    except TimeoutError as error:
        return str(error)
    return None


@_worded
def serve_helper(config: Settings, site: str, transport: dict[str, Any]) -> _C.HelperServer:
    server: _C.HelperServer = _module().serve_helper(config.raw, site, transport)
    return server


@_worded
def query_status(transport: dict[str, Any], address: str, seconds: float) -> str:
    return str(_module().query_status(transport, address, timedelta(seconds=seconds)))


@_worded
def tell_forget(transport: dict[str, Any], address: str, sites: Sequence[str], seconds: float) -> tuple[bool, str]:
    """Whether the coordinator there has taken the word, and what comes of it, or why nothing does."""
    module = _module()
    try:
        return True, str(module.tell_forget(transport, address, list(sites), timedelta(seconds=seconds)))
    except module.RefusedError as refused:
        return False, str(refused)


# ---- files and shared memory -------------------------------------------------------------------


@_worded
def read_state_header(path: str) -> dict[str, Any]:
    header: dict[str, Any] = _module().read_state_header(path)
    return header


@_worded
def read_state(path: str) -> tuple[dict[str, Any], Any]:
    """(header, anchor): a float32 vector of header["elements"]."""
    header, anchor, _ = _module().read_state(path)
    return header, anchor


def find_records(folder: str) -> list[tuple[str, int, int, str]]:
    """(path, bytes, seconds since it was written last, who has it or "")"""
    records: list[tuple[str, int, int, str]] = _module().find_records(folder)
    return records


@_worded
def remove_record(path: str, least: int) -> None:
    """Raises RuntimeError when somebody has it, or it was written less than `least` seconds ago."""
    _module().remove_record(path, least)


def find_orphan_arenas() -> list[tuple[str, int, str]]:
    """(path, bytes, why it is one)"""
    orphans: list[tuple[str, int, str]] = _module().find_orphan_arenas()
    return orphans


@_worded
def remove_orphan_arena(path: str) -> None:
    _module().remove_orphan_arena(path)
