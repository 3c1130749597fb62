"""One rank of a world whose hub is attacked: trains, and is in a collective of each kind again and again.

    besieged.py FOLDER      FOLDER is shared by all ranks and by who attacks

At the hub the world has a further site, TEST_STRANGERS ranks of it, which torch knows nothing of: who attacks is one of
those. FOLDER/world.json tells them what a rank of the world knows. Each call is a line of FOLDER/calls-SITE.jsonl.
FOLDER/attacker names a rank of that site, with which this one is in calls of a group of their own meanwhile; these may
fail. It ends at the first step at which FOLDER/stop is there, and the round has been that this names.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch_collab
from common import RANK, WORLD, batch, say, small_model
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch_collab import native
from torch_collab.world import hub, state
from torch_collab.world.groups import GroupOptions, HubGroup, make_backend
from torch_collab.world.topology import Site, Sites

FOLDER = Path(sys.argv[1])
SITE = os.environ["COLLAB_SITE"]
STRANGERS = int(os.environ["TEST_STRANGERS"])
EVERY = 4  # steps
LIMIT = timedelta(seconds=30)
LETTER = 1 << 19  # float32
LETTERS = 64  # in a row


def tell(name: str, what: dict[str, Any]) -> None:
    made = FOLDER / f"{name}.new"
    made.write_text(json.dumps(what))
    made.rename(FOLDER / f"{name}.json")


def invite_strangers() -> dict[str, Any]:
    """Has the hub believe in them; gives what this rank says to the hub, once it does."""
    said: dict[str, Any] = {"groups": {}}
    connect, number = native.connect_hub, hub.Hub._numbered

    def connect_with_more(**given: Any) -> Any:
        sites, site_of = given["sites"], given["site_of"]
        given |= {"sites": [*sites, "mallory"], "site_of": [*site_of, *[len(sites)] * STRANGERS]}
        said.update({name: given[name] for name in ("world", "sites", "site_of")}, hubs=list(given["hubs"]))
        return connect(**given)

    def note_number(self: hub.Hub, link: Any, text: str, ranks: tuple[int, ...]) -> HubGroup:
        made = number(self, link, text, ranks)
        said["groups"][text] = made.group_id
        return made

    native.connect_hub = connect_with_more  # type: ignore[assignment]
    hub.Hub._numbered = note_number  # type: ignore[method-assign]
    return said


class Calls:
    """Times each call; one that fails is told, and the script goes on."""

    def __init__(self) -> None:
        self.file = (FOLDER / f"calls-{SITE}.jsonl").open("a", buffering=1)

    def timed(self, what: str, call: Callable[[], object]) -> None:
        begun = time.monotonic()
        error = ""
        try:
            call()
        except RuntimeError as failed:
            error = str(failed).partition("\n")[0][:500]
        line = {"t": time.time(), "what": what, "seconds": time.monotonic() - begun, "error": error}
        self.file.write(json.dumps(line) + "\n")

    def all(self) -> None:
        ones, letter, came = torch.ones(LETTER), torch.full((1000,), float(RANK)), torch.empty(1000)
        self.timed("all_reduce", lambda: dist.all_reduce(ones))
        self.timed("barrier", dist.barrier)
        sent = dist.isend(letter, (RANK + 1) % WORLD)
        self.timed("recv", lambda: dist.recv(came, (RANK - 1) % WORLD))
        self.timed("send", sent.wait)  # type: ignore[union-attr]


def meet(stranger: int, own: hub.Hub) -> None:
    """In calls with who attacks, until another does."""
    ranks = (*range(WORLD), stranger)
    names = [f"rank {rank}" for rank in ranks]
    digest = hashlib.blake2b(f"{own.number}/with {stranger}".encode(), digest_size=8).digest()
    assert own.link is not None
    group = HubGroup(own.link, int.from_bytes(digest, "big") & ~1, ranks, tuple(names))
    opts = GroupOptions(RANK, len(ranks), timedelta(seconds=2))
    apart = Sites(tuple(Site(name, (rank,)) for rank, name in enumerate(names)))
    backend = make_backend(opts, apart, group, one_host=False, is_world=False)
    while attacker() == stranger:
        with contextlib.suppress(RuntimeError):
            for _ in range(LETTERS):
                backend.send([torch.ones(LETTER)], WORLD, 0).wait()
                time.sleep(0.01)
        with contextlib.suppress(RuntimeError):
            backend.allreduce([torch.ones(LETTER)]).wait()
        time.sleep(0.01)


def attacker() -> int:
    with contextlib.suppress(OSError, ValueError):
        return int((FOLDER / "attacker").read_text())
    return -1


def meet_whoever_attacks() -> None:
    own = state.require().hub
    try:
        while True:
            if (stranger := attacker()) >= 0:
                meet(stranger, own)
            time.sleep(0.1)
    except BaseException:  # a process that has ended fails the test
        traceback.print_exc()
        os._exit(3)


def told_to_stop(after_round: int) -> bool:
    told = FOLDER / "stop"
    return told.exists() and after_round >= int(told.read_text() or 0)


def main() -> None:
    said = invite_strangers()
    dist.init_process_group("collab", timeout=LIMIT)
    torch.manual_seed(0)
    ddp = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(6, 256), torch.nn.Linear(256, 6), small_model()))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    calls = Calls()
    dist.barrier()
    if RANK == 0:
        tell("world", said)
    threading.Thread(target=meet_whoever_attacks, daemon=True).start()
    say("trains")
    step = 0
    while True:
        optimizer.zero_grad()
        x, y = batch(step, RANK)
        cross_entropy(ddp(x), y).backward()
        optimizer.step()
        step += 1
        time.sleep(0.025)
        if step % EVERY == 0:
            calls.timed("step", calls.all)
        if told_to_stop(torch_collab.status()["round"]):
            break
    dist.destroy_process_group()
    flat = torch.cat([p.detach().flatten() for p in ddp.parameters()])
    say(f"ended step {step} digest {native.digest(flat)}")
    os._exit(0)  # the thread may be in a call with the attacker


main()
