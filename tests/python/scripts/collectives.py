"""One rank of a world that runs the collectives it is asked for, over collab and over a reference, and compares bits.

Cases come as JSON through the store ("case/K"), answers go back ("answer/K/RANK"): "same", or what differs.
"""

from __future__ import annotations

import json
import os
import traceback
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from common import RANK, WORLD, drawn

Tensors = list[torch.Tensor]
Case = dict[str, Any]

STORE = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), is_master=False, timeout=timedelta(seconds=300))
SITES: list[list[int]] = json.loads(os.environ["TEST_SITES"])  # ranks of each site, in site order
FLOATING = ("float32", "float64", "float16", "bfloat16", "complex64")
INTEGERS = ("int8", "uint8", "int16", "int32", "int64")
IN_ORDER = ("all_reduce", "all_reduce_coalesced", "reduce", "reduce_scatter", "reduce_scatter_tensor")


def integer_mean(case: Case) -> bool:
    return case["op"] in IN_ORDER and case["reduce_op"] == "AVG" and case["dtype"] in INTEGERS


def make(case: Case, rank: int, what: int, shape: list[int]) -> torch.Tensor:
    """What `rank` brings: the same at every rank."""
    host: Any = {"generator": torch.Generator().manual_seed(case["seed"] * 1009 + rank * 31 + what), "device": "cpu"}
    dtype = getattr(torch, case["dtype"])
    if case["dtype"] == "bool":
        return drawn(torch.rand(shape, **host) < 0.5)
    if integer_mean(case):
        return drawn(torch.randint(-(2**62), 2**62, shape, **host).to(dtype))
    if not dtype.is_floating_point and not dtype.is_complex:
        return drawn(torch.randint(0, 7, shape, **host).to(dtype))
    if dtype.is_complex:
        return drawn(torch.randn(shape, dtype=dtype, **host))
    return drawn((torch.randn(shape, **host) * 3).to(dtype))


def strided(tensor: torch.Tensor, case: Case) -> torch.Tensor:
    """The same values, stored column by column."""
    if not case["strided"] or tensor.dim() < 2:
        return tensor
    order = list(reversed(range(tensor.dim())))
    return tensor.permute(order).contiguous().permute(order)


def inputs(case: Case, rank: int) -> Tensors:
    shape = case["shape"]
    if case["op"] in ("reduce_scatter", "all_to_all"):
        return [make(case, rank, i, shape) for i in range(WORLD)]
    if case["op"] == "scatter":
        return [make(case, rank, i, shape) for i in range(WORLD)] if rank == case["root"] else []
    if case["op"] == "reduce_scatter_tensor":
        return [make(case, rank, 0, [WORLD * shape[0], *shape[1:]])]
    if case["op"] in ("all_reduce_coalesced", "all_gather_coalesced"):
        return [make(case, rank, 0, shape), make(case, rank, 1, [3]), make(case, rank, 2, [1, *shape])]
    if case["op"] == "all_to_all_single":
        return [make(case, rank, 0, [sum((rank + to) % 3 for to in range(WORLD)), 2])]
    return [strided(make(case, rank, 0, shape), case)]


def empty(case: Case, shape: list[int]) -> torch.Tensor:
    return torch.zeros(shape, dtype=getattr(torch, case["dtype"]))


