"""DDP communication hooks: gradients are the site's business.

torch's ready-made hooks reduce over the default group when they are given no group. Inside a collab world the group of
a DDP is its site's, so those hooks get the site's group too. Hooks of the script's own are run so that the backend
knows them: what they all-reduce over the world is reduced over the site. An all_reduce anywhere else, in backward too,
means the group it names.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch_collab import native, torch_compat
from torch_collab.world.state import current


def register_comm_hook(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def register(self: Any, state: object, hook: Callable[..., Any]) -> Any:
        if current() is None or not callable(hook):
            return original(self, state, hook)
        if torch_compat.is_torch_hook(hook):
            state = state_for_group(state, self.process_group)
        known = _known_to_backend(hook)
        result = original(self, state, known)
        # What copies and pickles of the DDP carry is what the script has registered.
        kept = torch_compat.comm_hooks_of(self)
        kept[:] = [(hook if each is known else each, with_state) for each, with_state in kept]
        return result

    return register


def state_for_group(hook_state: object, group: Any) -> object:
    """`None` is torch's word for the default group; state objects keep theirs in `process_group`."""
    if hook_state is None:
        return group
    if getattr(hook_state, "process_group", group) is None:
        hook_state.process_group = group  # type: ignore[attr-defined]
    return hook_state


def _known_to_backend(hook: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(hook)  # torch looks at its name and signature
    def run(state: object, bucket: Any) -> Any:
        return native.call_communication_hook(hook, state, bucket)

    return run
