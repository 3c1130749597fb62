"""The C++ half of torch_collab. Blocking calls let go of the interpreter's lock and can be ended by Ctrl-C.

Errors: a wrong argument is a ValueError, a wait that ran out a TimeoutError, a peer that cannot be reached a
ConnectionError, a refusal RefusedError, damaged bytes CorruptError, everything else a RuntimeError.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NoReturn, TypedDict

import torch
from torch._C._distributed_c10d import Backend

class RefusedError(RuntimeError): ...
class CorruptError(RuntimeError): ...

class CollabBackend(Backend):
    """One process group's c10d backend. Made by make_backend."""

    @property
    def single_site(self) -> bool: ...
    def set_pre_barrier(self, callback: Callable[[], object] | None) -> None:
        """Called first by every barrier of this group, on the caller's thread; what it raises ends the barrier."""
    def most_at_barrier(self, mine: int) -> int:
        """The largest of what the ranks bring, for that callback; messages call it a barrier."""
    def watch_steps(self, watch: Callable[[str, int], object] | None) -> None:
        """Called in a group of several sites with a collective's name and the elements a rank brings before it is
        issued, while set_in_step() holds on the calling thread; what it raises ends the collective."""

def set_in_step(on: bool) -> None:
    """Of the calling thread: an optimizer's step() is running."""

def call_communication_hook(hook: Callable[[Any, Any], Any], state: object, bucket: object) -> Any:
    """hook(state, bucket); what it all-reduces over the world, there or in callbacks of the futures it gets, is reduced
    over the site."""

def make_backend(
    *,
    rank: int,
    size: int,
    sites: Sequence[int],
    world: Backend | None = None,
    site: Backend | None = None,
    leaders: Backend | None = None,
    hub_link: HubLink | None = None,
    group_id: int = 0,
    ranks: Sequence[int] = (),
    site_names: Sequence[str] = (),
    timeout: timedelta,
    is_world: bool = False,
) -> CollabBackend:
    """sites[r] is the site of the group's rank r. With a link, `world` and `leaders` are groups of the hub with the
    numbers group_id and group_id + 1; ranks[r] is the world's rank of the group's rank r and site_names[r] its site's
    name. Else the three Gloo backends belong to this group alone: `world` over
    all its ranks, `site` over this site's ranks in rank order (needed when it has several, and there are several
    sites), `leaders` over the lowest rank of each site in ascending order of site (needed at those ranks)."""

class HubLink:
    """This rank's link to the collective hub of its world. Made by connect_hub."""

    def leave(self, reason: str) -> None:
        """Nobody is to wait for this rank any more. Bounded; idempotent."""

def connect_hub(
    *,
    config: Config,
    transport: dict[str, Any],
    world: int,
    rank: int,
    sites: Sequence[str],
    site_of: Sequence[int],
    hubs: Sequence[str],
) -> HubLink:
    """Blocks until a coordinator has let this rank in. `world` is the same at all its ranks and drawn at random;
    site_of[r] is the index in `sites` of rank r's site; `hubs` are the coordinators' addresses, in order."""

class Config:
    @property
    def values(self) -> list[tuple[str, str, str]]:
        """(knob, value as text, where it came from) in table order."""
    @property
    def typed(self) -> dict[str, Any]:
        """Each knob as a Python value; times are seconds, connections 0 means auto, sync_every is steps, seconds or
        auto (int, float or str)."""

class KnobRow(TypedDict):
    name: str
    type: str
    default: str
    unit: str
    range: str
    sentence: str
    scope: str  # who must have the same value: "rank" (nobody), "world" (its ranks), "sites" (all)
    advanced: bool
    secret: bool
    old_name: str

class PresetRow(TypedDict):
    name: str
    sentence: str
    values: list[tuple[str, str]]

def load_config(
    environ: Mapping[str, str], options: Mapping[str, str] = ..., rendezvous: Mapping[str, str] = ...
) -> Config:
    """`environ` holds the variables that start with COLLAB_, `options` knob names and texts that win over it,
    `rendezvous` those that win over the defaults alone."""

def environment_warnings(environ: Mapping[str, str]) -> list[str]:
    """Of variables of `environ` that are no knob and not near one, and of old names."""

def knob_table() -> list[KnobRow]: ...
def preset_table() -> list[PresetRow]: ...
def parse_codecs(text: str) -> tuple[str, str]:
    """(up, down) of a codec's name, or of UP/DOWN."""

