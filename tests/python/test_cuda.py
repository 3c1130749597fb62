"""GPUs: what can be seen without one, and, marked `cuda`, what cannot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from commands import PATIENCE, bare_environment
from logs import said
from ranks import expect_success, run_ranks
from torch_collab import torch_compat
from torch_collab.capture import rounds, running, steps
from torch_collab.cli import run
from torch_collab.world import groups, state

# ---- steps


@pytest.mark.parametrize(
    ("found", "device", "skipped"), [(0.0, "cpu", False), (1.0, "cpu", True), (1.0, "meta", False)]
)
def test_a_step_that_the_scaler_skips_is_noticed_if_no_device_is_waited_for(
    found: float, device: str, skipped: bool
) -> None:
    optimizer = SimpleNamespace(found_inf=torch.tensor([found], device=device))  # to read a meta tensor is an error
    assert torch_compat.skipped_by_scaler(optimizer) is skipped


def test_a_step_in_a_graph_counts_when_it_is_replayed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = said(monkeypatch)
    parameter = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    counted: list[object] = []
    unseen = SimpleNamespace(stepped=lambda: None)
    training: Any = SimpleNamespace(
        trains=lambda each: True, ends_step=lambda each: True, optimizers=[optimizer], unseen=unseen
    )
    training.number_of = lambda each: 0
    copies = SimpleNamespace(others_stepped=lambda: None)
    info = SimpleNamespace(several_sites=False)
    of_run = SimpleNamespace(finished=False)
    world: Any = SimpleNamespace(run=of_run, training=training, is_leader=True, copies=copies, info=info)
    world.training.cycle = SimpleNamespace(before=lambda key: counted.append("of another") or False)
    monkeypatch.setattr(state, "current", lambda: world)
    monkeypatch.setattr(rounds, "count", counted.append)
    monkeypatch.setattr(steps.optimizer_state, "before_step", lambda *of: counted.append("copied"))
    monkeypatch.setattr(steps, "capturing", lambda: True)
    for _ in range(2):
        steps.before_optimizer_step(optimizer, (optimizer,), {})
        steps.after_optimizer_step(optimizer, (optimizer,), {})
    assert counted == []
    assert not running._here.inside
    assert len(told) == 1
    assert "Call torch_collab.step() after each graph.replay()" in told[0] and "[capture.cuda-graph]" in told[0]
    monkeypatch.setattr(steps, "capturing", lambda: False)
    steps.before_optimizer_step(optimizer, (optimizer,), {})
    steps.after_optimizer_step(optimizer, (optimizer,), {})
    assert counted == ["of another", "copied", world]


# ---- groups inside a site


@pytest.mark.parametrize(
    ("gpus", "backends"),
    [
        (["GPU a", "GPU b"], [groups._WITH_NCCL]),
        (["", ""], [groups._WITH_NCCL]),  # a module on the host
        (["GPU a", "GPU a"], [groups._WITH_NCCL, "gloo"]),
    ],
)
def test_ranks_that_share_a_gpu_have_gloo(
    monkeypatch: pytest.MonkeyPatch, gpus: list[str], backends: list[str]
) -> None:
    told = said(monkeypatch)
    made: list[str] = []

    def new_group(ranks: list[int], backend: str, **others: Any) -> object:
        made.append(backend)
        return object()

    def gather(names: list[str], own: str, group: object) -> None:
        assert own == gpus[0] and len(names) == 2
        names[:] = gpus

    monkeypatch.setattr(groups, "inside_backend", lambda: groups._WITH_NCCL)
    monkeypatch.setattr(groups, "gpu_of", lambda module: gpus[0])
    monkeypatch.setattr(groups.dist, "new_group", new_group)
    monkeypatch.setattr(groups.dist, "all_gather_object", gather)
    monkeypatch.setattr(groups.torch_compat, "keep_ddp_log_off", lambda group: None)
    info: Any = SimpleNamespace(rank=0, one_host=True, timeout=None, site=SimpleNamespace(ranks=(0, 1)))
    monkeypatch.setattr(groups.dist, "get_process_group_ranks", lambda group: [0, 1])
    monkeypatch.setattr(groups, "_is_collab", lambda group: False)
    of_site = groups.SiteGroups(info)
    site = of_site.site()  # as DistributedDataParallel has it, before it knows its module
    groups_of_two = [of_site.inside(site, torch.nn.Linear(2, 2)) for _ in range(2)]
    assert groups_of_two == [of_site.site()] * 2
    assert made == backends
    assert ["share GPU a" in message for message in told] == ([True] if backends[-1] == "gloo" else [])


@pytest.mark.parametrize(("kind", "taken"), [("cpu:gloo,cuda:nccl", True), ("cpu:collab,cuda:collab", False)])
def test_a_group_inside_the_site_has_nccl_however_it_was_made(
    monkeypatch: pytest.MonkeyPatch, kind: str, taken: bool
) -> None:
    group: Any = object()
    monkeypatch.setattr(groups.dist, "get_process_group_ranks", lambda group: [0, 2])
    monkeypatch.setattr(groups.dist, "get_backend_config", lambda group: kind)
    info: Any = SimpleNamespace(rank=0, site=SimpleNamespace(ranks=(0, 1, 2)))
    of_site = groups.SiteGroups(info)
    ours: Any = object()
    of_site._made[(0, 2)] = ours
    assert of_site.inside(group) is (group if taken else ours)


def test_a_module_on_the_host_is_on_no_gpu() -> None:
    assert groups.gpu_of(None) == groups.gpu_of(torch.nn.Linear(2, 2)) == groups.gpu_of(torch.nn.ReLU()) == ""


# ---- collab run


@pytest.mark.parametrize(
    ("device", "torch_version", "processes"),
    [
        ("nvidia0", "2.13.0+cu130", "gpu"),
        ("nvidia0", "2.13.0", "gpu"),
        ("nvidia0", "2.13.0+cpu", "1"),
        ("", "2.13.0", "1"),
    ],
)
def test_a_torch_for_cpus_has_one_process_beside_gpus(
    monkeypatch: pytest.MonkeyPatch, device: str, torch_version: str, processes: str
) -> None:
    monkeypatch.setattr(run.glob, "glob", lambda pattern: [device] if device and "nvidia" in pattern else [])
    monkeypatch.setattr(run, "version", lambda name: torch_version)
    assert run._processes() == processes


# ---- with a GPU

ONE_RANK = """
import json, os
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import torch_collab

