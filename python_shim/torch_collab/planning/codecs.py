"""Bytes of an encoded vector (docs/protocol/codecs.md); top-k at the most it may be."""

from __future__ import annotations

# Bytes an element.
_SIZES = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp16": 2 + 1 / 256,
    "int8": 1 + 2 / 256,
    "int4": 66 / 128,
    "int4-e3m0": 66 / 128,
    "int2": 18 / 64,
    "topk64": 85 / 4096,
    "topk128": 148 / 4096,
}
_EXACT_ENOUGH = ("fp32", "bf16", "fp16")  # no error feedback


def parse(text: str) -> tuple[str, str]:
    """(up, down) of a codec or UP/DOWN. Raises ValueError."""
    up, _, down = text.partition("/")
    for name in (up, down or up):
        if name not in _SIZES:
            raise ValueError(f"codec {text!r}: there is {', '.join(_SIZES)} [cli.plan-codec]")
    return up, down or up


def encoded(codec: str, elements: float, kept: float = 0) -> float:
    """`kept` of the elements travel as fp16 where the codec has fewer bits."""
    kept = kept if leaves_out(codec) else 0
    return _SIZES[codec] * (elements - kept) + _SIZES["fp16"] * kept


def leaves_out(codec: str) -> bool:
    """Whether error feedback keeps what it leaves out."""
    return codec not in _EXACT_ENOUGH
