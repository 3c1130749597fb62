"""Train GPT-2 with DistributedDataParallel; perplexity on a held-out part at the end.

    torchrun --nproc-per-node=2 examples/gpt2_ddp.py --data stdlib --size nano --steps 200
    torchrun --nnodes=2 --nproc-per-node=1 --rdzv-backend=c10d --rdzv-endpoint=HOST:29400 \
        examples/gpt2_ddp.py --data imdb:aclImdb --tokenizer bpe --size gpt2

Data: `stdlib` is the text of this Python's standard library, `imdb:DIR` the unpacked aclImdb folder, `text:FILE`
any text. Tokens are bytes, or a byte-level BPE trained on the spot (`--tokenizer bpe`) and cached. The tokens depend
on the text: all machines of one training need the same text, for `stdlib` the same Python.
"""

import argparse
import contextlib
import fcntl
import hashlib
import itertools
import json
import math
import os
import sys
import sysconfig
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from tqdm import tqdm
from transformers import GPT2Config, GPT2LMHeadModel

SIZES = {
    "nano": {"n_layer": 3, "n_head": 4, "n_embd": 128},
    "tiny": {"n_layer": 4, "n_head": 4, "n_embd": 256},
    "small": {"n_layer": 6, "n_head": 6, "n_embd": 384},
    "gpt2": {"n_layer": 12, "n_head": 12, "n_embd": 768, "n_positions": 1024, "vocab_size": 50257},  # 124 M
}


