"""A site that begins fresh, or loads a state as FIRST_LOADS says; writes what it brought and what round 0 gave it.

argv: a folder, and how many steps, or 0: until the file "done" is there, which FIRST_ENDS=1 writes after 5 steps.
"""

from __future__ import annotations

import inspect
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from common import batch, parameters_of, small_model
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

OUT, STEPS = Path(sys.argv[1]), int(sys.argv[2])
SITE, SEED, LOADS = os.environ["COLLAB_SITE"], int(os.environ["FIRST_SEED"]), os.environ.get("FIRST_LOADS", "")
original = torch.nn.Module.load_state_dict
signature, words = inspect.signature(original), original.__doc__

dist.init_process_group("collab")
assert torch.nn.Module.load_state_dict is not original
assert inspect.signature(torch.nn.Module.load_state_dict) == signature
assert torch.nn.Module.load_state_dict.__doc__ == words

checkpoint = small_model(100 + SEED).state_dict()
model = small_model(SEED)
if LOADS == "model":
    assert str(model.load_state_dict(checkpoint)) == "<All keys matched successfully>"
elif LOADS == "optimizer":  # as of a checkpoint: values put in place by hand, and only the optimizer told by its method
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(checkpoint[name])
ddp = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(ddp.parameters(), lr=0.01)
if LOADS == "optimizer":
    other = small_model(100 + SEED)
    trained = torch.optim.AdamW(other.parameters(), lr=0.01)
    cross_entropy(other(batch(0, 0)[0]), batch(0, 0)[1]).backward()
    trained.step()
    optimizer.load_state_dict(trained.state_dict())
brought, began = parameters_of(ddp), []
for step in range(STEPS or 10**9):
    x, y = batch(step, SEED)
    optimizer.zero_grad()
    loss = cross_entropy(ddp(x), y)
    if step == 0:
        began = parameters_of(ddp)  # the forward has put the swarm's anchor there
    loss.backward()
    optimizer.step()
    if STEPS == 0 and step >= 5 and os.environ.get("FIRST_ENDS") == "1":
        (OUT / "done").write_text("")
    if STEPS == 0 and (OUT / "done").exists():
        break
dist.destroy_process_group()
assert torch.nn.Module.load_state_dict is original, "it is as it was"
torch.save({"brought": brought, "began": began}, OUT / f"{SITE}-{os.environ['RANK']}.pt")
