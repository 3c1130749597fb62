"""collab: a torch.distributed backend for training across distant sites.

A script needs no import of this package: the entry point `_autoload` registers the backend at `import torch`, and
`init_process_group("collab")` does the rest. The names exported here are for scripts that need more.

This file stays free of torch and of the native module, because it is read at every `import torch`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch_collab.api import (
        coordinator_address,
        count_samples,
        data_rank,
        data_world_size,
        log_metrics,
        site_count,
        site_group,
        site_index,
        sites,
        status,
        step,
        synchronize,
    )
    from torch_collab.options import Options

__all__ = [
    "Options",
    "coordinator_address",
    "count_samples",
    "data_rank",
    "data_world_size",
    "log_metrics",
    "site_count",
    "site_group",
    "site_index",
    "sites",
    "status",
    "step",
    "synchronize",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "Options":
        from torch_collab.options import Options

        return Options
    if name in __all__:
        from torch_collab import api

        return getattr(api, name)
    raise AttributeError(f"module 'torch_collab' has no attribute {name!r}")


def _autoload() -> None:
    """Entry point of the group `torch.backends`: runs inside `import torch` and must never break it."""
    try:
        from torch_collab.backend.registration import register

        register()
    except Exception as error:  # whatever it is, importing torch must still succeed
        import warnings

        warnings.warn(
            f"collab: the backend could not be registered ({error}); torch works without it [ddp.not-registered]",
            stacklevel=2,
        )
