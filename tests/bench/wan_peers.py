"""One site of a peer's all-reduce for bench_wan.py: torchft's manager over Gloo, or hivemind's averager.

Run by bench_wan.py in each site of the lab, with the Python of an environment that has the peer (--peer-python). Both
average one float32 tensor of BENCH_ELEMENTS; what is timed is the exchange alone, without quorum or matchmaking.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import torch

LIMIT = 900  # seconds a round may take
LIGHTHOUSE_PORT = 29510


def pause(seconds: float) -> None:
    """Neither peer tells when it may be asked again, or left."""
    threading.Event().wait(seconds)


def ours() -> tuple[int, int, str]:
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), os.environ["BENCH_ADDRESS"]


def check(tensor: torch.Tensor, sites: int) -> None:
    expected = (sites - 1) / 2
    if not torch.allclose(tensor[::1000], torch.full_like(tensor[::1000], expected)):
        raise RuntimeError(f"expected the mean {expected}, got {tensor[:3].tolist()}")


def torchft(elements: int, rounds: int) -> list[float]:
    from torch.distributed import TCPStore
    from torchft import Manager, ProcessGroupGloo
    from torchft.coordination import LighthouseServer

    rank, sites, address = ours()
    at = os.environ["MASTER_ADDR"]
    lighthouse = (
        LighthouseServer(bind=f"[::]:{LIGHTHOUSE_PORT}", min_replicas=sites, join_timeout_ms=60_000)
        if rank == 0
        else None
    )
    store = TCPStore(address, 0, is_master=True, wait_for_workers=False)
    limit = timedelta(seconds=LIMIT)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=limit),
        load_state_dict=lambda _: None,
        state_dict=dict,
        min_replica_size=sites,
        use_async_quorum=False,
        timeout=limit,
        quorum_timeout=limit,
        rank=0,
        world_size=1,
        store_addr=address,
        store_port=store.port,
        lighthouse_addr=f"http://{at}:{LIGHTHOUSE_PORT}",
        replica_id=f"s{rank}",
        hostname=address,
        init_sync=False,
    )
    seconds = []
    for _ in range(rounds):
        tensor = torch.full((elements,), float(rank))
        manager.start_quorum()
        start = time.perf_counter()
        manager.allreduce(tensor).wait()
        seconds.append(time.perf_counter() - start)
        if not manager.should_commit():
            raise RuntimeError("torchft did not commit the step")
        check(tensor, sites)
    manager.shutdown(wait=False)
    pause(1)
    if lighthouse is not None:
        lighthouse.shutdown()
    return seconds


def hivemind(elements: int, rounds: int) -> list[float]:
    from hivemind import DHT
    from hivemind.averaging import DecentralizedAverager
    from hivemind.averaging.control import AveragingStage
    from hivemind.utils import get_dht_time

    rank, sites, address = ours()
    meeting = Path(os.environ["BENCH_RESULT"]).with_name("hivemind.json")
    peers: list[str] = []
    while rank > 0 and not peers:
        pause(0.2)
        peers = json.loads(meeting.read_text()) if meeting.exists() else []
    dht = DHT(initial_peers=peers, host_maddrs=[f"/ip4/{address}/tcp/0"], start=True, await_ready=True)
    if rank == 0:
        whole = meeting.with_suffix(".new")
        whole.write_text(json.dumps([str(each) for each in dht.get_visible_maddrs()]))
        whole.replace(meeting)
    averager = DecentralizedAverager(
        [torch.zeros(elements)],
        dht,
        start=True,
        prefix="bench",
        target_group_size=sites,
        min_group_size=sites,
        min_matchmaking_time=10.0,
        request_timeout=5.0,
    )
    seconds = []
    for _ in range(rounds):
        with averager.get_tensors() as tensors:
            tensors[0][:] = float(rank)
        control = averager.step(
            scheduled_time=get_dht_time() + 10, require_trigger=True, wait=False, timeout=LIMIT, allow_retries=True
        )
        while control.stage.value < AveragingStage.AWAITING_TRIGGER.value and not control.done():
            pause(0.005)
        start = time.perf_counter()
        control.allow_allreduce()
        if control.result(LIMIT) is None:
            raise RuntimeError("hivemind found no group")
        seconds.append(time.perf_counter() - start)
        with averager.get_tensors() as tensors:
            check(tensors[0], sites)
    pause(5)  # the others may still be served
    averager.shutdown()
    dht.shutdown()
    return seconds


if __name__ == "__main__":
    torch.set_num_threads(1)
    count = int(os.environ["BENCH_ROUNDS"]) + int(os.environ["BENCH_WARM"])
    taken = {"torchft": torchft, "hivemind": hivemind}[sys.argv[1]](int(os.environ["BENCH_ELEMENTS"]), count)
    Path(os.environ["BENCH_RESULT"]).write_text(json.dumps({"seconds": taken[int(os.environ["BENCH_WARM"]) :]}))
    sys.stdout.flush()
    os._exit(0)  # their threads do not always end
