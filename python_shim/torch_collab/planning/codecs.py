"""Bytes of an encoded vector, as the core's codecs make it (docs/protocol/codecs.md); for top-k the most it can be."""

from __future__ import annotations

from torch_collab import native

_WHOLE = 4096  # elements: a multiple of every codec's block


def encoded(codec: str, elements: float, kept: float = 0) -> float:
    """`kept` of the elements travel as fp16 if the codec has fewer bits. Raises ValueError."""
    kept = kept if native.needs_error_feedback(codec) else 0
    return _an_element(codec) * (elements - kept) + _an_element("fp16") * kept


def _an_element(codec: str) -> float:
    return native.codec_bytes(codec, _WHOLE) / _WHOLE
