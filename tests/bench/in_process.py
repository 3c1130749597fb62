"""Sites inside one process: a session of the product for each model, over tcp on loopback, with their coordinator.

Codecs, error feedback, reduction, outer step and merge are those of a run under `init_process_group("collab")`, for it
makes its sessions by the same call. Two things differ: the sites train by turns, on the caller's thread, and a round
behind the training is merged a given number of steps after its trigger, where a run merges it at the first step that
finds it over. So what comes of a seed does not depend on the machine's speed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

import torch
from torch_collab import native

if TYPE_CHECKING:
    from torch_collab import _C

HERE = "127.0.0.1"
ROUND_SECONDS = 120.0  # what a round behind the training is waited for
COMMON = {
    "listen": f"{HERE}:0",
    # By measured rates it would change who reduces what, and a reducing site keeps a part for error feedback.
    "shares": "equal",
    # However slow the machine is, no round goes without a site; one that has failed is not waited for without end.
    "straggler_grace": "600s",
    "link_grace": "600s",
    "round_timeout": "600s",
}


def digest_of(model: torch.nn.Module) -> str:
    """Of its parameters, as one vector."""
    return native.digest(torch.cat([parameter.detach().flatten() for parameter in model.parameters()]))


class Sites:
    """Each model is a site's, and its parameters are averaged. One caller at a time."""

    def __init__(self, models: Sequence[torch.nn.Module], knobs: Mapping[str, str], merge_after: int = 0) -> None:
        """`knobs` as in torch_collab.Options; `merge_after`: with overlap, the steps from a round's trigger to its
        merge, fewer than from a trigger to the next. Returns when all models hold the first one's values."""
        self._merge_after = merge_after
        self._steps_in_flight: int | None = None
        self._received: list[int] = []  # by each site, before the round in flight
        common = {**COMMON, "min_sites": str(len(models)), **knobs}
        config = native.load_config({}, common)
        self._server = native.serve_coordinator(
            config.raw, native.addressed_transport("tcp", config, HERE), config.listen
        )
        self._threads = ThreadPoolExecutor(len(models))
        self._sessions = [self._session(index, model, common) for index, model in enumerate(models)]
        self._each(lambda session: session.begin())

    def _session(self, index: int, model: torch.nn.Module, common: Mapping[str, str]) -> _C.Session:
        site = f"site{index}"
        config = native.load_config({}, {**common, "site": site, "site_index": str(index), "advertise": HERE})
        named = list(model.named_parameters())
        return native.make_session(
            config,
            site=site,
            job="",
            site_rank=0,
            site_size=1,
            one_host=True,
            coordinators=[self._server.address],
            model=[(name, str(p.dtype).removeprefix("torch."), list(p.shape), "averaged", "") for name, p in named],
            parameters=[parameter for _, parameter in named],
            transport=native.addressed_transport("tcp", config, HERE),
        )

    def _each(self, call: Callable[[_C.Session], object]) -> None:
        """At all sites at once, because each waits for the others. Raises what the first that fails does."""
        calls = [self._threads.submit(call, session) for session in self._sessions]
        for ended in wait(calls, return_when=FIRST_EXCEPTION).done:
            ended.result()

    def stepped(self, samples: int) -> None:
        """Every site has made one more step, of so many samples each."""
        merges = False
        if self._steps_in_flight is not None:
            self._steps_in_flight += 1
            merges = self._steps_in_flight == self._merge_after
            if merges:
                self._wait_for_round()
        due = [session.count_step(samples) for session in self._sessions]
        if merges:
            if not all(due):  # over by its counters, and not yet handed over
                raise RuntimeError("a round was not over at the step that is to merge it: run it again")
            self._steps_in_flight = None
            self._each(lambda session: session.synchronize())
        elif self._steps_in_flight is None and any(due):
            if not all(due):
                raise RuntimeError(f"expected a round to be due at all sites or none, got {due}")
            self._received = self._bytes_received()
            self._each(lambda session: session.synchronize())
            if self._merge_after:
                self._steps_in_flight = 0

    def _bytes_received(self) -> list[int]:
        return [session.status().bytes_received for session in self._sessions]

    def _wait_for_round(self) -> None:
        """A session counts what a round has brought when it is over."""
        deadline = time.monotonic() + ROUND_SECONDS
        while any(now == before for now, before in zip(self._bytes_received(), self._received, strict=True)):
            if time.monotonic() > deadline:
                raise RuntimeError(f"a round behind the training is not over after {ROUND_SECONDS:.0f} s")
            time.sleep(0.001)
        time.sleep(0.002)  # the session's thread hands its report over

    def finish(self) -> None:
        """A last round where there were steps since the last one; all models are the same."""
        self._each(lambda session: session.finish())
        self._sessions.clear()
        self._server.close()
        self._threads.shutdown()
