"""What a script may do around collectives, over two sites of two ranks (a, b, a, b); checked at every rank.

collective_semantics.py WHAT...     functions of this file, one after the other in one world
"""

from __future__ import annotations

import os
import sys
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from common import RANK, WORLD

TIMEOUT = timedelta(seconds=3) if sys.argv[1] == "missing_rank" else timedelta(seconds=60)


def ranks_sum() -> float:
    return float(sum(range(1, WORLD + 1)))


def futures() -> None:
    """Works complete in the background, their futures call back, also from callbacks of callbacks."""
    seen = []
    works = []
    for i in range(20):
        tensor = torch.full((100,), float(RANK + 1 + i))
        work = dist.all_reduce(tensor, async_op=True)
        work.get_future().then(lambda f, i=i: seen.append((i, f.value()[0][0].item())))
        works.append(work)
    for work in works:
        assert work.wait(timedelta(seconds=30))
    chained = dist.all_reduce(torch.ones(3), async_op=True).get_future()
    doubled = chained.then(lambda f: dist.all_reduce(f.value()[0], async_op=True).get_future().wait()[0])
    assert doubled.wait()[0].item() == WORLD * WORLD
    dist.barrier()
    assert sorted(seen) == [(i, ranks_sum() + WORLD * i) for i in range(20)], seen
    work = dist.all_reduce(torch.ones(2), async_op=True)
    work.wait()
    assert work.is_completed() and work.is_success() and work.result()[0][0].item() == WORLD


def objects() -> None:
    gathered: list[object] = [None] * WORLD
    dist.all_gather_object(gathered, {"rank": RANK, "text": "x" * RANK})
    assert gathered == [{"rank": r, "text": "x" * r} for r in range(WORLD)]
    told = [f"from {RANK}"]
    dist.broadcast_object_list(told, src=2)
    assert told == ["from 2"]
    mine: list[object] = [None]
    dist.scatter_object_list(mine, [("for", r) for r in range(WORLD)] if RANK == 1 else None, src=1)
    assert mine == [("for", RANK)]
    collected: list[object] | None = [None] * WORLD if RANK == 3 else None
    dist.gather_object(RANK, collected, dst=3)
    assert collected is None or collected == list(range(WORLD))


def groups() -> None:
    """Across sites, inside one, and of one rank."""
    for ranks in ([0, 1, 2], [0, 2], [1, 3], [2], [3, 2, 1, 0]):
        group = dist.new_group(ranks)
        if RANK not in ranks:
            continue
        tensor = torch.full((4,), float(RANK + 1))
        dist.all_reduce(tensor, group=group)
        assert tensor[0].item() == sum(r + 1 for r in ranks)
        dist.barrier(group)
        gathered: list[object] = [None] * len(ranks)
        dist.all_gather_object(gathered, RANK, group=group)
        assert sorted(gathered) == sorted(ranks)
    local = dist.new_group([RANK], use_local_synchronization=True)
    one = torch.ones(1)
    dist.all_reduce(one, group=local)
    assert one.item() == 1.0


def point_to_point() -> None:
    others = [r for r in range(WORLD) if r != RANK]
    sent = [dist.isend(torch.full((3,), float(RANK)), r, tag=7) for r in others]
    got = set()
    for _ in others:
        tensor = torch.empty(3)
        source = dist.recv(tensor, tag=7)
        assert tensor[0].item() == source
        got.add(source)
    for work in sent:
        work.wait()
    assert got == set(others)
    dist.group.WORLD.monitored_barrier(timedelta(seconds=30))  # dist.monitored_barrier() asks for the name "gloo"


def changing_tags() -> None:
    """A tag for each step: neither threads nor groups at the coordinator are left of the steps before."""
    peer = RANK ^ 1  # at the other site
    before = len(os.listdir("/proc/self/task"))
    for tag in range(500):
        sent = dist.isend(torch.full((2,), float(tag)), peer, tag=tag)
        got = torch.empty(2)
        dist.irecv(got, peer, tag=tag).wait()
        sent.wait()
        assert got[0].item() == tag
    assert len(os.listdir("/proc/self/task")) < before + 100


