"""Names that are private to torch, or may change. Python uses them only here, C++ in `plugin/torch/torch_private.h`.

EXPECTED lists what is needed, and why. `check` looks when a world is made, never at `import torch`; it refuses a torch
that differs, with the name. Changes by `replace` and `on_destroy` to torch are undone when the world ends.

Where a new torch can break collab, in the order in which it shows:

- When the extension is built, anew for each minor version: `plugin/torch/torch_private.h` includes the private headers,
  `include/collab/torch/c10d_overrides.inc` is what two classes override of `c10d::Backend`, whose pybind11 holder
  `plugin/torch/bind_backend.cpp` shares, `plugin/torch/work.h` overrides `c10d::Work` twice, and
  `cmake/CollabFindTorch.cmake` names torch's libraries. The compiler or the linker says so.
- When it is imported from a wheel that has no extension for that minor version: `native.py` refuses
  (`ddp.torch-not-in-wheel`).
- When it was built beside another torch: `check_build` refuses (`ddp.torch-replaced`).
- When a world is made: `check(EXPECTED)`. When an agent of `torchrun --rdzv-backend=collab` starts:
  `check(EXPECTED_OF_AGENT)`. Both name what is missing (`ddp.torch-unfit`). A torch that has all, but is not in TESTED,
  is used with one warning (`untested`, `ddp.torch-untested`).
- When torchrun's agent asks the rendezvous' store for more than `rendezvous/agent_store.py` has: an AttributeError
  (`rendezvous.agent-store`). The documented parts of torchelastic are imported where they are used (`cli/run.py`,
  `rendezvous/handler.py`).
- When a site joins with an optimizer whose state has other names than `KEEPS` in `model/optimizer_copy.py` says: its
  optimizer begins with a fresh state.
- Silently: `checkpoint_saver` and `lightning_loops` look at modules that are loaded late. If these are renamed, the
  warning about checkpoints no longer appears, and a site does not notice that Lightning ends. Tests cover both.
"""

from __future__ import annotations

import contextlib
import inspect
import pkgutil
import socket
import struct
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import timedelta
from types import FrameType, SimpleNamespace
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.nn.modules import module as module_source
from torch.nn.parallel import distributed as ddp_source
from torch.optim import optimizer as optimizer_source
from torch.utils.data._utils import signal_handling
from torch.utils.data.distributed import DistributedSampler

TESTED = ("2.12", "2.13", "2.14", "2.15")  # 2.13 by every test; others by ci/matrix.sh
_TESTED = ", ".join(TESTED[:-1]) + " or " + TESTED[-1]


class UnfitTorch(RuntimeError):
    """This torch differs from those that collab was made for."""


class Expected(NamedTuple):
    where: str  # MODULE:NAME, as pkgutil.resolve_name has it
    purpose: str  # "which collab needs to ..."
    as_known: Callable[[Any], object] = callable  # of what is found there; an exception means no

    @property
    def name(self) -> str:
        return self.where.replace(":", ".")


def _takes(*names: str) -> Callable[[Any], bool]:
    return lambda function: tuple(inspect.signature(function).parameters)[: len(names)] == names


def _uses(*names: str) -> Callable[[Any], bool]:
    """Whether the function's own code uses attributes of these names."""
    return lambda function: set(names) <= set(inspect.unwrap(function).__code__.co_names)


def _is(value: object) -> Callable[[Any], bool]:
    return lambda found: bool(found == value)


def _has(*names: str) -> Callable[[Any], bool]:
    return lambda kind: all(hasattr(kind, name) for name in names)


def _holds_pairs(groups: dict[Any, Any]) -> bool:
    """Whether torch takes the second of a pair for a group's store."""
    group, store = object(), object()
    groups[group] = ("", store)
    try:
        return distributed_c10d._get_process_group_store(group) is store
    finally:
        del groups[group]


# What every client of a TCPStore sends first: VALIDATE with a magic number, then GETNUMKEYS, which changes nothing
# there (torch/csrc/distributed/c10d/TCPStoreBackend.hpp). A store of another kind hangs up.
TCP_STORE_QUESTION = struct.pack("=BIB", 0, 0x3C85F7CE, 7)
_ANSWER_SECONDS = 10.0