def codec_bytes(name: str, elements: int) -> int:
    """Of so many encoded elements; of top-k at most."""

def needs_error_feedback(name: str) -> bool: ...
def auto_period(step_seconds: float, round_seconds: float, target: float, behind: bool) -> int:
    """Steps from round to round that COLLAB_SYNC_EVERY=auto comes to; `behind`: with COLLAB_OVERLAP."""

def plan_exchange(
    lines: Sequence[tuple[float, float, bool]], mean_ratio: float
) -> tuple[float, list[tuple[float, float, float]]]:
    """Of sites with (rate up, rate down, may own) and means that are `mean_ratio` times as large as a delta: the time
    of one encoded delta, and each site's (share of the vector, deltas sent, deltas received). One site must own."""

def kept_elements(words: str, tensors: Sequence[tuple[str, int]]) -> int:
    """How many of the elements of such (name, elements) COLLAB_KEEP_FP16 names."""

def log(level: str, text: str) -> None: ...
def set_log_level(level: str) -> None: ...
def set_log_source(site: str, rank: int | None) -> None: ...
def open_log_queue() -> None:
    """From here on records wait for drain_log."""

def log_queue_open() -> bool: ...
def drain_log(timeout: float) -> tuple[str, float, str, int | None, str] | None:
    """(level, seconds since 1970, site, rank, text) of the oldest record; None when none came within `timeout` seconds,
    or when the queue is closed. One thread calls it."""

def flush_log(timeout: float) -> bool:
    """True once all records are where they belong."""

def close_log_queue(timeout: float) -> None:
    """As flush_log; then what is left goes to stderr, and all later lines."""

def ucx_description(library_dir: str = "") -> tuple[str, str]:
    """(version, path of the library); ConnectionError when there is no usable UCX."""

def choose_links(config: Config, ucx_problem: Callable[[], str | None]) -> tuple[str, str, bool]:
    """(kind, reason, whether a token or certificate goes unused); RefusedError when what is asked for cannot be had."""

def has_made_token(config: Config) -> bool: ...
def swarm_secrets(config: Config, purpose: str) -> list[bytes]:
    """32 bytes for each token, the one to speak with first; none without one."""

def is_near(packed: bytes) -> bool:
    """Whether the address, 4 or 16 bytes, is this machine's or a private network's."""

def build_info() -> dict[str, Any]:
    """torch (it was built for), ucx (whether it can use it)."""

# {"kind": "ucx" | "tcp", "config": Config, "advertise_host": "", "library_dir": ""}, the last for UCX
# {"kind": "gloo", "backend": Backend with one rank a node, for this transport alone}
Transport = dict[str, Any]

def try_transport(transport: Transport) -> None:
    """Makes the transport and drops it: ValueError says which of its settings is wrong."""

class StepOutcome:
    @property
    def took_anchor(self) -> bool: ...
    @property
    def leaving(self) -> bool: ...