def run(case: Case, group: dist.ProcessGroup) -> Tensors:
    """This rank's result."""
    op, shape, root, given = case["op"], case["shape"], case["root"], inputs(case, RANK)
    how = {"group": group, "async_op": case["async"]}
    reduce_op = getattr(dist.ReduceOp, case["reduce_op"])
    rows = [WORLD * shape[0], *shape[1:]]
    if op == "all_reduce":
        out, work = given, dist.all_reduce(given[0], reduce_op, **how)
    elif op == "all_reduce_coalesced":
        out, work = given, dist.all_reduce_coalesced(given, reduce_op, **how)
    elif op == "reduce":
        out, work = given, dist.reduce(given[0], root, reduce_op, **how)
    elif op == "reduce_scatter":
        out = [empty(case, shape)]
        work = dist.reduce_scatter(out[0], given, reduce_op, **how)
    elif op == "reduce_scatter_tensor":
        out = [empty(case, shape)]
        work = dist.reduce_scatter_tensor(out[0], given[0], reduce_op, **how)
    elif op == "broadcast":
        out, work = given, dist.broadcast(given[0], root, **how)
    elif op == "all_gather":
        out = [empty(case, shape) for _ in range(WORLD)]
        work = dist.all_gather(out, given[0].contiguous(), **how)
    elif op == "all_gather_into_tensor":
        out = [empty(case, rows)]
        work = dist.all_gather_into_tensor(out[0], given[0].contiguous(), **how)
    elif op == "all_gather_coalesced":
        lists = [[torch.zeros_like(t) for t in given] for _ in range(WORLD)]
        work = dist.all_gather_coalesced(lists, given, **how)
        out = [t for tensors in lists for t in tensors]
    elif op == "gather":
        out = [empty(case, shape) for _ in range(WORLD)] if root == RANK else []
        work = dist.gather(given[0].contiguous(), out or None, root, **how)
    elif op == "scatter":
        out = [empty(case, shape)]
        work = dist.scatter(out[0], given or None, root, **how)
    elif op == "all_to_all":
        out = [empty(case, shape) for _ in range(WORLD)]
        work = dist.all_to_all(out, given, **how)
    elif op == "all_to_all_single":
        counts_out = [(source + RANK) % 3 for source in range(WORLD)]
        counts_in = [(RANK + to) % 3 for to in range(WORLD)]
        out = [empty(case, [sum(counts_out), 2])]
        work = dist.all_to_all_single(out[0], given[0], counts_out, counts_in, **how)
    elif op == "ring":
        out = [empty(case, shape)]
        to, source = (RANK + 1) % WORLD, (RANK - 1) % WORLD
        ops = [
            dist.P2POp(dist.isend, given[0].contiguous(), to, group),
            dist.P2POp(dist.irecv, out[0], source, group),
        ]
        for request in dist.batch_isend_irecv(ops):
            request.wait()
        work = None
    else:
        raise ValueError(f"no operation {op}")
    if isinstance(work, torch._C.Future):  # of the coalesced forms
        work.wait()
    elif work is not None:
        assert work.wait()
    return out if op != "reduce" or root == RANK else []  # elsewhere Gloo leaves what it likes


def mean_of(total: torch.Tensor) -> torch.Tensor:
    """A complex number is two floating ones to a reduction; integers are divided as NCCL divides them."""
    if total.is_complex():
        return torch.view_as_complex(torch.view_as_real(total) / WORLD)
    if not total.dtype.is_floating_point:
        return torch.div(total, WORLD, rounding_mode="trunc")
    return total / WORLD


def in_site_order(case: Case) -> Tensors:
    """What sums must be: within each site (of at most two ranks, so in any order), then site after site."""

    def combine(tensors: Tensors) -> torch.Tensor:
        total = tensors[0]
        for tensor in tensors[1:]:
            total = total * tensor if case["reduce_op"] == "PRODUCT" else total + tensor
        return total

    brought = [inputs(case, rank) for rank in range(WORLD)]
    totals = []
    for i in range(len(brought[0])):
        totals.append(combine([combine([brought[rank][i] for rank in ranks]) for ranks in SITES]))
    if case["reduce_op"] == "AVG":
        totals = [mean_of(total) for total in totals]
    if case["op"] == "reduce_scatter":
        return [totals[RANK]]
    if case["op"] == "reduce_scatter_tensor":
        return [totals[0].chunk(WORLD)[RANK]] if totals[0].numel() else [empty(case, case["shape"])]
    return totals if case["op"] != "reduce" or case["root"] == RANK else []


def attempt(case: Case, group: dist.ProcessGroup) -> Tensors | str:
    try:
        return run(case, group)
    except (RuntimeError, ValueError) as error:
        return type(error).__name__


def bits(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.contiguous().view(-1).view(torch.uint8).cpu().numpy()) if tensor.numel() else b""


def difference(case: Case, gloo: dist.ProcessGroup) -> str:
    ours = attempt(case, dist.group.WORLD)
    with torch.device("cpu"):  # where Gloo has all of them
        return different(case, ours, gloo)


def different(case: Case, ours: Tensors | str, gloo: dist.ProcessGroup) -> str:
    theirs = in_site_order(case) if integer_mean(case) else attempt(case, gloo)
    if isinstance(ours, str) or isinstance(theirs, str):
        both = isinstance(ours, str) and isinstance(theirs, str)
        return "same" if both else f"only one of them refuses it: collab {ours}, gloo {theirs}"
    ordered = len(SITES) > 1 and case["op"] in IN_ORDER and case["dtype"] in FLOATING
    if ordered and case["reduce_op"] in ("SUM", "AVG", "PRODUCT"):
        theirs = in_site_order(case)
    if len(ours) != len(theirs):
        return f"{len(ours)} tensors, expected {len(theirs)}"
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype or bits(a) != bits(b):
            return f"tensor {i}: {a} expected {b}"
    return "same"


def main() -> None:
    dist.init_process_group("collab", timeout=timedelta(seconds=60))
    gloo = dist.new_group(backend="gloo")
    number = 0
    while True:
        case = json.loads(STORE.get(f"case/{number}"))
        if case["op"] == "stop":
            break
        try:
            answer = difference(case, gloo)
        except Exception:
            answer = traceback.format_exc()
        STORE.set(f"answer/{number}/{RANK}", answer)
        number += 1
    dist.destroy_process_group()


main()
