"""DDP communication hooks: gradients stay within the site.

torch's ready-made hooks reduce over the default group if they are given no group. In a collab world a DDP's group is
its site's, so those hooks get the site's group, too. The script's own hooks run in such a way that the backend
recognises them: an all-reduce over the world in them becomes one over the site. Any other all_reduce, even in backward,
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
        # Copies and pickles of the DDP carry the hook that the script registered.
        kept = torch_compat.comm_hooks_of(self)
        kept[:] = [(hook if each is known else each, with_state) for each, with_state in kept]
        return result

    return register


def state_for_group(hook_state: object, group: Any) -> object:
    """`None` is torch's default group; state objects keep their group in `process_group`."""
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
