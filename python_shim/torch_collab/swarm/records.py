"""Where a site's leader keeps its durable record, and what tells this training's records from those of others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch_collab import environment, log

if TYPE_CHECKING:
    from torch_collab.native import Settings
    from torch_collab.world.topology import WorldInfo


def place(info: WorldInfo) -> tuple[str, str]:
    """(folder, scope) of the record; an empty folder: the record stays in memory."""
    scope = _scope(info.config, info.store)
    where = folder(info.config)
    if not where or not scope:
        why = "this user has no home folder" if scope else "nothing distinguishes this rendezvous from another"
        log.warn_once(
            f"{why}: what this site promises is kept in memory, and a restart loses it. Set COLLAB_STATE_DIR or "
            "XDG_STATE_HOME to a folder, and MASTER_ADDR and MASTER_PORT to a rendezvous [record.no-folder]"
        )
        return "", ""
    return where, scope


def tell_what_stays(info: WorldInfo) -> None:
    """Tells a site of a swarm, when it starts, that without COLLAB_STATE_DIR no agreed model is kept."""
    if not info.config.state_dir and (info.several_sites or not info.one_world):
        log.info("COLLAB_STATE_DIR is not set: once all sites have stopped, only what the script has saved is left of "
                 "their model")  # fmt: skip


def folder(config: Settings) -> str:
    """COLLAB_STATE_DIR, else torch-collab in XDG_STATE_HOME, else in ~/.local/state; "" if there is no home."""
    if config.state_dir:
        return config.state_dir
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):  # the XDG specification: a relative path is ignored
        try:
            state = str(Path.home() / ".local" / "state")
        except RuntimeError:
            return ""
    return str(Path(state) / "torch-collab")


def writable(where: str) -> bool:
    """Whether files can be made in the folder, or in its nearest parent that exists."""
    path = Path(where).absolute()
    there = next((each for each in (path, *path.parents) if each.exists()), path)
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def _scope(config: Settings, store: Any) -> str:
    """A text that a replacement of this process computes, too, and that no other training has; "" if unknown."""
    run = environment.run_of_agent() or ""
    if endpoint := environment.from_agent(environment.ENDPOINT):
        return f"torchrun {run} at {endpoint}"
    if config.coordinator:
        return "coordinator " + ",".join(config.coordinator)
    if run not in environment.NO_RUN_ID:
        return f"torchrun {run}"  # the store's port changes with each start
    return _store_text(store)


def _store_text(store: Any) -> str:
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    if hasattr(store, "port"):
        return f"store {store.host}:{store.port}"
    if hasattr(store, "path"):
        return f"store {store.path}"
    address, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
    return f"store {address}:{port}" if address and port else ""
