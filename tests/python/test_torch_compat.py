"""What collab needs of torch is looked for when a world is made; what it puts into torch is taken out at the end."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from commands import bare_environment
from torch.distributed import distributed_c10d
from torch_collab import torch_compat
from torch_collab.torch_compat import EXPECTED, EXPECTED_OF_AGENT, UnfitTorch


def test_this_torch_is_fit_and_known() -> None:
    torch_compat.check()
    torch_compat.check(EXPECTED_OF_AGENT)
    assert torch_compat.untested() == ""


def gone(where: str) -> object:
    raise AttributeError(where)


@pytest.mark.parametrize("expected", (*EXPECTED, *EXPECTED_OF_AGENT), ids=lambda each: each.name)
@pytest.mark.parametrize("instead", [gone, lambda where: object()], ids=["gone", "other"])
def test_a_torch_that_has_it_otherwise_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, expected: torch_compat.Expected, instead: Callable[[str], object]
) -> None:
    torch_compat.check((expected,))
    monkeypatch.setattr("pkgutil.resolve_name", instead)
    words = f"collab: torch {torch.__version__} has no {expected.name} as collab knows it"
    with pytest.raises(UnfitTorch, match=re.escape(words) + r".* Use torch 2\.12, 2\.13\b.*\[ddp.torch-unfit\]"):
        torch_compat.check((expected,))


def test_a_torch_that_keeps_stores_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = distributed_c10d._world.pg_map
    before = dict(groups)
    monkeypatch.setattr(distributed_c10d, "_get_process_group_store", lambda group: groups[group][0])
    with pytest.raises(UnfitTorch, match=r"pg_map as collab knows it"):
        torch_compat.check()
    assert groups == before


def test_a_torch_with_another_interface_of_stores_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_compat, "TCP_STORE_QUESTION", struct.pack("=BIB", 0, 1, 7))
    with pytest.raises(UnfitTorch, match=r"TCPStore as collab knows it. collab needs it to tell a store"):
        torch_compat.check(EXPECTED_OF_AGENT)


@pytest.mark.parametrize(("version", "told"), [("2.11.0", True), ("2.130.0", True), ("2.13.5+cu130", False)])
def test_an_untested_version_of_torch_is_reported(monkeypatch: pytest.MonkeyPatch, version: str, told: bool) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    assert (f"torch {version} has all that collab needs, but" in torch_compat.untested()) == told


ALONE = """
import copyreg, os, sys
import torch, torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.nn.modules import module
from torch.optim import optimizer
from torch.nn.parallel import DistributedDataParallel, distributed as ddp_source
from torch.utils.data.distributed import DistributedSampler
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

def begin():
    dist.init_process_group("collab", store=dist.HashStore(), rank=0, world_size=1)
"""


def alone(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = bare_environment()
    command = [sys.executable, "-c", ALONE + code]
    return subprocess.run(command, env={**clean, **environment}, capture_output=True, text=True, timeout=100)


@pytest.mark.slow
def test_a_world_is_not_made_with_an_unfit_torch() -> None:
    done = alone("del optimizer.register_optimizer_step_post_hook\nbegin()\n")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert (
        "UnfitTorch: collab: torch" in last
        and "torch.optim.optimizer.register_optimizer_step_post_hook as collab knows it" in last
    )


@pytest.mark.slow
def test_a_version_that_was_not_tested_runs_with_one_warning() -> None:
    code = "from torch_collab import torch_compat\ntorch_compat.TESTED = ('9.1',)\n"
    done = alone(code + 2 * "begin()\ndist.destroy_process_group()\n")
    assert done.returncode == 0, done.stderr
    words = f"torch {torch.__version__} has all that collab needs, but it was tested with torch 2.12"
    assert done.stderr.count(words) == 1


@pytest.mark.slow
def test_a_world_is_not_made_with_another_torch_than_collab_was_built_beside() -> None:
    done = alone("torch.__version__ = '9.1.0'\nbegin()\n")
    assert done.returncode == 1
    words = r"UnfitTorch: collab: .* torch 2\.\d+\.\d+, but this is torch 9\.1\.0.*\[ddp.torch-replaced\]"
    assert re.search(words, done.stderr.splitlines()[-1]), done.stderr


LOG_OF_DDP = """
begin()
ddp = DistributedDataParallel(torch.nn.Linear(2, 2))
ddp(torch.ones(1, 2)).sum().backward()
print("gloo_num_threads" in ddp._get_ddp_logging_data(), ddp.process_group.size())
dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("level", "looked"), [("DETAIL", False), ("INFO", True)])
def test_the_log_of_ddp_does_not_look_into_a_wrapped_gloo(level: str, looked: bool) -> None:
    done = alone(LOG_OF_DDP, TORCH_DISTRIBUTED_DEBUG=level)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(looked), "1"]


RESTORED = """
POINTS = [
    (torch.nn.Module, "load_state_dict"), (torch.optim.Optimizer, "add_param_group"),
    (ddp_source, "_get_default_group"), (DistributedDataParallel, "_pre_forward"),
    (ddp_source.Join, "__enter__"), (ddp_source.Join, "__exit__"),
    (DistributedDataParallel, "register_comm_hook"), (distributed_c10d, "_new_group_with_tag"),
    (DistributedSampler, "__init__"), (PeriodicModelAverager, "average_parameters"),
    (dist, "destroy_process_group"), (distributed_c10d, "destroy_process_group"),
]
TABLES = [
    optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks,
    module._global_module_registration_hooks, distributed_c10d._world.comms,
]

def now():
    pickled = dist.ProcessGroup in copyreg.dispatch_table
    return [getattr(*point) for point in POINTS] + [list(table) for table in TABLES] + [pickled]

if "COLLAB_START" in os.environ:
    served = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    os.environ["COLLAB_SITE_STORE"] = f"127.0.0.1:{served.port}"
before = now()
begin()
torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1).step()
print([a != b for a, b in zip(before, now())])
dist.destroy_process_group()
assert now() == before, (before, now())
"""


@pytest.mark.slow
@pytest.mark.parametrize(("start", "new_group", "sampler"), [("", False, True), ("first-members", True, False)])
def test_patches_of_torch_are_removed_at_the_end(start: str, new_group: bool, sampler: bool) -> None:
    told = {"COLLAB_COORDINATOR": "127.0.0.1:1", **({"COLLAB_START": start} if start else {})}
    done = alone(RESTORED, **told)
    assert done.returncode == 0, done.stderr
    replaced = [*[True] * 7, new_group, sampler, True, False, False]
    assert done.stdout.splitlines() == [str(replaced + [True] * 5)]