def several_threads() -> None:
    """Threads send and receive side by side, each with its own tags; so does a callback, where a receive has ended."""
    peer, failed = RANK ^ 1, []

    def talk(first: int) -> None:
        try:
            for tag in range(first, first + 40):
                sent = dist.isend(torch.full((2,), float(tag)), peer, tag=tag)
                got = torch.empty(2)
                dist.irecv(got, peer, tag=tag).wait()
                sent.wait()
                assert got[0].item() == tag
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=talk, args=(1000 * number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    one, two = torch.empty(1), torch.empty(1)
    both = dist.irecv(one, peer, tag=9000).get_future().then(lambda _: dist.irecv(two, peer, tag=9000))
    for number in (1.0, 2.0):
        dist.send(torch.full((1,), number), peer, tag=9000)
    both.wait()
    assert (one.item(), two.item()) == (1.0, 2.0)


def coalesced() -> None:
    tensors = [torch.full((n,), float(RANK + 1)) for n in (1, 5, 300)]
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    assert all(tensor[-1].item() == ranks_sum() for tensor in tensors)


def sparse() -> None:
    tensor = torch.sparse_coo_tensor([[RANK, 0]], [1.0, 2.0], (WORLD,))
    dist.all_reduce(tensor)
    assert tensor.to_dense().tolist() == [1.0 + 2 * WORLD, *[1.0] * (WORLD - 1)]


def refused() -> None:
    """What Gloo refuses is refused, and the group works on."""
    for tensor, op in ((torch.ones(2), dist.ReduceOp.BAND), (torch.ones(2, dtype=torch.int16), dist.ReduceOp.SUM)):
        try:
            dist.all_reduce(tensor, op)
        except RuntimeError:
            continue
        raise AssertionError(f"{op} of {tensor.dtype} went through")
    groups()


def different_calls() -> None:
    """Each rank that is in another call than most is told so, and so are the others."""
    for number, (odd, other) in enumerate(
        (
            (lambda: dist.broadcast(torch.ones(3), 0), "broadcast from its rank 0"),
            (lambda: dist.all_gather([torch.ones(4)] * WORLD, torch.ones(4)), "of 4 Float"),
            (lambda: dist.all_reduce(torch.ones(3)), "all_reduce (sum) of 3 Float"),
        )
    ):
        call = odd if RANK in (1, 3) else lambda: dist.all_gather([torch.ones(3)] * WORLD, torch.ones(3))
        try:
            call()
        except dist.DistBackendError as error:
            text = str(error)
            assert "the ranks are not in the same call" in text and other in text, text
            assert " of a is in all_gather of 3 Float" in text and " of b is in " in text, text
        else:
            raise AssertionError(f"calls that differ ({number}) went through")
        if number < 2:
            dist.barrier()  # the group goes on


def barriers() -> None:
    """Who stands in a barrier is said to."""
    try:
        if RANK in (1, 3):
            dist.barrier()
        else:
            dist.all_gather([torch.ones(3)] * WORLD, torch.ones(3))
    except dist.DistBackendError as error:
        text = str(error)
        assert " of a is in all_gather of 3 Float [3]" in text and " of b is in barrier" in text, text
        assert "all_reduce" not in text and "max" not in text, text
    else:
        raise AssertionError("a barrier met an all_gather")


def missing_rank() -> None:
    """Everybody but rank 3 comes: an error in time that says who was where."""
    if RANK == 3:
        dist.distributed_c10d._get_default_store().wait([f"gave up {r}" for r in range(3)], timedelta(seconds=60))
        return
    begun = time.monotonic()
    try:
        dist.all_reduce(torch.ones(5))
    except dist.DistBackendError as error:
        text = str(error)
        assert f"all_reduce at rank {RANK} of 4" in text and "site" in text, text
    else:
        raise AssertionError("the collective went through without rank 3")
    assert time.monotonic() - begun < 30
    dist.distributed_c10d._get_default_store().set(f"gave up {RANK}", "")
    sys.stdout.flush()
    os._exit(0)  # the groups are of no use any more


dist.init_process_group("collab", timeout=TIMEOUT)
for what in sys.argv[1:]:
    globals()[what]()
    print(f"{what}: as it should be", flush=True)
    if what == "missing_rank":
        os._exit(0)
dist.destroy_process_group()
