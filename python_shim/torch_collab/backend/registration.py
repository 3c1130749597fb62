"""Registers the backend's name. All heavy imports wait until a group is made."""

from __future__ import annotations

from typing import Any

BACKEND = "collab"


def register() -> None:
    import torch.distributed as dist

    if not dist.is_available():
        return
    if BACKEND in dist.Backend.backend_list:
        return
    # torch's own default devices stay torch's: a script that names no backend must not get this one.
    dist.Backend.register_backend(BACKEND, _create, extended_api=True, devices=["cpu", "cuda"])


def _create(dist_backend_opts: Any, backend_options: Any) -> Any:
    from torch_collab.backend.factory import create_backend

    return create_backend(dist_backend_opts, backend_options)
