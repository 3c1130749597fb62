"""Process groups inside a site, and what the backend of a group runs on.

The site's is a real torch group over its ranks: Gloo for CPU tensors, NCCL for CUDA tensors when torch has it.
NCCL refuses two ranks on one GPU, so those that share one have Gloo for all. Making a group is collective among its
ranks, as `dist.new_group(use_local_synchronization=True)` is.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from torch_collab import log, native, torch_compat

if TYPE_CHECKING:
    from datetime import timedelta

    from torch.distributed import ProcessGroup, Store

    from torch_collab import _C
    from torch_collab.world.topology import Sites, WorldInfo


_INTERFACE = "GLOO_SOCKET_IFNAME"
_LOOPBACK = "lo"
_WITH_NCCL = "cpu:gloo,cuda:nccl"


@contextlib.contextmanager
def gloo_listens_here_only(one_host: bool) -> Iterator[None]:
    """While groups are made inside, Gloo listens on loopback only, if all their ranks are on one host.

    torch has no argument for this. A GLOO_SOCKET_IFNAME from the user takes precedence.
    """
    if not one_host or os.environ.get(_INTERFACE) or not _is_up(_LOOPBACK):
        yield
        return
    os.environ[_INTERFACE] = _LOOPBACK
    try:
        yield
    finally:
        os.environ.pop(_INTERFACE, None)


def _is_up(interface: str) -> bool:
    try:
        return bool(int(Path(f"/sys/class/net/{interface}/flags").read_text(), 16) & 1)
    except (OSError, ValueError):
        return False


def make_gloo(store: Store, prefix: str, rank: int, size: int, timeout: timedelta) -> Any:
    """A ProcessGroupGloo that torch.distributed does not know of."""
    if not dist.is_gloo_available():
        raise RuntimeError("collab: this torch was built without Gloo, which collab needs [ddp.no-gloo]")
    return torch_compat.bare_gloo(f"collab/{prefix}", store, rank, size, timeout)


_made: Counter[tuple[str, tuple[int, ...]]] = Counter()


def again(store: Store, time: int) -> Store:
    """The part of the store for a group's ranks when the group is made for the `time`-th time."""
    return dist.PrefixStore(f"collab/made{time}", store)


@dataclass(frozen=True)
class GroupOptions:
    """What a backend is made from: the part of torch's _DistributedBackendOptions that is used here."""

    group_rank: int
    group_size: int
    timeout: timedelta
    store: Store | None = None
    group_id: str = ""
    ranks: tuple[int, ...] = ()  # ranks of the world, by rank of the group; (): all
    time: int = 1  # how often this process has made a group with that name and those ranks

    @staticmethod
    def of(opts: Any) -> GroupOptions:
        """Reads torch's options. A group that is destroyed and made again has the same name, and its store still holds
        what its ranks wrote the first time. So each process counts how often it made the group; all ranks count alike.
        The count is not in the store, which may outlive the processes, and which some ranks may reach later than
        others."""
        ranks = tuple(opts.global_ranks_in_group)
        _made[opts.group_id, ranks] += 1
        time = _made[opts.group_id, ranks]
        return GroupOptions(
            group_rank=opts.group_rank,
            group_size=opts.group_size,
            timeout=opts.timeout,
            store=again(opts.store, time),
            group_id=opts.group_id,
            ranks=ranks,
            time=time,
        )


@dataclass(frozen=True)
class HubGroup:
    """One process group at the hub."""

    hub_link: _C.HubLink
    group_id: int
    ranks: tuple[int, ...]  # ranks of the world
    site_names: tuple[str, ...]  # by rank of the group


def make_backend(opts: GroupOptions, sites: Sites, hub: HubGroup | None, one_host: bool, is_world: bool) -> Any:
    """Makes the backend of the process group that torch asks for; nothing else shares what it runs on.

    In one site this is Gloo over all ranks. With several sites, each site of several ranks has Gloo inside, and between
    sites there is a group of the hub. With COLLAB_TRANSPORT=gloo there is instead Gloo over all ranks, and over the
    lowest rank of each site. `one_host`: the ranks of this rank's site are on one host.
    """
    rank, mine = opts.group_rank, sites.of(opts.group_rank)
    world = site = leaders = None

    def gloo(prefix: str, ranks: Sequence[int]) -> Any:
        return make_gloo(opts.store, prefix, ranks.index(rank), len(ranks), opts.timeout)

    with gloo_listens_here_only(one_host):
        if len(sites.sites) == 1:
            world = gloo("world", mine.ranks)
        elif len(mine.ranks) > 1:
            site = gloo(f"site/{mine.leader}", mine.ranks)
    if len(sites.sites) > 1 and hub is None:
        world = gloo("world", range(opts.group_size))
        if rank == mine.leader:
            leaders = gloo("leaders", [each.leader for each in sites.sites])
    number = {other: index for index, each in enumerate(sites.sites) for other in each.ranks}
    return native.make_backend(
        rank=rank,
        size=opts.group_size,
        sites=[number[other] for other in range(opts.group_size)],
        world=world,
        site=site,
        leaders=leaders,
        **(vars(hub) if hub else {}),
        timeout=opts.timeout,
        is_world=is_world,
    )


