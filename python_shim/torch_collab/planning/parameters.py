"""How many parameters a model has, from a number or a Hugging Face `config.json`.

Families that are known are counted from their sizes alone; for others transformers builds the model without memory
(the device `meta`), where it is installed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_UNITS = {"": 1, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}


@dataclass(frozen=True)
class Model:
    parameters: int
    layers: int = 0  # 0: not known
    hidden: int = 0


def parse_count(text: str) -> int:
    """`124M`, `1.5B`, `7000000`. Raises ValueError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMBGT]?)", text.strip().upper())
    count = round(float(found[1]) * _UNITS[found[2]]) if found else 0
    if count < 1:
        raise ValueError(
            f"{text!r} parameters: expected a number above 0 such as 124M, 1.5B or 124439808 [cli.plan-model]"
        )
    return count


class _Sizes:
    """A config's values, the missing ones named."""

    def __init__(self, values: dict[str, Any], where: str) -> None:
        self._values, self._where = values, where

    def __call__(self, *names: str, default: int | None = None) -> int:
        for name in names:
            if self._values.get(name) is not None:
                value = self._values[name]
                if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                    raise ValueError(
                        f"{self._where}: {name} is {value!r}, expected a whole number above 0 [cli.plan-model]"
                    )
                return value
        if default is None:
            raise ValueError(f"{self._where} has no {names[0]} [cli.plan-model]")
        return default

    def flag(self, name: str, default: bool) -> int:
        return int(bool(self._values.get(name, default)))


def _gpt2(size: _Sizes) -> Model:
    hidden, layers = size("n_embd"), size("n_layer")
    inner = size("n_inner", default=4 * hidden)
    attention = 4 * hidden * hidden + 4 * hidden
    block = attention + 2 * hidden * inner + inner + hidden + 4 * hidden
    embeddings = (size("vocab_size") * (2 - size.flag("tie_word_embeddings", True)) + size("n_positions")) * hidden
    return Model(embeddings + layers * block + 2 * hidden, layers, hidden)


def _gpt_neox(size: _Sizes) -> Model:
    hidden, layers, inner = size("hidden_size"), size("num_hidden_layers"), size("intermediate_size")
    bias = size.flag("attention_bias", True)
    block = 4 * hidden * hidden + 4 * hidden * bias + 2 * hidden * inner + inner + hidden + 4 * hidden
    embeddings = size("vocab_size") * hidden * (2 - size.flag("tie_word_embeddings", False))
    return Model(embeddings + layers * block + 2 * hidden, layers, hidden)


def _llama(
    size: _Sizes, *, tied: bool = False, qkv_bias: bool = False, head_norms: bool = False, norms: int = 2
) -> Model:
    """Llama and what is built like it: gated MLP, grouped keys and values, RMS norms.

    `norms` of the hidden size a layer; `head_norms`: one more of a head's size each for queries and keys.
    """
    hidden, layers, heads = size("hidden_size"), size("num_hidden_layers"), size("num_attention_heads")
    head = size("head_dim", default=hidden // heads)
    query, keys = heads * head, size("num_key_value_heads", default=heads) * head
    all_biased = size.flag("attention_bias", False)
    attention = 2 * hidden * query + 2 * hidden * keys
    attention += (query + 2 * keys) * max(int(qkv_bias), all_biased) + hidden * all_biased
    inner = size("intermediate_size")
    mlp = 3 * hidden * inner + (2 * inner + hidden) * size.flag("mlp_bias", False)
    block = attention + mlp + norms * hidden + (2 * head if head_norms else 0)
    embeddings = size("vocab_size") * hidden * (2 - size.flag("tie_word_embeddings", tied))
    return Model(embeddings + layers * block + hidden, layers, hidden)


_FAMILIES: dict[str, Callable[[_Sizes], Model]] = {
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "llama": _llama,
    "mistral": _llama,
    "phi3": _llama,
    "qwen2": lambda size: _llama(size, qkv_bias=True),
    "qwen3": lambda size: _llama(size, head_norms=True),
    "gemma": lambda size: _llama(size, tied=True),
    "gemma2": lambda size: _llama(size, tied=True, norms=4),
}


def read_config(path: Path) -> Model:
    """Of a `config.json`, or of the folder that has one. Raises ValueError or OSError in one line."""
    file = path / "config.json" if path.is_dir() else path
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise OSError(f"--config {file} cannot be read: {error.strerror} [cli.plan-model]") from None
    except ValueError as error:
        raise ValueError(f"--config {file} is not JSON: {error} [cli.plan-model]") from None
    family = values.get("model_type") if isinstance(values, dict) else None
    if not isinstance(family, str):
        raise ValueError(
            f"--config {file}: expected a model's config.json of Hugging Face, with model_type in it [cli.plan-model]"
        )
    if family in _FAMILIES:
        return _FAMILIES[family](_Sizes(values, f"--config {file}"))
    return _by_transformers(values, family, file)


def _by_transformers(values: dict[str, Any], family: str, file: Path) -> Model:
    known = ", ".join(_FAMILIES)
    try:
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM
    except ImportError:
        raise ValueError(
            f"--config {file} is of the family {family!r}; known without transformers are {known}: "
            "install transformers, or give --parameters [cli.plan-model]"
        ) from None
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**values))
    except Exception as error:  # whatever transformers says of it
        first = str(error).strip().split("\n")[0]
        raise ValueError(
            f"--config {file}: transformers cannot make a {family!r} of it ({first}) [cli.plan-model]"
        ) from None
    count = sum(each.numel() for each in model.parameters())
    return Model(count, int(values.get("num_hidden_layers") or 0), int(values.get("hidden_size") or 0))
