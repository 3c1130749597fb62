"""How many parameters a model has, from a number or a Hugging Face `config.json`.

Known families are counted from their sizes alone. For others transformers, if installed, builds the model
without memory (device `meta`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch_collab import native

_UNITS = {"": 1, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}


@dataclass(frozen=True)
class Model:
    parameters: int
    layers: int = 0  # 0: not known
    hidden: int = 0
    tensors: tuple[tuple[str, int], ...] = ()  # name and elements of each; empty: not known

    def kept(self, words: str) -> int | None:
        """Elements that COLLAB_KEEP_FP16 names; None if the tensors are not known."""
        if words == "none":
            return 0
        return native.kept_elements(words, self.tensors) if self.tensors else None


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
    """A config's values; the error for missing values names them."""

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


_Tensors = list[tuple[str, int]]


def _linear(name: str, inside: int, outside: int, bias: int = 1) -> _Tensors:
    return [(f"{name}.weight", inside * outside)] + [(f"{name}.bias", outside)] * bias


def _model(first: _Tensors, layer: str, each: _Tensors, layers: int, hidden: int, last: _Tensors) -> Model:
    """`each` are the tensors of one layer; its number is put into the name `layer`."""
    inner = [(layer.format(number) + name, n) for number in range(layers) for name, n in each]
    tensors = (*first, *inner, *last)
    return Model(sum(n for _, n in tensors), layers, hidden, tensors)


def _gpt2(size: _Sizes) -> Model:
    hidden, layers, words = size("n_embd"), size("n_layer"), size("vocab_size") * size("n_embd")
    inner = size("n_inner", default=4 * hidden)
    block = [
        *_linear("ln_1", 1, hidden), *_linear("attn.c_attn", hidden, 3 * hidden),
        *_linear("attn.c_proj", hidden, hidden), *_linear("ln_2", 1, hidden), *_linear("mlp.c_fc", hidden, inner),
        *_linear("mlp.c_proj", inner, hidden),
    ]  # fmt: skip
    first = [("transformer.wte.weight", words), ("transformer.wpe.weight", size("n_positions") * hidden)]
    own_head = [("lm_head.weight", words)] * (1 - size.flag("tie_word_embeddings", True))
    last = _linear("transformer.ln_f", 1, hidden) + own_head
    return _model(first, "transformer.h.{}.", block, layers, hidden, last)


def _gpt_neox(size: _Sizes) -> Model:
    hidden, layers, inner = size("hidden_size"), size("num_hidden_layers"), size("intermediate_size")
    bias, words = size.flag("attention_bias", True), size("vocab_size") * hidden
    block = [
        *_linear("input_layernorm", 1, hidden), *_linear("post_attention_layernorm", 1, hidden),
        *_linear("attention.query_key_value", hidden, 3 * hidden, bias),
        *_linear("attention.dense", hidden, hidden, bias),
        *_linear("mlp.dense_h_to_4h", hidden, inner), *_linear("mlp.dense_4h_to_h", inner, hidden),
    ]  # fmt: skip
    last = _linear("gpt_neox.final_layer_norm", 1, hidden)
    last += [("lm_head.weight", words)] * (1 - size.flag("tie_word_embeddings", False))
    return _model([("gpt_neox.embed_in.weight", words)], "gpt_neox.layers.{}.", block, layers, hidden, last)


_NORMS = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")


def _llama(
    size: _Sizes,
    *,
    tied: bool = False,
    qkv_bias: bool = False,
    head_norms: bool = False,
    norms: int = 2,
    fused: bool = False,
) -> Model:
    """Llama and models built like it: gated MLP, grouped keys and values, RMS norms.

    `norms`: norms of the hidden size in a layer. `head_norms`: two more of a head's size, for queries and keys.
    `fused`: queries, keys and values are one tensor, gate and up another.
    """
    hidden, layers, heads = size("hidden_size"), size("num_hidden_layers"), size("num_attention_heads")
    head, inner = size("head_dim", default=hidden // heads), size("intermediate_size")
    query, keys = heads * head, size("num_key_value_heads", default=heads) * head
    all_biased, mlp_bias = size.flag("attention_bias", False), size.flag("mlp_bias", False)
    biased, words = max(int(qkv_bias), all_biased), size("vocab_size") * hidden
    if fused:
        inputs = {"self_attn.qkv_proj": query + 2 * keys, "mlp.gate_up_proj": 2 * inner}
    else:
        inputs = {"self_attn.q_proj": query, "self_attn.k_proj": keys, "self_attn.v_proj": keys}
        inputs |= {"mlp.gate_proj": inner, "mlp.up_proj": inner}
    block = _linear("self_attn.o_proj", query, hidden, all_biased) + _linear("mlp.down_proj", inner, hidden, mlp_bias)
    for name, outside in inputs.items():
        block += _linear(name, hidden, outside, biased if name.startswith("self_attn") else mlp_bias)
    block += [(f"self_attn.{each}_norm.weight", head) for each in "qk" if head_norms]
    block += [(f"{name}.weight", hidden) for name in _NORMS[:norms]]
    last = [("model.norm.weight", hidden)]
    last += [("lm_head.weight", words)] * (1 - size.flag("tie_word_embeddings", tied))
    return _model([("model.embed_tokens.weight", words)], "model.layers.{}.", block, layers, hidden, last)


_FAMILIES: dict[str, Callable[[_Sizes], Model]] = {
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "llama": _llama,
    "mistral": _llama,
    "phi3": lambda size: _llama(size, fused=True),
    "qwen2": lambda size: _llama(size, qkv_bias=True),
    "qwen3": lambda size: _llama(size, head_norms=True),
    "gemma": lambda size: _llama(size, tied=True),
    "gemma2": lambda size: _llama(size, tied=True, norms=4),
}


def read_config(path: Path) -> Model:
    """Reads a `config.json`, or the one in a folder. Raises ValueError or OSError with one line."""
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
    except Exception as error:  # transformers may raise anything
        first = str(error).strip().split("\n")[0]
        raise ValueError(
            f"--config {file}: transformers cannot make a {family!r} of it ({first}) [cli.plan-model]"
        ) from None
    tensors = tuple((name, each.numel()) for name, each in model.named_parameters())
    count = sum(n for _, n in tensors)
    return Model(count, int(values.get("num_hidden_layers") or 0), int(values.get("hidden_size") or 0), tensors)
