"""Five ways to train at two sites over one line, for the same wall time: loss against time, and against bytes.

    python examples/compare.py --out out/compare          # 5 ways, 3 seeds, 5 minutes each: 75 minutes on two cores

    ddp        DistributedDataParallel over Gloo: gradients every step
    postlocal  torch's own PostLocalSGD over Gloo: parameters averaged every --period steps
    collab     init_process_group("collab") without settings
    wan        the same with COLLAB_PRESET=wan
    auto       that with COLLAB_SYNC_EVERY=auto
    alone      one of the sites without the other; only where --ways names it
    every N    COLLAB_PRESET=wan with COLLAB_SYNC_EVERY=N, for each N of --every: periods by hand, beside `auto`

A small GPT on the text of Python's standard library, from scratch, the same start, data and optimizer for all. Each run
is stopped where it is when its time is over. Time counts from the first step, when processes have found each other;
bytes are what the sites' network devices have sent, headers included. Every few seconds each site looks at its own
model's loss on the same held-out samples; that is in the time. Results stay in --out, a folder a run: what is there is
not run again.
"""

import argparse
import itertools
import json
import math
import os
import statistics
import sys
import threading
import time
from pathlib import Path

import lab_runs

SITES = ("a", "b")
AHEAD = 5.0  # seconds
LINE = lab_runs.Line("100", 100, 0.1)
WAYS = {
    "ddp": ("DDP over Gloo", "gloo", {}),
    "postlocal": ("PostLocalSGD over Gloo", "gloo", {}),
    "collab": ("collab", "collab", {}),
    "wan": ("collab, wan", "collab", {"COLLAB_PRESET": "wan"}),
    "auto": ("collab, auto", "collab", {"COLLAB_PRESET": "wan", "COLLAB_SYNC_EVERY": "auto"}),
    "alone": ("a site alone", "gloo", {}),
}
BETWEEN_SITES = [way for way in WAYS if way != "alone"]
MICRO = {"n_layer": 4, "n_head": 4, "n_embd": 192}  # 1.8 M parameters
COLOURS = dict(zip(WAYS, ("tab:red", "tab:purple", "tab:blue", "tab:green", "tab:olive", "0.5"), strict=True))
OF_PERIODS = ("tab:cyan", "tab:brown", "tab:pink", "tab:orange")


