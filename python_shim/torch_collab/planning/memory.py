"""Memory of a rank and of a leader, in bytes. Activations, and what checkpointing saves of them, are rough: allocators,
attention kernels and the framework's own needs differ by tens of percent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch_collab import native
from torch_collab.native import Settings
from torch_collab.planning import codecs
from torch_collab.planning.parameters import Model

# For each optimizer: how many vectors of the parameters' size it keeps, and the bytes of one element.
OPTIMIZERS: dict[str, tuple[int, float]] = {
    "adamw": (2, 4.0),
    "adamw8bit": (2, 1.0 + 4 / 256),  # one scale a block
    "muon": (1, 4.0),
    "momentum": (1, 4.0),
    "sgd": (0, 4.0),
}
FIXED = 100e6  # of a leader, with any model
ANCHOR_SLOTS = 2
BUFFERS = 1.0  # payloads and tiles in flight, at most, at a site that owns an equal share or less
# Bytes per token, layer and element of the hidden size in a 16-bit forward that keeps everything (Korthikanti et al.,
# arXiv:2205.05198), without the attention matrix; twice that in float32.
_ACTIVATION = 34.0


@dataclass(frozen=True)
class RankMemory:
    name: str
    device: float  # on the model's device: parameters, gradients, optimizer, activations
    offloaded: float  # on the host instead
    step_factor: float  # how many times as long a step takes; 1 where that depends on the bus


def activations(model: Model, tokens: int, element: float) -> float | None:
    """Activations of a rank's batch of so many tokens; None if the layers are not known."""
    if not model.layers or not model.hidden or not tokens:
        return None
    return _ACTIVATION * element / 2 * tokens * model.layers * model.hidden


def rank_options(model: Model, optimizer: str, tokens: int, element: float = 4.0) -> list[RankMemory]:
    """Memory with each option; `element`: bytes of one parameter, and of its gradient."""
    size = float(model.parameters)
    model_and_gradients = 2 * element * size
    vectors, width = OPTIMIZERS[optimizer]
    states = vectors * width * size
    kept = activations(model, tokens, element) or 0.0
    # The input of every layer, and everything in one layer.
    thin = kept / model.layers + kept * 2 / _ACTIVATION if kept else 0.0
    thin = min(thin, kept)
    small = 2 * OPTIMIZERS["adamw8bit"][1] * size if optimizer == "adamw" else states
    rows = [RankMemory(optimizer, model_and_gradients + states + kept, 0, 1)]
    if small != states:
        rows.append(RankMemory("8-bit optimizer", model_and_gradients + small + kept, 0, 1))
    if kept:
        rows.append(RankMemory("checkpointing", model_and_gradients + states + thin, 0, 4 / 3))
    if states:
        rows.append(RankMemory("optimizer offloaded", model_and_gradients + kept, states, 1))
    if len(rows) > 2:
        both = RankMemory("all of these", model_and_gradients + thin, small, 4 / 3 if kept else 1)
        rows.append(both)
    return rows


def optimizer_copy(parameters: int, optimizer: str) -> float:
    """Bytes at 16 bits a number: at the leader of a joining site, and at the leader of the member that serves it."""
    vectors, width = OPTIMIZERS[optimizer]
    return 2.0 * vectors * parameters if width == 4 else 0.0  # optimizers with other widths are not served


def exchange_vectors(settings: Settings, sites: int, share: float) -> float:
    """Vectors that a round needs at an owner of that share, which keeps the others' encoded data until the commit."""
    up, _ = native.parse_codecs(settings.codec)
    return max(BUFFERS, (sites - 1) * share * codecs.encoded(up, 1) / 4 / settings.fragments)


def leader_vectors(settings: Settings, sites: int, largest_share: float) -> dict[str, float]:
    """What a leader's host holds beside the model, in float32 vectors."""
    up, down = native.parse_codecs(settings.codec)
    held = {"anchor": float(ANCHOR_SLOTS), "exchange": exchange_vectors(settings, sites, largest_share)}
    of_deltas, of_means = native.needs_error_feedback(up), native.needs_error_feedback(down)
    if settings.error_feedback and (of_deltas or of_means):
        held["residual"] = float(of_deltas) + largest_share * of_means
    if settings.outer_optimizer == "nesterov":
        held["momentum"] = 1.0
    if settings.overlap:
        held["overlap"] = 1.0
    return held


def leader(settings: Settings, parameters: int, sites: int, largest_share: float) -> float:
    return math.fsum(leader_vectors(settings, sites, largest_share).values()) * 4 * parameters + FIXED