def inside_backend() -> str:
    """The backend string for groups inside a site."""
    if torch.cuda.is_available() and dist.is_nccl_available():
        return _WITH_NCCL
    return "gloo"


def gpu_of(module: torch.nn.Module | None) -> str:
    """The GPU that holds the module's tensors, by a unique name; "" if none does."""
    parameter = next(module.parameters(), None) if module is not None else None
    if parameter is None or parameter.device.type != "cuda":
        return ""
    return f"GPU {torch.cuda.get_device_properties(parameter.device).uuid}"


def twice(names: Sequence[str]) -> str:
    """The first name that appears more than once, or ""."""
    return next((name for name in names if name and names.count(name) > 1), "")


def crosses_sites(info: WorldInfo, group: ProcessGroup | None) -> bool:
    ranks = range(info.size) if group is None else dist.get_process_group_ranks(group)
    return not set(ranks) <= set(info.site.ranks)


class SiteGroups:
    """torch's groups over ranks of this site. All their ranks make a group together when it is first needed."""

    def __init__(self, info: WorldInfo) -> None:
        self._info = info
        self._made: dict[tuple[int, ...], ProcessGroup] = {}
        self._all: list[ProcessGroup] = []  # all groups, including those that were replaced
        self._with_nccl: set[tuple[int, ...]] = set()  # the groups of several ranks that have NCCL

    def site(self) -> ProcessGroup:
        return self._of(self._info.site.ranks)

    def is_site(self, group: ProcessGroup) -> bool:
        return bool(group == self._made.get(self._info.site.ranks))

    def inside(self, group: ProcessGroup, module: torch.nn.Module | None = None) -> ProcessGroup:
        """The group that a script asked for, restricted to the ranks of this site.

        With the `module` that it is for, all these ranks must call at once: they check whether they share a GPU.
        """
        ranks = dist.get_process_group_ranks(group)
        inside = tuple(rank for rank in ranks if rank in self._info.site.ranks)
        if len(inside) == len(ranks) and not (_is_collab(group) or group in self._all):
            return group  # the script's own Gloo or NCCL group does as well as ours
        if module is not None:
            self._look_at_gpus(inside, module)
        return self._of(inside)

    def _of(self, ranks: tuple[int, ...]) -> ProcessGroup:
        if ranks not in self._made:
            backend = inside_backend()
            self._made[ranks] = self._make(ranks, backend)
            if backend == _WITH_NCCL and len(ranks) > 1:
                self._with_nccl.add(ranks)
        return self._made[ranks]

    def _look_at_gpus(self, ranks: tuple[int, ...], module: torch.nn.Module) -> None:
        group = self._of(ranks)
        if ranks not in self._with_nccl:
            return
        gpus: list[str] = [""] * len(ranks)
        dist.all_gather_object(gpus, gpu_of(module), group=group)  # over its Gloo: NCCL connects only when used
        if shared := twice(gpus):
            if self._info.rank == ranks[0]:
                log.info(f"ranks of this site share {shared}, which NCCL does not support: this site uses Gloo inside")
            self._made[ranks] = self._make(ranks, "gloo")
            self._with_nccl.remove(ranks)

    def _make(self, ranks: tuple[int, ...], backend: str) -> ProcessGroup:
        with gloo_listens_here_only(self._info.one_host):
            group = dist.new_group(
                list(ranks),
                timeout=self._info.timeout,
                backend=backend,
                use_local_synchronization=True,
                group_desc="collab_site" if ranks == self._info.site.ranks else "collab_part_of_site",
            )
        if group is None or group == dist.GroupMember.NON_GROUP_MEMBER:
            raise RuntimeError(
                f"collab: rank {self._info.rank} is not among the ranks {list(ranks)} of its own site "
                "[ddp.rank-elsewhere]"
            )
        torch_compat.keep_ddp_log_off(group)
        self._all.append(group)
        return group


def _is_collab(group: ProcessGroup) -> bool:
    return "collab" in str(dist.get_backend_config(group))


def all_collab(backends: str) -> bool:
    """Whether all `backends` are collab. torch writes one name, or DEVICE:BACKEND,DEVICE:BACKEND."""
    return all("collab" in backend for backend in backends.lower().split(","))
