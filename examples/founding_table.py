"""One GPT-2 fine-tuned alone, and at two sites that average every N = 100, 1000 and 2000 steps: how rare is too rare?

    python examples/founding_table.py --out out/founding                      # a small model, half an hour on two cores
    python examples/founding_table.py --preset founding --data imdb:aclImdb --init gpt2-folder --out out/founding

The shape of an experiment with two distant machines (Oliveira & Patrick, "Treinamento colaborativo", 2022): each has
half of the data and half of the batch, over a line so thin that averaging costs time. `--scale` shortens training and N
together (0.1: 470 steps, N = 10, 100, 200) and keeps their ratio; the line is as slow against a step as theirs was.
`--preset founding` is theirs unscaled: GPT-2, context 20, Adam 5e-4, four epochs of 20,000 reviews (5,000 for
validation, 25,000 for the test), 256 a batch alone, 127 + 128 at two sites. `--init` takes a local folder of Hugging
Face's GPT-2 and its tokenizer; without it a model is trained first, on the same text.

`--beside` adds two sites that never talk before the end, and the smallest N with rounds behind the training
(COLLAB_OVERLAP=1): a column then has the wall time in that of never talking.

The table (text, markdown, JSON) has perplexities of each site before its last averaging, their mean, and of the model
that all hold after it. The picture has each site's loss on the same validation samples: curves drift apart, and meet
at every averaging.
"""

import argparse
import json
import math
import os
import sys
import time
from pathlib import Path

import lab_runs

FULL = {"steps": 4700, "every": (100, 1000, 2000)}  # four epochs of the founding experiment
EPOCHS = 4
SITES = ("a", "b")
LINE = lab_runs.Line("8", 60, 0)
NEVER = "never"
FOUNDING = {"size": "gpt2", "context": 20, "batch": 256, "lr": 5e-4, "scale": 1.0, "line": "100", "rtt": 20.0}