last = torch.device("cuda", torch.cuda.device_count() - 1)
torch.cuda.set_device(last)
dist.init_process_group("collab", store=dist.HashStore(), rank=0, world_size=1)
torch.manual_seed(0)
linear = torch.nn.Linear(8, 8, device=last)
linear.weight.data = linear.weight.data.t()  # a strided parameter
ddp = DistributedDataParallel(linear, device_ids=[last.index])
optimizer = torch.optim.AdamW(ddp.parameters(), lr=0.01, fused=True)
scaler = torch.amp.GradScaler("cuda")
for step in range(6):
    scaler.scale(ddp(torch.ones(4, 8, device=last)).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
seen = torch_collab.status()["steps"]
total = torch.ones(4, device=last)
dist.all_reduce(total)
gathered = [torch.empty(4, device=last)]
dist.all_gather(gathered, total)
sparse = torch.sparse_coo_tensor([[1, 3]], [1.0, 1.0], (4,), device=last)
dist.all_reduce(sparse)
torch.cuda.synchronize()
made = [index for index in range(torch.cuda.device_count()) if torch._C._cuda_hasPrimaryContext(index)]
values = [total.tolist(), gathered[0].tolist(), sparse.to_dense().tolist()]
dist.destroy_process_group()
print(json.dumps({"steps": seen, "contexts": made, "last": last.index, "values": values}))
"""


@pytest.mark.cuda
@pytest.mark.slow
def test_a_rank_trains_on_its_own_gpu_and_touches_no_other() -> None:
    environment = {**bare_environment(), "COLLAB_SYNC_EVERY": "2"}
    done = subprocess.run(
        [sys.executable, "-c", ONE_RANK], env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["steps"] == 6 and told["values"] == [[1.0] * 4, [1.0] * 4, [0.0, 1.0, 0.0, 1.0]]
    assert told["contexts"] == [told["last"]], "a context on another GPU"


@pytest.mark.cuda
def test_a_captured_stream_is_known() -> None:
    from torch_collab.model.values import capturing

    seen = [capturing()]
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        seen.append(capturing())
    assert seen == [False, True]


@pytest.mark.cuda
@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "steps"),
    [
        ("fused", "12"),
        ("capturable", "12"),
        ("half", "12"),
        ("scaled", "12"),
        ("streams", "12"),
        ("graph", "13"),
        ("compiled", "12"),
        ("norms", "12"),
    ],
)
@pytest.mark.parametrize(
    "knobs",
    [
        {},
        {"COLLAB_OVERLAP": "1"},
        {"COLLAB_FRAGMENTS": "2", "COLLAB_OVERLAP": "1", "COLLAB_CODEC": "int4", "COLLAB_OUTER_OPTIMIZER": "nesterov"},
    ],
    ids=["blocking", "overlap", "fragments"],
)
def test_sites_on_gpus_end_with_one_model(case: str, steps: str, knobs: dict[str, str]) -> None:
    for rank in expect_success(run_ranks("gpu.py", ["a", "b"], case, environment={"COLLAB_SYNC_EVERY": "4", **knobs})):
        assert f"steps {steps} rounds" in rank.output and "done" in rank.output, rank.output
        assert "Traceback" not in rank.output, rank.output


@pytest.mark.cuda
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "file",
    [
        "test_collectives.py",
        "test_elastic.py",
        "test_fragments.py",
        "test_optimizer_state.py",
        "test_overlap.py",
        "test_step_collectives.py",
        "test_values.py",
        "test_worldwide.py",
    ],
)
def test_promises_on_the_host_hold_on_the_device(file: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not cuda", str(Path(__file__).with_name(file))]
    done = subprocess.run(command, env={**os.environ, "TEST_DEVICE": "cuda"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
