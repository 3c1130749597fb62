"""A site of bench_learning.py as a run of its own: under init_process_group("collab"), with the knobs set for it.

Arguments: size and steps.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from common import RANK, WORLD, say
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import bench_learning
from in_process import digest_of


def main() -> None:
    size, steps = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    course = bench_learning.Course(steps=steps)
    batches, model = bench_learning.Batches(course, seed=0), bench_learning.make_model(size, course, seed=0)
    dist.init_process_group("collab")
    learner = bench_learning.Learner(DistributedDataParallel(model), course.steps, course.lr)
    for step in range(course.steps):
        learner.step(batches(WORLD * step + RANK))
    dist.destroy_process_group()
    say(f"digest {digest_of(model)}")


main()