def _answers_question(make_store: Callable[..., Any]) -> bool:
    store = make_store("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with socket.create_connection(("127.0.0.1", store.port), timeout=_ANSWER_SECONDS) as line:
        line.sendall(TCP_STORE_QUESTION)
        return line.recv(16) == struct.pack("=q", store.num_keys())


EXIT_BARRIER, _LAST_MEMBER = "torchelastic/agent/terminal_state", "/last_member"
EVERYBODY_CAME = EXIT_BARRIER + _LAST_MEMBER

# The attributes that may be replaced: owner and name.
DEFAULT_GROUP_OF_DDP = (ddp_source, "_get_default_group")  # deepcopy and pickling of a DDP assume the default group
PRE_FORWARD = (ddp_source.DistributedDataParallel, "_pre_forward")
JOIN_ENTER, JOIN_EXIT = (ddp_source.Join, "__enter__"), (ddp_source.Join, "__exit__")
REGISTER_COMM_HOOK = (ddp_source.DistributedDataParallel, "register_comm_hook")
LOAD_STATE_DICT = (torch.nn.Module, "load_state_dict")
NEW_GROUP = (distributed_c10d, "_new_group_with_tag")
SAMPLER_INIT = (DistributedSampler, "__init__")
WORKER_SIGNALS = (signal_handling, "_set_worker_signal_handlers")  # runs in a DataLoader's worker when it begins

_SOURCE_OF_DDP, _C10D = "torch.nn.parallel.distributed", "torch.distributed.distributed_c10d"
_INSIDE, _ELASTIC = "keep gradients and groups inside a site", "torch.distributed.elastic"
_SIGNALS = "_set_worker_signal_handlers"
_DDP_IGNORES = "_ddp_params_and_buffers_to_ignore"
_OF_BACKEND = ("store", "group_rank", "group_size", "timeout", "group_id", "global_ranks_in_group")
_OF_JOIN = ("_joinables", "_enable", "_throw_on_early_termination")
EXPECTED = (
    Expected("torch._C:_current_graph_task_id", "tell steps inside backward", lambda task: task() == -1),
    Expected("torch.optim.optimizer:Optimizer.profile_hook_step", "tell whose step is running", _uses("wraps")),
    Expected("torch.optim.optimizer:register_optimizer_step_pre_hook", "see steps"),
    Expected("torch.optim.optimizer:register_optimizer_step_post_hook", "see steps"),
    Expected("torch.nn.modules.module:register_module_module_registration_hook", "see DDP modules being made"),
    Expected("torch.nn:Module.__setattr__", "follow a model's tensors", _uses("_modules", "_parameters", "_buffers")),
    Expected("torch.nn:Module.register_buffer", "follow a model's tensors", _uses("_non_persistent_buffers_set")),
    Expected(f"{_SOURCE_OF_DDP}:_get_default_group", "copy and unpickle DDP modules"),
    Expected(f"{_SOURCE_OF_DDP}:DistributedDataParallel.__init__", _INSIDE, _uses("module", "process_group")),
    Expected(f"{_SOURCE_OF_DDP}:DistributedDataParallel.__init__", "leave out what DDP ignores", _uses(_DDP_IGNORES)),
    Expected(f"{_SOURCE_OF_DDP}:DistributedDataParallel.no_sync", _INSIDE, _uses("require_backward_grad_sync")),
    Expected(f"{_SOURCE_OF_DDP}:DistributedDataParallel.register_comm_hook", _INSIDE, _uses("_comm_hooks")),
    Expected(f"{_SOURCE_OF_DDP}:DistributedDataParallel.forward", "see training forwards", _uses("_pre_forward")),
    Expected(f"{_SOURCE_OF_DDP}:Join.__init__", "run no round inside join()", _uses(*_OF_JOIN)),
    Expected(f"{_SOURCE_OF_DDP}:Join.__exit__", "run a round after join()"),
    Expected(f"{_C10D}:_new_group_with_tag", _INSIDE, _takes("ranks", "timeout", "backend")),
    Expected(f"{_C10D}:_world.pg_map", _INSIDE, _holds_pairs),
    Expected("torch._C._distributed_c10d:_DistributedBackendOptions", "make process groups", _has(*_OF_BACKEND)),
    Expected("torch._C._distributed_c10d:ProcessGroupGloo._set_sequence_number_for_group", _INSIDE),
    Expected("torch._C._distributed_c10d:ProcessGroup._set_default_backend", _INSIDE),
    Expected(
        "torch.utils.data.distributed:DistributedSampler.__init__",
        "give each site samples of its own",
        lambda init: _takes("self", "dataset", "num_replicas", "rank")(init) and _uses("seed")(init),
    ),
    Expected("torch.utils.data._utils.worker:_worker_loop", "load the last steps' data", _uses(_SIGNALS)),
    Expected("torch.amp:GradScaler.step", "tell steps that are skipped", _uses("found_inf")),
)
EXPECTED_OF_AGENT = (
    Expected(f"{_ELASTIC}.agent.server.api:_TERMINAL_STATE_SYNC_ID", "end a site's agents together", _is(EXIT_BARRIER)),
    Expected(f"{_ELASTIC}.utils.store:_LAST_MEMBER_CHECKIN", "end a site's agents together", _is(_LAST_MEMBER)),
    Expected("torch.distributed:TCPStore", "tell a store from what only accepts connections", _answers_question),
)


def check(expected: Iterable[Expected] = EXPECTED) -> None:
    """Raises UnfitTorch for the first expectation that does not hold."""
    for each in expected:
        try:
            fit = bool(each.as_known(pkgutil.resolve_name(each.where)))
        except Exception:
            fit = False
        if not fit:
            raise UnfitTorch(
                f"collab: torch {torch.__version__} has no {each.name} as collab knows it. collab needs it to "
                f"{each.purpose}. Use torch {_TESTED}, with which this version was tested, or a newer torch-collab "
                "[ddp.torch-unfit]"
            )


def _release(version: str) -> str:
    return ".".join(version.split(".")[:2])


def check_build(built: str) -> None:
    """`built`: the torch that `_C` was compiled against. Its backends derive from torch's classes, whose virtual
    functions have another order in another release: the module may load and crash later."""
    if _release(built) != _release(torch.__version__):
        raise UnfitTorch(
            f"collab: it was built for torch {built}, but this is torch {torch.__version__}. Install it again with "
            "`pip install --no-build-isolation .` [ddp.torch-replaced]"
        )


def untested() -> str:
    """A warning if collab was not tested with this version of torch, or ""."""
    if _release(torch.__version__) in TESTED:
        return ""
    return (
        f"torch {torch.__version__} has all that collab needs, but it was tested with torch {_TESTED} "
        "[ddp.torch-untested]"
    )


# ---- replacements in torch, and how they are undone ---------------------------------------------------


def replace(point: tuple[Any, str], make: Callable[[Any], Any]) -> Callable[[], None]:
    """Replaces the attribute `point` by what `make` builds around it. Returns a function that undoes this."""
    owner, name = point
    original = getattr(owner, name)
    ours = make(original)
    setattr(owner, name, ours)
    # If others have replaced it since, their function still calls ours, which does nothing once there is no world.
    return lambda: setattr(owner, name, original) if getattr(owner, name, None) is ours else None


def on_destroy(call: Callable[[], None]) -> Callable[[], None]:
    """Runs `call` before destroy_process_group() takes the world's groups down. Returns a function that undoes this."""
    communicators = getattr(distributed_c10d._world, "comms", None)
    if isinstance(communicators, list):
        finalizer = SimpleNamespace(finalize=call)  # torch calls finalize() on each of them
        communicators.append(finalizer)
        return lambda: communicators.remove(finalizer) if finalizer in communicators else None

    def make(original: Callable[..., None]) -> Callable[..., None]:  # for a torch without that list
        def destroy_process_group(group: Any = None) -> None:
            if group is None or group == dist.GroupMember.WORLD:
                call()
            original(group)

        return destroy_process_group

    undo = contextlib.ExitStack()
    for owner in (dist, distributed_c10d):
        undo.callback(replace((owner, "destroy_process_group"), make))
    return undo.close


@contextlib.contextmanager
def store_of_world(store: Any) -> Iterator[None]:
    """Groups made inside meet in `store`: torch has no argument for it, and takes the world group's store."""
    known, world = distributed_c10d._world.pg_map, dist.GroupMember.WORLD
    if world not in known:
        yield
        return
    backend, own = known[world]
    known[world] = (backend, store)
    try:
        yield
    finally:
        known[world] = (backend, own)


# ---- optimizers ----------------------------------------------------------------------------------------

# From frame_of_step() up to torch's wrapper: our frames, and those of torch.compiler.disable() in between.
_FRAMES_LOOKED_AT = 10


def hook_steps(before: Callable[..., Any], after: Callable[..., None]) -> list[Any]:
    """Hooks the steps of every optimizer. Returns the handles that remove the hooks."""
    return [
        optimizer_source.register_optimizer_step_pre_hook(before),
        optimizer_source.register_optimizer_step_post_hook(after),
    ]


def in_backward() -> bool:
    return bool(torch._C._current_graph_task_id() != -1)


def frame_of_step() -> FrameType | None:
    """The frame of torch's wrapper around a step(), for functions that a pre-hook of ours has called."""
    source = optimizer_source.Optimizer.profile_hook_step.__code__.co_filename
    frame = inspect.currentframe()
    for _ in range(_FRAMES_LOOKED_AT):
        if frame is None or frame.f_code.co_filename == source:
            return frame
        frame = frame.f_back
    return None


def skipped_by_scaler(optimizer: Any) -> bool:
    """Whether a fused optimizer was called although GradScaler found an Inf; it then skips the update itself.

    On an accelerator the flag is not on the host yet, and reading it would wait for the backward pass, so such a step
    counts.
    """
    found_inf = getattr(optimizer, "found_inf", None)
    return isinstance(found_inf, torch.Tensor) and found_inf.device.type == "cpu" and bool(found_inf)


# ---- modules -------------------------------------------------------------------------------------------


def hook_registration(hook: Callable[..., None]) -> Any:
    """Calls `hook(module, name, submodule)` before any module takes a submodule. Returns the handle that removes it."""
    return module_source.register_module_module_registration_hook(hook)


def slots_of(module: torch.nn.Module) -> tuple[dict[str, Any], dict[str, Any]]:
    """The dicts with a module's own parameters and buffers."""
    return module._parameters, module._buffers


def children_of(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    return (child for child in module._modules.values() if child is not None)


def not_persistent(module: torch.nn.Module) -> Iterable[str]:
    """Names of a module's own buffers that are not in its state_dict."""
    return getattr(module, "_non_persistent_buffers_set", ())


def ignored_by_ddp(module: torch.nn.Module) -> Collection[str]:
    """Names from DDP._set_params_and_buffers_to_ignore_for_model; DDP writes those of the root as `.name`."""
    return getattr(module, _DDP_IGNORES, None) or ()


def is_dtensor(tensor: torch.Tensor) -> bool:
    return type(tensor).__name__ == "DTensor" or hasattr(tensor, "_local_tensor")


def is_fsdp(module: torch.nn.Module) -> bool:
    return type(module).__name__ == "FullyShardedDataParallel"


def syncs_gradients(ddp: torch.nn.Module) -> bool:
    """False under no_sync()."""
    return bool(getattr(ddp, "require_backward_grad_sync", True))


def uneven_ddps(join: Any) -> list[torch.nn.Module]:
    """The DDPs of a Join whose ranks may make different numbers of steps; empty if all ranks end with the first."""
    joinables, enabled, throws = (getattr(join, name) for name in _OF_JOIN)
    return [each for each in joinables if enabled and not throws and isinstance(each, torch.nn.Module)]


def comm_hooks_of(ddp: Any) -> list[tuple[Callable[..., Any], object]]:
    hooks: list[tuple[Callable[..., Any], object]] = ddp._comm_hooks
    return hooks


def is_torch_hook(hook: object) -> bool:
    # A wrapper (fp16_compress_wrapper) is defined in torch's module as well; its state is the wrapped hook's.
    return getattr(hook, "__module__", "").startswith("torch.distributed.algorithms.ddp_comm_hooks")


def model_averager() -> Any | None:
    """The class that PostLocalSGDOptimizer averages with, once torch has loaded it."""
    source = sys.modules.get("torch.distributed.algorithms.model_averaging.averagers")
    return None if source is None else source.PeriodicModelAverager


def lightning_loops() -> Iterator[tuple[Any, str, Any]]:
    """Where Lightning's Trainer, once loaded, broadcasts whether to end, and the exception that it then raises."""
    name = "_broadcast_sigterm_tensor"
    for package in ("lightning.pytorch", "pytorch_lightning"):
        source = sys.modules.get(f"{package}.loops.training_epoch_loop")
        loop, error = getattr(source, "_TrainingEpochLoop", None), getattr(source, "SIGTERMException", None)
        if hasattr(loop, name) and error is not None:
            yield loop, name, error


def checkpoint_saver() -> tuple[Any, str] | None:
    """The function that every save of torch.distributed.checkpoint calls, once torch has loaded it."""
    source, name = sys.modules.get("torch.distributed.checkpoint.state_dict_saver"), "_save_state_dict"
    takes_group = hasattr(source, name) and "process_group" in inspect.signature(getattr(source, name)).parameters
    return (source, name) if takes_group else None


# ---- groups and stores ---------------------------------------------------------------------------------


def bare_gloo(prefix: str, store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    """A ProcessGroupGloo that torch.distributed does not know of."""
    c10d = torch._C._distributed_c10d
    gloo = c10d.ProcessGroupGloo(c10d.PrefixStore(prefix, store), rank, size, timeout=timeout)
    gloo._set_sequence_number_for_group()
    return gloo


def keep_ddp_log_off(group: Any) -> None:
    """Fixes up a group's Gloo if debug level DETAIL has put a wrapper around it.

    DDP's constructor takes a default backend "gloo" for a ProcessGroupGloo, to log its threads (set_env_variables in
    torch/csrc/distributed/c10d/logger.cpp). The wrapper is smaller, so DDP follows a pointer beyond its end. Without a
    default DDP does not look. Collectives need no default, for they go by their tensors' device.
    """
    if dist.get_debug_level() == dist.DebugLevel.DETAIL and group.name() == "gloo":
        group._set_default_backend(dist.ProcessGroup.BackendType.UNDEFINED)
