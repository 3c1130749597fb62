"""torch's ready-made DDP communication hooks reduce over the default group when they are given no group.

Inside a collab world the group of a DDP is its site's, so those hooks get the site's group too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch_collab import state

_TORCH_HOOKS = "torch.distributed.algorithms.ddp_comm_hooks."


def register_comm_hook(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def register(self: Any, hook_state: object, hook: Callable[..., Any]) -> Any:
        if state.current() is not None and is_torch_hook(hook):
            hook_state = state_for_group(hook_state, self.process_group)
        return original(self, hook_state, hook)

    return register


def is_torch_hook(hook: Callable[..., Any]) -> bool:
    # A wrapper (fp16_compress_wrapper) is defined in torch's module as well; its state is the wrapped hook's.
    return getattr(hook, "__module__", "").startswith(_TORCH_HOOKS.rstrip("."))


def state_for_group(hook_state: object, group: Any) -> object:
    """`None` is torch's word for the default group; state objects keep theirs in `process_group`."""
    if hook_state is None:
        return group
    if getattr(hook_state, "process_group", group) is None:
        hook_state.process_group = group  # type: ignore[attr-defined]
    return hook_state
