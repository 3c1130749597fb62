"""Under torchrun: a rank dies before its world is made, while the other waits in it; both begin again, in one store.

restarted.py FOLDER
"""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

waits = Path(sys.argv[1]) / "waits"
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    if os.environ["RANK"] == "0":
        waits.touch()
    else:
        while not waits.exists():
            time.sleep(0.05)
        time.sleep(1)  # so that it has come into the call
        sys.exit("dies before its world is made")
dist.init_process_group("collab", timeout=timedelta(seconds=60))
total = torch.ones(1)
dist.all_reduce(total)
print(f"together {total.item():g}", flush=True)
dist.destroy_process_group()
