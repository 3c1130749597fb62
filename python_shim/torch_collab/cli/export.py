"""`collab export`: the anchor in a state file as a torch state_dict."""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path
from typing import Any

from torch_collab import native
from torch_collab.escape import escaped


def add_to(parsers: Any) -> None:
    sub = parsers.add_parser(
        "export",
        help="write the model all sites agreed on last as a state_dict",
        description="Reads what COLLAB_STATE_DIR keeps and writes a state_dict of the bare model. Frozen parameters, "
        "buffers that are not averaged (COLLAB_BUFFERS=0; not persistent, or not finite when training began) and "
        "second names of tied parameters are not in it: load it with strict=False.",
    )
    sub.add_argument(
        "--state", metavar="FILE|DIR", type=Path, required=True, help="a .collab file, or a directory: the newest round"
    )
    sub.add_argument("--out", metavar="FILE", type=Path, required=True, help="where to write, e.g. model.pt")
    sub.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    path = choose(arguments.state)
    import torch

    header, anchor = native.read_state(str(path))
    state = to_state_dict(header, anchor)
    partial = arguments.out.with_name(arguments.out.name + ".partial")
    try:
        torch.save(state, partial)
        os.replace(partial, arguments.out)
    finally:
        partial.unlink(missing_ok=True)
    elements = sum(tensor.numel() for tensor in state.values())
    what = f"{len(state)} tensors, {elements} elements, round {header['round']} of run {header['swarm']!r}"
    print(escaped(f"collab: {arguments.out}: {what}, from {path}"))
    return 0


def choose(where: Path) -> Path:
    """The file itself, or the one of the highest round in a directory."""
    if not where.is_dir():
        if not where.exists():
            raise OSError(f"{where}: no such file or directory")
        return where
    files = sorted(where.glob("*.collab"))
    if not files:
        raise OSError(f"{where} has no *.collab file; COLLAB_STATE_DIR makes leaders write them")
    rounds: dict[Path, int] = {}
    for file in files:
        try:
            rounds[file] = int(native.read_state_header(str(file))["round"])
        except (OSError, RuntimeError, ValueError) as error:
            print(escaped(f"collab: {file} is left out: {error}"))
    if not rounds:
        raise OSError(f"{where}: none of the {len(files)} state files can be read")
    return max(rounds, key=lambda file: (rounds[file], file.name))


def to_state_dict(header: dict[str, Any], anchor: Any) -> dict[str, Any]:
    """Cuts the flat anchor into the tensors that make it, in their own dtype. Raises ValueError where the header, which
    anybody may have written, does not describe it."""
    state: dict[str, Any] = {}
    offset = 0
    for name, dtype, shape, kind, _ in header["model"]:
        if kind != "averaged":
            continue
        if name in state:
            raise ValueError(f"the state file has two tensors of the name {name!r}")
        count = math.prod(shape)
        if count > anchor.numel() - offset or max(shape, default=0) > anchor.numel():
            raise ValueError(
                f"the state file says that {name!r} is of shape {tuple(shape)}: its anchor has {anchor.numel()}"
            )
        state[name] = anchor[offset : offset + count].reshape(list(shape)).to(_floating(name, dtype)).clone()
        offset += count
    if offset != anchor.numel():
        raise ValueError(f"the state file describes {offset} elements, its anchor has {anchor.numel()}")
    return state


def _floating(name: str, dtype: str) -> Any:
    import torch

    found = getattr(torch, dtype, None)
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise ValueError(f"the state file says that {name!r} is of the dtype {dtype!r}, which is none of a parameter")
    return found
