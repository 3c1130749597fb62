"""Prints this rank's share of the data."""

from __future__ import annotations

import torch.distributed as dist
import torch_collab

dist.init_process_group("collab")
print(f"share {torch_collab.data_rank()} of {torch_collab.data_world_size()}\n", end="")
dist.destroy_process_group()