def parse_args():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="compare.py"
    )
    parser.add_argument("--out", type=Path, default=Path("out/compare"), metavar="DIR", help="(default: %(default)s)")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=BETWEEN_SITES, metavar="WAY", help=", ".join(WAYS))
    parser.add_argument("--every", nargs="+", type=int, default=[], metavar="N", help="steps: `wan` with these periods")
    parser.add_argument("--reach", type=float, metavar="LOSS", help="tells how long each way took to this loss, too")
    parser.add_argument("--seeds", type=int, default=3, help="how many (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=300, help="of training, each run (default: %(default)s)")
    parser.add_argument("--look", type=float, default=10, metavar="SECONDS", help="at the loss (default: %(default)s)")
    parser.add_argument("--data", default="stdlib", help="stdlib, imdb:DIR or text:FILE (default: %(default)s)")
    parser.add_argument("--size", default="micro", help="micro (1.8 M), or as gpt2_ddp.py has them")
    parser.add_argument("--context", type=int, default=64, help="tokens in a sample (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=16, help="samples at each site (default: %(default)s)")
    parser.add_argument("--lr", type=float, default=1e-3, help="of AdamW (default: %(default)s)")
    parser.add_argument("--period", type=int, default=100, help="of PostLocalSGD, steps (default: %(default)s)")
    parser.add_argument("--eval-samples", type=int, default=128, help="held-out (default: %(default)s)")
    lab_runs.add_line_to(parser, LINE)
    parser.add_argument("--worker", type=Path, metavar="FILE", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if any(steps <= 0 for steps in args.every):
        parser.error(f"--every must be above 0, not {min(args.every)}")
    for steps, colour in zip(args.every, itertools.cycle(OF_PERIODS)):
        way = f"every{steps}"
        settings = {"COLLAB_PRESET": "wan", "COLLAB_SYNC_EVERY": steps}
        WAYS[way], COLOURS[way] = (f"collab, wan, every {steps} steps", "collab", settings), colour
        args.ways = [*args.ways, way]
    args.ways = list(dict.fromkeys(args.ways))
    for name in ("seeds", "seconds", "look", "batch", "period", "eval_samples"):
        if getattr(args, name) <= 0:
            parser.error(f"--{name.replace('_', '-')} must be above 0, not {getattr(args, name):g}")
    return args


# ---- at a site ------------------------------------------------------------------------------------


def bytes_sent():
    """Bytes sent by the site's device in the lab, including headers and acknowledgements."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, counters = line.partition(":")
        if name.strip().startswith("lab"):
            return int(counters.split()[8])
    return 0


def make_ddp(way, model, period):
    """The model as DDP, and a function that makes its optimizer."""
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    ddp = DistributedDataParallel(model)
    if way != "postlocal":
        return ddp, lambda optimizer: optimizer
    from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

    site, _ = dist.new_subgroups(1)
    state = PostLocalSGDState(
        process_group=None, subgroup=site, start_localSGD_iter=0, post_local_gradient_allreduce=False
    )
    ddp.register_comm_hook(state, post_localSGD_hook)
    averager = PeriodicModelAverager(period=period, warmup_steps=0)
    return ddp, lambda optimizer: PostLocalSGDOptimizer(optimizer, averager)


def train_here(args):
    (way,) = args.ways
    args.tokenizer = "bytes"
    rank = int(os.environ["RANK"])
    lab_runs.take_cores(rank, len(SITES))
    import gpt2_ddp
    import torch
    import torch.distributed as dist

    gpt2_ddp.SIZES["micro"] = MICRO
    train, held_out, vocabulary = gpt2_ddp.load_data(args)
    torch.manual_seed(args.seed)
    model = gpt2_ddp.make_model(args, vocabulary)
    dist.init_process_group(WAYS[way][1])
    ddp, wrap = make_ddp(way, model, args.period)
    optimizer = wrap(torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1))
    draws = torch.Generator().manual_seed(1000 * args.seed + rank)
    log = args.worker.with_suffix(f".{rank}.jsonl").open("w", buffering=1)
    dist.barrier()
    start, sent, step = time.monotonic(), bytes_sent(), 0

    def say(**more):
        line = {"seconds": time.monotonic() - start, "steps": step, "bytes": bytes_sent() - sent, **more}
        print(json.dumps(line), file=log)

    def stop():
        """Stops the process in the middle of its work: an exchange that has not ended by now is of no use."""
        say(end=True)
        log.flush()
        os._exit(0)

    timer = threading.Timer(args.seconds, stop)
    timer.daemon = True
    timer.start()

    def one_step():
        chosen = torch.randint(len(train), (args.batch,), generator=draws)
        batch = train.pieces[chosen].long()
        loss = ddp(batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    looked = -args.look
    try:
        while True:
            if time.monotonic() - start - looked >= args.look:
                looked = time.monotonic() - start
                say(validation=math.log(gpt2_ddp.perplexity(model, held_out, "cpu")))
            one_step()
            step += 1
    except RuntimeError:
        # The other site's clock is a little ahead, and that site has ended.
        if time.monotonic() - start < args.seconds - AHEAD:
            raise
        timer.join()


# ---- the runs -------------------------------------------------------------------------------------

COMPARED = [
    "seconds",
    "look",
    "data",
    "size",
    "context",
    "batch",
    "lr",
    "period",
    "eval_samples",
    "line",
    "rtt",
    "loss",
]


def run_all(args):
    lab_runs.keep(args.out, {name: str(value) for name, value in vars(args).items()}, COMPARED)
    line = lab_runs.Line(args.line, args.rtt, args.loss)
    given = [part for name in COMPARED for part in (f"--{name.replace('_', '-')}", str(getattr(args, name)))]
    results = {}
    for seed in range(args.seeds):
        for way in args.ways:
            folder = args.out / f"{way}-{seed}"
            if not (folder / "done").exists():
                print(f"{way}, seed {seed} …", file=sys.stderr, flush=True)
                there = "wan" if way.startswith("every") else way  # the environment has the period
                worker = [__file__, "--worker", str(folder / "run"), "--ways", there, "--seed", str(seed), *given]
                lab_runs.run(folder, line, SITES[:1] if way == "alone" else SITES, worker, WAYS[way][2])
                (folder / "done").touch()
            results.setdefault(way, []).append(read_run(folder))
    return results


def read_run(folder):
    """Mean over the sites of their n-th measurement, and the bytes of both."""
    sites = [lab_runs.read_lines(file) for file in sorted(folder.glob("run.*.jsonl"))]
    looks = [[line for line in lines if "validation" in line] for lines in sites]
    points = [
        {
            "seconds": statistics.mean(line["seconds"] for line in each),
            "megabytes": sum(line["bytes"] for line in each) / 1e6,
            "validation": statistics.mean(line["validation"] for line in each),
        }
        for each in zip(*looks, strict=False)
    ]
    if not points:
        sys.exit(f"compare.py: {folder} has no loss: --seconds is too short for one step, or remove it to run it again")
    ends = [lines[-1] for lines in sites]
    return {
        "points": points,
        "steps": min(line["steps"] for line in ends),
        "megabytes": sum(line["bytes"] for line in ends) / 1e6,
        "validation": points[-1]["validation"],
    }


def spread(values):
    mean = statistics.mean(values)
    return f"{mean:.3f}" + (f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else "")


def seconds_to(loss, points):
    """When the loss was first reached, interpolated between two measurements; None if never."""
    if points[0]["validation"] <= loss:
        return points[0]["seconds"]
    for before, after in itertools.pairwise(points):
        if after["validation"] <= loss:
            part = (before["validation"] - loss) / (before["validation"] - after["validation"])
            return before["seconds"] + part * (after["seconds"] - before["seconds"])
    return None


def in_seconds(took):
    if None in took:
        return f"not in {took.count(None)} of {len(took)}"
    return f"{statistics.mean(took):.1f}" + (f" ± {statistics.stdev(took):.1f}" if len(took) > 1 else "")


def rows_of(results, reach):
    rows = [["", "validation loss", *([] if reach is None else [f"seconds to {reach:g}"]), "steps a site", "MB sent"]]
    for way, runs in results.items():
        steps, megabytes = ([run[name] for run in runs] for name in ("steps", "megabytes"))
        rows.append([
            WAYS[way][0],
            spread([run["validation"] for run in runs]),
            *([] if reach is None else [in_seconds([seconds_to(reach, run["points"]) for run in runs])]),
            f"{statistics.mean(steps):.0f}",
            f"{statistics.mean(megabytes):.1f}",
        ])  # fmt: skip
    return rows


def picture(results, about, file):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, all_axes = pyplot.subplots(1, 2, figsize=(11, 4.5), sharey=True, layout="constrained")
    for axes, field, label in zip(
        all_axes, ("seconds", "megabytes"), ("seconds of training", "MB sent, both sites"), strict=True
    ):
        for way, runs in results.items():
            for number, run in enumerate(runs):
                points = [point for point in run["points"] if field == "seconds" or point[field] > 1]
                x, y = ([point[name] for point in points] for name in (field, "validation"))
                name = WAYS[way][0] if number == 0 else None
                axes.plot(x, y, color=COLOURS[way], linewidth=1, alpha=0.8, label=name)
        axes.set_xlabel(label)
    all_axes[1].set_xscale("log")  # from 1 MB on: nothing has been averaged before
    all_axes[0].set_ylabel("loss on held-out samples, mean of the sites")
    all_axes[0].legend()
    figure.suptitle(about)
    figure.savefig(file, dpi=100)


def main():
    args = parse_args()
    if args.worker:
        train_here(args)
        return
    lab_runs.check_lab()
    results = run_all(args)
    seeds = "1 seed" if args.seeds == 1 else f"{args.seeds} seeds"
    about = f"{args.seconds:g} s each over {lab_runs.Line(args.line, args.rtt, args.loss)}; {seeds}"
    lab_runs.write_tables(
        args.out, about, rows_of(results, args.reach), results, lambda file: picture(results, about, file)
    )


if __name__ == "__main__":
    main()