def parse_args():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="founding_table.py"
    )
    parser.add_argument("--out", type=Path, default=Path("out/founding"), metavar="DIR", help="(default: %(default)s)")
    parser.add_argument("--scale", type=float, default=0.1, help="of steps and of N (default: %(default)s)")
    parser.add_argument("--every", type=int, nargs="+", default=FULL["every"], metavar="N", help="before scaling")
    parser.add_argument(
        "--beside", action="store_true", help="also without averaging, and the smallest N behind the training"
    )
    parser.add_argument("--preset", choices=["founding"], help="the founding experiment's own sizes")
    parser.add_argument("--data", default="stdlib", help="stdlib, imdb:DIR or text:FILE (default: %(default)s)")
    parser.add_argument("--init", type=Path, metavar="DIR", help="a local Hugging Face GPT-2 with its tokenizer")
    parser.add_argument("--size", default="nano", help="as gpt2_ddp.py has them (default: %(default)s)")
    parser.add_argument("--context", type=int, default=20, help="tokens in a sample (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=256, help="alone; sites have half (default: %(default)s)")
    parser.add_argument("--lr", type=float, default=5e-4, help="of Adam (default: %(default)s)")
    parser.add_argument(
        "--pretrain", type=int, default=300, metavar="STEPS", help="without --init (default: %(default)s)"
    )
    parser.add_argument("--eval-samples", type=int, default=2000, help="of the test (default: %(default)s; 0: all)")
    parser.add_argument("--seed", type=int, default=0)
    lab_runs.add_line_to(parser, LINE)
    worker = parser.add_argument_group("at a site, set by this program itself")
    worker.add_argument("--worker", type=Path, metavar="FILE", help=argparse.SUPPRESS)
    worker.add_argument("--backend", default="collab", help=argparse.SUPPRESS)
    worker.add_argument("--steps", type=int, default=0, help=argparse.SUPPRESS)
    worker.add_argument("--watch", type=int, default=1, help=argparse.SUPPRESS)
    worker.add_argument("--save", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.preset:
        parser.set_defaults(**FOUNDING, eval_samples=0)
        args = parser.parse_args()
    if not 0 < args.scale <= 1:
        parser.error(f"--scale {args.scale:g}: expected more than 0, at most 1")
    if min(args.every) < 1:
        parser.error(f"--every {min(args.every)}: expected at least 1")
    if args.batch < 4:
        parser.error(f"--batch {args.batch}: two sites need at least 4")
    if args.init and not args.worker and not (args.init / "config.json").is_file():
        parser.error(f"--init {args.init}: expected a folder with config.json, weights and tokenizer of a GPT-2")
    return args


# ---- at a site ------------------------------------------------------------------------------------


def split_documents(data):
    """Training, validation (a fifth of the training part) and test, the same at every site."""
    import random

    import gpt2_ddp

    train, test = gpt2_ddp.read_documents(data)
    if len(train) < 5:
        text = "\n".join(train)
        cut = len(text) * 4 // 5
        return [text[:cut]], [text[cut:]], test
    random.Random(0).shuffle(train)
    cut = len(train) * 4 // 5
    return train[:cut], train[cut:], test


def encoder_of(args):
    """A function from text to tokens, and the number of tokens: those of the model to fine-tune, else bytes."""
    import gpt2_ddp
    import torch

    if not (args.init and args.init.is_dir()):
        return gpt2_ddp.encode_bytes, 256
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(args.init, local_files_only=True)

    def encode(documents):
        ids = tokenizer(documents)["input_ids"]
        return torch.tensor([token for each in ids for token in [*each, tokenizer.eos_token_id]], dtype=torch.int32)

    return encode, len(tokenizer)


def load_model(args, vocabulary):
    import gpt2_ddp
    import torch

    if args.init and args.init.is_dir():
        from transformers import GPT2LMHeadModel

        model = GPT2LMHeadModel.from_pretrained(args.init, local_files_only=True)
        model.loss_type = "ForCausalLM"
        return model
    torch.manual_seed(args.seed)
    model = gpt2_ddp.make_model(args, vocabulary)
    if args.init:
        model.load_state_dict(torch.load(args.init)["model"])
    return model


def batch_of(rank, world, batch):
    """127 + 128 of 255 for a batch of 256 at two sites."""
    return batch if world == 1 else batch // 2 - 1 + rank


def load_data(args, rank, world):
    import gpt2_ddp

    encode, vocabulary = encoder_of(args)
    train, validation, test = (gpt2_ddp.Samples(encode(part), args.context) for part in split_documents(args.data))
    batches = [batch_of(each, world, args.batch) for each in range(world)]
    if min(batches) < 1 or len(train) < sum(batches) or not len(validation) or not len(test):
        sys.exit(f"--data {args.data}: {len(train)} training samples are too few for --batch {args.batch}")
    an_epoch = len(train) // sum(batches)
    first = an_epoch * sum(batches[:rank])
    train.pieces = train.pieces[first : first + an_epoch * batches[rank]]
    watched = validation.pieces[:: max(1, len(validation) // 64)][:64].long()
    if args.eval_samples:
        test.pieces = test.pieces[:: max(1, len(test) // args.eval_samples)][: args.eval_samples]
    return train, watched, test, vocabulary, an_epoch


def train_here(args):
    """Trains one site: its losses, and its perplexity before and after the last averaging."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    lab_runs.take_cores(rank, len(SITES))
    import gpt2_ddp
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    device = (
        torch.device("cuda", rank % torch.cuda.device_count()) if torch.cuda.is_available() else torch.device("cpu")
    )
    train, watched, test, vocabulary, an_epoch = load_data(args, rank, world)
    watched = watched.to(device)
    steps = args.steps or EPOCHS * an_epoch
    dist.init_process_group(args.backend)
    model = load_model(args, vocabulary).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    ddp = DistributedDataParallel(model)
    own = batch_of(rank, world, args.batch)
    order = torch.Generator().manual_seed(args.seed + 1)

    def watch():
        model.eval()
        with torch.no_grad():
            loss = model(watched, labels=watched).loss.item()
        model.train()
        return loss

    with args.worker.with_suffix(f".{rank}.jsonl").open("w", buffering=1) as log:
        dist.barrier()
        start = time.time()
        for step in range(1, steps + 1):
            at = (step - 1) % an_epoch
            if at == 0:
                shuffled = torch.randperm(len(train), generator=order)
            batch = train.pieces[shuffled[at * own : (at + 1) * own]].long().to(device)
            loss = ddp(batch, labels=batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            line = {"step": step, "seconds": time.time() - start, "loss": loss.item()}
            if step % args.watch == 0 or step == steps:
                line["validation"] = watch()
            print(json.dumps(line), file=log)
        seconds = time.time() - start
        before = gpt2_ddp.perplexity(model, test, device)
        last = time.time()
        dist.barrier()  # the last averaging
        ends = {"seconds": seconds, "last_seconds": time.time() - last, "perplexity": before}
        ends["averaged"] = gpt2_ddp.perplexity(model, test, device) if world > 1 else before
        print(json.dumps(ends | {"steps": steps, "batch": own}), file=log)
    if args.save and rank == 0:
        torch.save({"model": model.state_dict()}, args.save)
    dist.barrier()
    del ddp
    dist.destroy_process_group()


# ---- the runs -------------------------------------------------------------------------------------


def run_all(args):
    """The results by name: "alone", then each N. Results that exist are used again."""
    out, line = args.out, lab_runs.Line(args.line, args.rtt, args.loss)
    settings = {name: str(value) for name, value in vars(args).items()}
    lab_runs.keep(out, settings, ["scale", "data", "init", "size", "context", "batch", "lr", "pretrain", "line", "rtt"])
    steps = 0 if args.preset else max(2, round(FULL["steps"] * args.scale))
    every = {n: max(1, round(n * args.scale)) for n in args.every}
    watch = max(1, min(every.values()) // 2)
    common = ["--data", args.data, "--size", args.size, "--context", args.context, "--eval-samples", args.eval_samples,
              "--seed", args.seed]  # fmt: skip

    def site(name, sites, backend, environment, *more):
        folder = out / name
        if not (folder / "done").exists():
            print(f"{name} …", file=sys.stderr, flush=True)
            worker = [__file__, "--worker", folder / "run", "--backend", backend, *common, *more]
            lab_runs.run(folder, line, sites, list(map(str, worker)), environment)
            (folder / "done").touch()
        return folder

    init = args.init
    if init is None:
        init = out / "start.pt"
        tuning = ("--batch", args.batch, "--lr", 10 * args.lr, "--steps", args.pretrain, "--watch", args.pretrain)
        site("start", SITES[:1], "gloo", {}, *tuning, "--save", init.resolve())
    tuning = ("--batch", args.batch, "--lr", args.lr, "--watch", watch, "--init", init.resolve())
    runs = {"alone": site("alone", SITES[:1], "gloo", {}, *tuning, "--steps", steps)}
    # Half of a batch of 255 for each site: the same number of steps sees the same text as alone.
    ways = {f"N = {n}": (f"n{n}", {"COLLAB_SYNC_EVERY": scaled}) for n, scaled in every.items()}
    if args.beside:
        often = f"N = {min(every)}"
        folder, environment = ways[often]
        behind = {f"{often}, behind": (f"{folder}-behind", {**environment, "COLLAB_OVERLAP": 1})}
        ways = {NEVER: ("never", {"COLLAB_SYNC_EVERY": 10**9}), **ways, **behind}
    for name, (folder, environment) in ways.items():
        runs[name] = site(folder, SITES, "collab", environment, *tuning, "--steps", steps)
    return {name: read_run(folder) for name, folder in runs.items()}


def read_run(folder):
    sites = [lab_runs.read_lines(file) for file in sorted(folder.glob("run.*.jsonl"))]
    rounds = [lab_runs.rounds_of(folder / f"{site}.events") for site, _ in zip(SITES, sites, strict=False)]
    return {
        "curves": [
            [(line["step"], line["validation"]) for line in lines[:-1] if "validation" in line] for lines in sites
        ],
        "perplexities": [lines[-1]["perplexity"] for lines in sites],
        "averaged": sites[0][-1]["averaged"],
        # Sites finish evaluating at different times before the last averaging; the last site waits for none.
        "seconds": max(lines[-1]["seconds"] for lines in sites) + min(lines[-1]["last_seconds"] for lines in sites),
        "steps": sites[0][-1]["steps"],
        "megabytes": sum(event["bytes_sent"] for events in rounds for event in events) / 1e6,
        "rounds": max((len(events) for events in rounds), default=0),
    }


def rows_of(results):
    alone, never = results["alone"], results.get(NEVER)
    rows = [["", "perplexity of sites", "mean", "averaged", "wall time, s", "speed-up", "MB sent", "rounds"]]
    rows[0][6:6] = ["of never"] if never else []
    for name, run in results.items():
        rows.append([
            name,
            " / ".join(f"{each:.2f}" for each in run["perplexities"]),
            f"{sum(run['perplexities']) / len(run['perplexities']):.2f}",
            f"{run['averaged']:.2f}" if len(run["perplexities"]) > 1 else "",
            f"{run['seconds']:.1f}",
            f"{alone['seconds'] / run['seconds']:.2f}",
            *([f"{run['seconds'] / never['seconds']:.3f}"] if never else []),
            f"{run['megabytes']:.1f}" if run["rounds"] else "",
            str(run["rounds"] or ""),
        ])  # fmt: skip
    return rows


def picture(results, file):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = [name for name in results if name != "alone"]
    columns = min(3, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure, grid = pyplot.subplots(
        rows, columns, figsize=(4 * columns, 3 * rows), sharex=True, sharey=True, layout="constrained", squeeze=False
    )
    for axes in grid.flat[len(panels) :]:
        axes.remove()
    for axes, name in zip(grid.flat, panels, strict=False):
        axes.plot(*zip(*results["alone"]["curves"][0], strict=True), color="0.6", label="alone")
        for curve, site in zip(results[name]["curves"], SITES, strict=True):
            axes.plot(*zip(*curve, strict=True), linewidth=1, label=f"site {site}")
        axes.set_title("no averaging before the end" if name == NEVER else f"averaging at {name}")
    figure.supxlabel("step", fontsize="medium")
    figure.supylabel("loss on the same validation samples", fontsize="medium")
    grid[0][0].legend()
    figure.savefig(file, dpi=80)


def main():
    args = parse_args()
    if args.worker:
        train_here(args)
        return
    lab_runs.check_lab()
    results = run_all(args)
    scale = "unscaled" if args.scale == 1 else f"steps and N scaled by {args.scale:g}"
    about = f"{results['alone']['steps']} steps alone ({scale}); {lab_runs.Line(args.line, args.rtt, args.loss)}"
    lab_runs.write_tables(args.out, about, rows_of(results), results, lambda file: picture(results, file))
    if not all(math.isfinite(value) for run in results.values() for value in run["perplexities"]):
        sys.exit("founding_table.py: a perplexity is not finite: training has diverged; try a lower --lr")


if __name__ == "__main__":
    main()
