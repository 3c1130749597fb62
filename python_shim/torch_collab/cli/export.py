"""`collab export`: the anchor in a state file as a torch state_dict."""

from __future__ import annotations

import argparse
import math
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch_collab import native
from torch_collab.cli import forms
from torch_collab.escape import escaped, first_line

_WRAPPED = ("state_dict", "model")  # keys under which a checkpoint keeps the model's state, among other things
_OF_DDP = "module."


def add_to(parsers: Any) -> None:
    sub = forms.add(
        parsers,
        "export",
        "write the model that all sites last agreed on, as a state_dict",
        "Reads the files in COLLAB_STATE_DIR, and writes a state_dict of the bare model. Some tensors are not kept: "
        "frozen parameters, second names of tied parameters, and buffers that are not averaged (COLLAB_BUFFERS=0, not "
        "persistent, or not finite when training began). With --base they come from a state_dict of the same model, "
        "and the result loads with strict=True. Without --base, load with strict=False.",
        [
            "collab export --state state/ --out model.pt",
            "collab export --state state/ --base pretrained.pt --format safetensors --out model.safetensors",
        ],
        {0: "written", 1: "no state can be read, it does not fit --base, or it cannot be written"},
    )
    sub.add_argument(
        "--state",
        metavar="FILE|DIR",
        type=Path,
        required=True,
        help="a .collab file, or a directory, of which the newest model is taken",
    )
    sub.add_argument("--out", metavar="FILE", type=Path, required=True, help="where to write, e.g. model.pt")
    sub.add_argument(
        "--format", choices=["pt", "safetensors"], help="format of --out (default: from its name, else pt)"
    )
    sub.add_argument(
        "--base", metavar="FILE", type=Path, help="take what is not kept from this state_dict, .pt or .safetensors"
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.out.is_dir():
        raise ValueError(f"--out {arguments.out} is a folder: expected a file's name [cli.export-folder]")
    path = choose(arguments.state)
    header, anchor = native.read_state(str(path))
    state = to_state_dict(header, anchor)
    what = f"round {header['round']} of run {header['swarm']!r}, from {path}"
    if arguments.base is not None:
        state, counts = complete(header, state, read_base(arguments.base))
        what += (
            f"; from {arguments.base}: {', '.join(f'{number} {kind}' for kind, number in counts.items()) or 'nothing'}"
        )
    elif absent := sum(kind != "averaged" for _, _, _, kind, _ in header["model"]):
        what += (
            f"; at least {absent} tensors of the model are missing, because they are not averaged: load it with "
            "strict=False, or add --base FILE, a state_dict of the whole model"
        )
    else:
        what += "; if load_state_dict misses keys (second names of tied parameters, counters), add --base FILE"
    elements = sum(tensor.numel() for tensor in state.values())
    as_safetensors = (arguments.format or arguments.out.suffix.lstrip(".")) == "safetensors"
    _write(state, arguments.out, as_safetensors, {"run": str(header["swarm"]), "round": str(header["round"])})
    print(escaped(f"collab: {arguments.out}: {len(state)} tensors, {elements} elements, {what}"))
    return 0


def _write(state: dict[str, Any], out: Path, as_safetensors: bool, about: dict[str, str]) -> None:
    import torch

    library = _safetensors() if as_safetensors else None
    partial = out.with_name(out.name + ".partial")
    try:
        if library is not None:
            # Each tensor needs its own memory: the format cannot store one under two names.
            own = {name: tensor.clone().contiguous() for name, tensor in state.items()}
            library.save_file(own, str(partial), metadata={"format": "pt", **about})
        else:
            torch.save(state, partial)
        os.replace(partial, out)
    except Exception as error:  # raised by the system, torch or safetensors
        why = getattr(error, "strerror", None) or first_line(error)
        raise OSError(f"--out {out} cannot be written: {why} [cli.export-not-written]") from None
    finally:
        partial.unlink(missing_ok=True)


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError as error:
        raise RuntimeError(
            f"this format needs safetensors: pip install safetensors ({error}) [cli.export-safetensors]"
        ) from None
    return safetensors.torch


def choose(where: Path) -> Path:
    """The file itself; in a directory the file of the newest run, and within that run of the highest round.

    Rounds of two runs cannot be compared: each generation of a script's models is a run of its own, and counts from 0.
    A run's number is the time at which its coordinator began, or is larger than the number of the run that it
    continues.
    """
    if not where.is_dir():
        if not where.exists():
            raise OSError(f"{where}: no such file or directory [cli.no-file]")
        if where.suffix != ".collab":
            raise ValueError(
                f"--state {where}: expected a folder, or one of the *.collab files that leaders write into "
                "COLLAB_STATE_DIR [cli.no-state-file]"
            )
        return where
    files = sorted(where.glob("*.collab"))
    if not files:
        raise OSError(f"{where} has no *.collab file; leaders write them into COLLAB_STATE_DIR [cli.no-state-file]")
    found: dict[Path, tuple[int, int]] = {}  # run and round
    for file in files:
        try:
            header = native.read_state_header(str(file))
            found[file] = int(header["run"]), int(header["round"])
        except (OSError, RuntimeError, ValueError) as error:
            print(escaped(f"collab: {file} is skipped: {error}"))
    if not found:
        raise OSError(f"{where}: none of the {len(files)} state files can be read [cli.unreadable-state]")
    newest = max(found, key=lambda file: (found[file], file.name))
    for file, (run, round_number) in found.items():
        if run != found[newest][0]:
            print(
                escaped(f"collab: {file} belongs to an earlier run (round {round_number}); --state {file} exports it")
            )
    return newest


def to_state_dict(header: dict[str, Any], anchor: Any) -> dict[str, Any]:
    """Cuts the flat anchor into its tensors, in their own dtypes. Raises ValueError if the header, which anybody may
    have written, does not describe it."""
    state: dict[str, Any] = {}
    offset = 0
    for name, dtype, shape, kind, _ in header["model"]:
        if kind != "averaged":
            continue
        if name in state:
            raise ValueError(f"the state file has two tensors with the name {name!r} [state.two-tensors]")
        count = math.prod(shape)
        if count > anchor.numel() - offset or max(shape, default=0) > anchor.numel():
            raise ValueError(
                f"the state file says that {name!r} has the shape {tuple(shape)}, but its anchor has {anchor.numel()} "
                "elements [state.shape]"
            )
        state[name] = anchor[offset : offset + count].reshape(list(shape)).to(_floating(name, dtype)).clone()
        offset += count
    if offset != anchor.numel():
        raise ValueError(
            f"the state file describes {offset} elements, but its anchor has {anchor.numel()} [state.elements]"
        )
    return state


def _floating(name: str, dtype: str) -> Any:
    import torch

    found = getattr(torch, dtype, None)
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise ValueError(
            f"the state file says that {name!r} has the dtype {dtype!r}, which no parameter has [state.dtype]"
        )
    return found


# ---- parameters that are not averaged ----------------------------------------------------------


def read_base(path: Path) -> dict[str, Any]:
    """The model's own state_dict in a file. Raises ValueError with a message."""
    import torch

    if not path.is_file():
        raise ValueError(f"--base {path}: there is no such file [cli.export-no-base]")
    library = _safetensors() if path.suffix == ".safetensors" else None
    try:
        if library is not None:
            told: Any = library.load_file(str(path))
        else:
            told = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        why = error.strerror or first_line(error)
        raise ValueError(f"--base {path} cannot be read: {why} [cli.export-base-unread]") from None
    except Exception:  # of pickle, zip, safetensors; torch's own text advises to load the file unchecked
        writer = "torch.save" if library is None else "safetensors"
        raise ValueError(
            f"--base {path} is not a state_dict that {writer} wrote: expected tensors by name and nothing else "
            "[cli.export-base-unfit]"
        ) from None
    for key in _WRAPPED:
        if isinstance(told, Mapping) and isinstance(told.get(key), Mapping):
            told = told[key]
    if not isinstance(told, Mapping) or not told or not all(isinstance(each, torch.Tensor) for each in told.values()):
        raise ValueError(f"--base {path} is not a model's state_dict: expected tensors by name [cli.export-base-unfit]")
    shared = all(str(name).startswith(_OF_DDP) for name in told)
    return {str(name)[len(_OF_DDP) if shared else 0 :]: tensor for name, tensor in told.items()}


def complete(
    header: dict[str, Any], state: dict[str, Any], base: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, int]]:
    """`base` with the averaged tensors in place, and how many other tensors it has, by reason.

    A name that the header does not have is a second name of a tied parameter, or a buffer that sites do not compare.
    Raises ValueError if the base is another model's.
    """
    if missing := [name for name in state if name not in base]:
        raise ValueError(
            f"--base belongs to another model: it has no {missing[0]!r} ({len(missing)} of {len(state)} are missing) "
            "[cli.export-base-differs]"
        )
    rows = {name: (kind, digest) for name, _, _, kind, digest in header["model"]}
    whole: dict[str, Any] = {}
    counts: Counter[str] = Counter()
    for name, tensor in base.items():
        if name in state:
            there, here = list(tensor.shape), list(state[name].shape)
            if there != here:
                raise ValueError(
                    f"--base belongs to another model: {name!r} is {there} there, {here} here [cli.export-base-shape]"
                )
            whole[name] = state[name]
            continue
        kind, digest = rows.get(name, ("", ""))
        first = "" if kind else _first_name(tensor, state, base)
        if kind == "frozen" and digest.strip("0") and native.digest(tensor) != digest:
            raise ValueError(
                f"--base is not the trained model: {name!r} was frozen with other values [cli.export-base-values]"
            )
        whole[name] = state[first] if first else tensor
        counts["tied" if first else kind or "other"] += 1
    return whole, dict(counts)


def _first_name(tensor: Any, state: dict[str, Any], base: dict[str, Any]) -> str:
    """The name under which the same parameter was averaged, or "".

    In a file of torch.save tied tensors share their memory. In a file of safetensors they are only equal, which proves
    nothing for tensors that are all zeros or all ones: a buffer and a bias may both be.
    """
    import torch

    if not tensor.is_floating_point() or not tensor.numel():
        return ""
    alike = [name for name in state if base[name].shape == tensor.shape and base[name].dtype == tensor.dtype]
    for name in alike:
        if base[name].data_ptr() == tensor.data_ptr():
            return name
    if bool((tensor == tensor.flatten()[0]).all()):
        return ""
    equal = [name for name in alike if torch.equal(base[name], tensor)]
    return equal[0] if len(equal) == 1 else ""