def parse_args():
    parser = argparse.ArgumentParser(description="Train GPT-2 with DistributedDataParallel.")
    parser.add_argument("--backend", default="collab", help="of torch.distributed (default: %(default)s)")
    parser.add_argument("--data", default="stdlib", help="stdlib, imdb:DIR or text:FILE (default: %(default)s)")
    parser.add_argument("--tokenizer", choices=["bytes", "bpe"], default="bytes")
    parser.add_argument("--vocab", type=int, default=8192, help="tokens of the BPE (default: %(default)s)")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "gpt2_ddp", help="folder for BPE tokens")
    parser.add_argument("--size", choices=SIZES, default="nano")
    parser.add_argument("--context", type=int, default=128, help="tokens in a sample (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=32, help="samples a step, over all ranks (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=500, help="optimizer steps (default: %(default)s)")
    parser.add_argument("--lr", type=float, default=1e-3, help="highest learning rate (default: %(default)s)")
    parser.add_argument("--warmup", type=int, default=50, help="steps to reach it (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--eval-every", type=int, default=0, metavar="STEPS", help="0: only at the end")
    parser.add_argument("--eval-samples", type=int, default=512, help="held-out samples used (default: %(default)s)")
    parser.add_argument("--checkpoint", type=Path, metavar="FILE", help="written at the end and every --save-every")
    parser.add_argument("--save-every", type=int, default=0, metavar="STEPS", help="0: only at the end")
    parser.add_argument("--resume", action="store_true", help="go on from --checkpoint")
    parser.add_argument("--init", type=Path, metavar="FILE", help="a checkpoint whose model is fine-tuned")
    parser.add_argument("--log-file", type=Path, metavar="FILE.jsonl", help="losses and times: FILE.rank0.jsonl, ...")
    args = parser.parse_args()
    for name in ("vocab", "context", "batch", "steps", "eval_samples"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1, not {getattr(args, name)}")
    longest = SIZES[args.size].get("n_positions")
    if longest and args.context > longest:
        parser.error(f"--context {args.context}: --size {args.size} takes at most {longest}")
    if args.resume and not args.checkpoint:
        parser.error("--resume needs --checkpoint FILE")
    for name, file in (("resume", args.resume and args.checkpoint), ("init", args.init)):
        if file and not file.is_file():
            parser.error(f"--{name}: there is no checkpoint {file}")
    if "RANK" not in os.environ:
        parser.error(f"start it with torchrun: torchrun --nproc-per-node=1 {' '.join(sys.argv)}")
    world = int(os.environ["WORLD_SIZE"])
    if args.batch % world:
        parser.error(f"--batch {args.batch} is over all ranks and must be a multiple of their number, {world}")
    return args


def read_folder(folder):
    files = sorted(folder.glob("*.txt")) if folder.is_dir() else []
    if not files:
        sys.exit(
            f"--data imdb: no .txt files in {folder}; expected the unpacked aclImdb folder: "
            "train/ and test/, each with pos/ and neg/"
        )
    return [file.read_text(encoding="utf-8", errors="replace") for file in files]


def read_documents(data):
    """The training and the held-out documents."""
    kind, _, place = data.partition(":")
    if kind == "stdlib" and not place:
        root = Path(sysconfig.get_paths()["stdlib"])
        unwanted = {"site-packages", "dist-packages", "test", "tests", "idle_test"}
        files = [file for file in sorted(root.rglob("*.py")) if not unwanted & set(file.relative_to(root).parts)]
        if len(files) < 20:
            sys.exit(f"--data stdlib: only {len(files)} .py files under {root}; use --data text:FILE")
        texts = [file.read_text(encoding="utf-8", errors="replace") for file in files]
        return [text for i, text in enumerate(texts) if i % 20], texts[::20]
    if kind == "imdb" and place:
        root, parts = Path(place).expanduser(), ("pos", "neg")
        train = [text for part in parts for text in read_folder(root / "train" / part)]
        return train, [text for part in parts for text in read_folder(root / "test" / part)]
    if kind == "text" and place:
        try:
            text = Path(place).expanduser().read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            sys.exit(f"--data text: cannot read {place}: {error.strerror}")
        cut = len(text) * 19 // 20
        return [text[:cut]], [text[cut:]]
    sys.exit(f"--data {data!r}: expected stdlib, imdb:DIR or text:FILE")


def encode_bytes(documents):
    joined = b"\0".join(text.encode("utf-8", errors="replace") for text in documents)
    return torch.frombuffer(bytearray(joined), dtype=torch.uint8)


def encode_bpe(train, held_out, vocab, cache):
    """Trains the BPE on the training documents; the first rank on a machine does it for all."""
    from tokenizers import ByteLevelBPETokenizer

    key = hashlib.sha256("\0".join([str(vocab), *train, *held_out]).encode(errors="replace")).hexdigest()[:16]
    file = cache / f"bpe{vocab}-{key}.pt"
    cache.mkdir(parents=True, exist_ok=True)
    with open(file.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if file.exists():
            return torch.load(file)
        tokenizer = ByteLevelBPETokenizer()
        tokenizer.train_from_iterator(train, vocab, special_tokens=["<|endoftext|>"], show_progress=False)

        def encode(documents):
            encoded = ([*encoding.ids, 0] for encoding in tokenizer.encode_batch(documents))
            return torch.tensor(list(itertools.chain.from_iterable(encoded)), dtype=torch.int32)

        tokens = (encode(train), encode(held_out))
        torch.save(tokens, file.with_suffix(".tmp"))
        file.with_suffix(".tmp").rename(file)
        return tokens


class Samples(Dataset):
    """Consecutive chunks of `context` tokens."""

    def __init__(self, tokens, context):
        self.pieces = tokens[: len(tokens) // context * context].view(-1, context)

    def __len__(self):
        return len(self.pieces)

    def __getitem__(self, index):
        return self.pieces[index].long()


def load_data(args):
    documents = read_documents(args.data)
    if args.tokenizer == "bpe":
        tokens, vocab = encode_bpe(*documents, args.vocab, args.cache), args.vocab
    else:
        tokens, vocab = [encode_bytes(part) for part in documents], 256
    train, held_out = (Samples(part, args.context) for part in tokens)
    if len(train) < args.batch or not len(held_out):
        sys.exit(
            f"--data {args.data}: {len(train)} training and {len(held_out)} held-out samples of {args.context} tokens "
            f"are too few for --batch {args.batch}"
        )
    held_out.pieces = held_out.pieces[:: max(1, len(held_out) // args.eval_samples)][: args.eval_samples]
    return train, held_out, vocab


def pick_device():
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    if torch.cuda.is_available():
        device = torch.device("cuda", local_rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
        return device
    cores = len(os.sched_getaffinity(0))
    torch.set_num_threads(max(1, cores // int(os.environ.get("LOCAL_WORLD_SIZE", 1))))
    return torch.device("cpu")


def make_model(args, vocab):
    sizes = {"n_positions": args.context, "vocab_size": vocab} | SIZES[args.size]
    if vocab > sizes["vocab_size"]:
        sys.exit(f"--vocab {vocab}: --size {args.size} takes at most {sizes['vocab_size']}")
    dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    model = GPT2LMHeadModel(GPT2Config(**sizes, **dropout, bos_token_id=0, eos_token_id=0))
    model.loss_type = "ForCausalLM"
    return model


@torch.no_grad()
def perplexity(model, held_out, device):
    """Perplexity per token of this rank's model on the held-out samples."""
    model.eval()
    losses = []
    for batch in DataLoader(held_out, batch_size=32):
        batch = batch.to(device)
        losses += [model(batch, labels=batch).loss.item()] * len(batch)
    model.train()
    return math.exp(sum(losses) / len(losses))


def mean_over_ranks(value, device):
    total = torch.tensor([value], dtype=torch.float64, device=device)
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def save(file, step, model, optimizer, scheduler):
    file.parent.mkdir(parents=True, exist_ok=True)
    state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state | {"scheduler": scheduler.state_dict()}, f"{file}.tmp")
    os.replace(f"{file}.tmp", file)


def batches(loader, sampler, first_step):
    """An endless stream of batches, starting with that of step `first_step`."""
    epoch, skip = divmod(first_step, len(loader))
    while True:
        sampler.set_epoch(epoch)
        yield from itertools.islice(loader, skip, None)
        epoch, skip = epoch + 1, 0


def main():
    args = parse_args()
    device = pick_device()
    train, held_out, vocab = load_data(args)
    dist.init_process_group(args.backend)
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(args.seed + rank)

    model = make_model(args, vocab).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / max(1, args.warmup)) * max(0.0, 1 - step / args.steps)
    )
    if args.init:
        model.load_state_dict(torch.load(args.init, map_location=device)["model"])
    first_step = 0
    if args.resume:
        state = torch.load(args.checkpoint, map_location=device)
        for name, part in (("model", model), ("optimizer", optimizer), ("scheduler", scheduler)):
            part.load_state_dict(state[name])
        first_step = state["step"]
    ddp = DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)

    sampler = DistributedSampler(train, seed=args.seed)
    loader = DataLoader(train, batch_size=args.batch // world, sampler=sampler, drop_last=True)
    stream = batches(loader, sampler, first_step)

    with contextlib.ExitStack() as stack:
        log = None
        if args.log_file:
            args.log_file.parent.mkdir(parents=True, exist_ok=True)
            log = stack.enter_context(open(args.log_file.with_suffix(f".rank{rank}.jsonl"), "w", buffering=1))
        progress = stack.enter_context(
            tqdm(total=args.steps, initial=first_step, disable=None if rank == 0 else True, unit="step")
        )
        dist.barrier()
        start = time.time()
        for step in range(first_step + 1, args.steps + 1):
            batch = next(stream).to(device)
            loss = ddp(batch, labels=batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            progress.update()
            progress.set_postfix(loss=f"{loss.item():.3f}", refresh=False)
            if log:
                print(json.dumps({"step": step, "loss": loss.item(), "time": time.time()}), file=log)
            if args.eval_every and step % args.eval_every == 0 and step < args.steps:
                progress.write(f"rank {rank}, step {step}: perplexity {perplexity(model, held_out, device):.3f}")
            if args.checkpoint and rank == 0 and args.save_every and step % args.save_every == 0:
                save(args.checkpoint, step, model, optimizer, scheduler)
        dist.barrier()
        seconds = time.time() - start

        own = perplexity(model, held_out, device)
        mean = mean_over_ranks(own, device)
        if log:
            summary = {"start": start, "train_seconds": seconds, "perplexity": own, "steps": args.steps}
            print(json.dumps(summary | {"batch": args.batch // world, "rank": rank, "world": world}), file=log)
    if rank == 0:
        if args.checkpoint:
            save(args.checkpoint, args.steps, model, optimizer, scheduler)
        print(f"{args.steps - first_step} steps in {seconds:.1f} s; held-out perplexity {mean:.3f}, mean over {world}")
    dist.barrier()
    del ddp  # if it held a Gloo group last, its end would wait for threads that wait for Python
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