class SessionStatus:
    @property
    def site(self) -> str: ...
    @property
    def generation(self) -> int: ...
    @property
    def round(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def steps_since_round(self) -> int: ...
    @property
    def bytes_sent(self) -> int: ...
    @property
    def bytes_received(self) -> int: ...
    @property
    def egress_spent(self) -> int: ...
    @property
    def state(self) -> str: ...

# A copy of the optimizer's state as (description, uint8 on the CPU), or why there is none. Called when a joiner asks,
# on the caller's thread, before or during the call it is passed to.
Serve = Callable[[], tuple[str, torch.Tensor] | str]

class Session:
    def begin(self) -> None: ...
    def count_step(self, samples: int, serve: Serve | None = None) -> bool:
        """True: a round is due, or one that ran behind the training is to be merged, and synchronize() is to follow."""
    def synchronize(self, serve: Serve | None = None, until: int = 0) -> StepOutcome:
        """`until`: more rounds up to this one, as settles_at() gave it at some site."""

    def settles_at(self) -> int:
        """The round that must have been for all that was trained here to be averaged; 0: nothing waits for one."""
    def ask_optimizer(self) -> tuple[str, str, int]:
        """(source, description, bytes) of one member's copy, of the next with each call until end_optimizer. Leader
        only.
        ConnectionError: nobody has any; TimeoutError: nobody in time."""
    def take_optimizer(self) -> torch.Tensor:
        """The bytes that were offered, as uint8. ConnectionError: they are lost, ask again."""
    def end_optimizer(self, cold: str) -> None:
        """They are in use; or, because of `cold`, not wanted. To the log and the events."""
    def broadcast(self, bytes: torch.Tensor) -> None:
        """All ranks of the site are given its leader's contiguous uint8 on the CPU."""
    def note_loss(self, loss: float) -> None:
        """Told with the next round. Leader only."""
    def ask_to_leave(self) -> None: ...
    def replace_tensor(self, position: int, tensor: torch.Tensor) -> None:
        """Another tensor of the same shape and type stands at this position of the vector from here on."""
    def keep_out(self) -> None:
        """Before finish(), at any rank: the site has no last round, and its parameters stay as they are."""
    def finish(self, next_generation: int = 0) -> None: ...
    def status(self) -> SessionStatus: ...

def watch_for_termination(limit: timedelta) -> bool: ...
def termination_requested() -> bool: ...
def termination_signal() -> str: ...
def end_by_parent_only() -> None: ...
def carry_out_termination() -> NoReturn: ...
def make_session(
    *,
    config: Config,
    site: str,
    job: str,
    record_dir: str = "",
    record_scope: str = "",
    generation: int = 1,
    egress_spent: int = 0,
    site_rank: int,
    site_size: int,
    one_host: bool,
    coordinators: Sequence[str],
    model: Sequence[tuple[str, str, Sequence[int], str, str]],
    parameters: Sequence[torch.Tensor],
    compared_elements: int = ...,
    site_group: Backend | None = None,
    transport: Transport | None = None,
    resumed: bool = False,
    world: int = 0,
) -> Session:
    """`model` has a row (name, dtype, shape, "averaged", "frozen" or "left out", digest of the latter two or "") for
    every tensor sites compare; `parameters` are the vector's tensors in order, of which the first `compared_elements`
    must be alike at the site's ranks (default: all). `site_group` is a backend over the site's ranks that nobody else
    uses (None for one rank); `transport` is needed at site_rank 0, where `resumed` says that the script had loaded a
    state, and `world` is the number of the world of collectives at the hub (0: there is none)."""

class CoordinatorServer:
    @property
    def address(self) -> str: ...
    def wait_until_empty(self, limit: timedelta) -> None: ...
    def close(self) -> None: ...

class Page:
    @property
    def announcement(self) -> str: ...
    def close(self) -> None:
        """Before its coordinator."""

def serve_page(
    config: Config,
    coordinator: CoordinatorServer,
    dialled: str,
    *,
    http: str,
    insecure: bool = False,
    certificate: str = "",
    key: str = "",
    objective: str = "",
    leaderboard: str = "",
    join: str = "",
) -> Page:
    """A read-only page for a browser. `join`: the command for another site, where it is not one that dials this
    coordinator. ValueError names the option that is wrong."""

class HelperServer:
    def wait(self, limit: timedelta) -> bool:
        """False: it is at work still when `limit` has passed. Raises why it has come to its end."""
    def leave(self) -> None: ...

def serve_helper(config: Config, site: str, transport: Transport) -> HelperServer: ...
def serve_coordinator(config: Config, transport: Transport, listen: str) -> CoordinatorServer: ...
def query_status(transport: Transport, address: str, limit: timedelta) -> str: ...
def tell_forget(transport: Transport, address: str, sites: Sequence[str], limit: timedelta) -> str: ...
def measure_line(transport: Transport, address: str, time: timedelta, listen: str) -> dict[str, Any]:
    """round_trip_ms, mbit_up, mbit_down, own_address, not_dialled: see core/runtime/line_probe.h."""

class LineAnswerer:
    """Answers until it is gone."""
    @property
    def address(self) -> str: ...

def answer_line(transport: Transport, listen: str) -> LineAnswerer: ...
def tensor_digest(tensor: torch.Tensor) -> str: ...
def read_state_header(path: str) -> dict[str, Any]:
    """swarm, run, round, model (rows as in make_session)."""

def read_state(path: str) -> tuple[dict[str, Any], torch.Tensor]:
    """(header, anchor as float32)."""

def find_orphan_arenas() -> list[tuple[str, int, str]]:
    """(path, bytes, why it is one)."""

def remove_orphan_arena(path: str) -> None: ...
def find_records(folder: str) -> list[tuple[str, int, int, str]]:
    """(path, bytes, seconds since it was written last, who has it or "")."""

def remove_record(path: str, least: int) -> None:
    """With what was set aside and its lock. Refused when somebody has it, or it is younger than `least` seconds."""
