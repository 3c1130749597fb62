"""Bytes of an encoded vector, as the core's codecs make them (docs/protocol/codecs.md); top-k at the most it may be."""

from __future__ import annotations

from torch_collab import native

_WHOLE = 4096  # elements: whole blocks of every codec


def encoded(codec: str, elements: float, kept: float = 0) -> float:
    """`kept` of the elements travel as fp16 where the codec has fewer bits. Raises ValueError."""
    kept = kept if native.needs_error_feedback(codec) else 0
    return _an_element(codec) * (elements - kept) + _an_element("fp16") * kept


def _an_element(codec: str) -> float:
    return native.codec_bytes(codec, _WHOLE) / _WHOLE
