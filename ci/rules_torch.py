"""A rule of ci/tidy.py: only one header of ours includes torch's headers that are private or may change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

HEADER = "plugin/torch/torch_private.h"
# Headers that torch documents for everybody, and for authors of backends.
DOCUMENTED = {
    "ATen/ATen.h",
    "ATen/core/Tensor.h",
    "c10/util/Exception.h",
    "torch/csrc/distributed/c10d/Backend.hpp",
    "torch/csrc/distributed/c10d/Work.hpp",
    "torch/version.h",
}
# Needs the Python headers, without which most of the adapter is compiled.
ELSEWHERE = {"torch/csrc/utils/pybind.h": "plugin/torch/bindings.h"}


def private_includes(path: str, included: Iterable[tuple[int, str]], root: Path) -> Iterator[tuple[int, str]]:
    """(line, what to do) of each (line, header) that belongs elsewhere."""
    for line, header in included:
        ours = (root / "plugin" / header).is_file()  # torch's own <torch/...> looks like our plugin/torch
        if ours or header in DOCUMENTED or not re.match(r"(ATen|c10|torch)/", header):
            continue
        place = ELSEWHERE.get(header, HEADER)
        if path != place:
            yield line, f"<{header}> is private to torch, or may change: include it in {place}, and say what for"
