"""`collab plan`: its arithmetic against figures worked out by hand, against what benchmarks measured, and its words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import collab
from torch_collab import native
from torch_collab.cli import main
from torch_collab.planning import codecs, costs, measured, memory, parameters, presets
from torch_collab.planning.costs import steps_between
from torch_collab.planning.lines import (
    Between,
    Exchange,
    Line,
    exchange,
    gloo_all_reduce,
    gloo_rate,
    parse_site,
    parse_sites,
)
from torch_collab.planning.parameters import Model

GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_positions": 1024, "vocab_size": 50257}
GIVEN = ("--parameters", "124M", "--sites", "2", "--line", "100", "--rtt", "100", "--step", "0.3s")


def sites(*rates: tuple[float, float]) -> list[Line]:
    return [Line(f"s{index}", down * 1e6, up * 1e6) for index, (down, up) in enumerate(rates)]


def fp32(lines: list[Line], rtt: float, loss: float, millions: float = 25) -> Exchange:
    return exchange(lines, Between(rtt, loss), 4e6 * millions, 4e6 * millions)


def settings(**knobs: str) -> native.Settings:
    return presets.of_knobs(knobs)


# ---- parameters -----------------------------------------------------------------------------------


def test_counts_are_read() -> None:
    for text, count in (("124M", 124_000_000), ("1.5b", 1_500_000_000), ("7000", 7000), ("33k", 33_000)):
        assert parameters.parse_count(text) == count
    for text in ("", "M", "-3M", "0", "124 MB", "1e6"):
        with pytest.raises(ValueError, match="such as 124M"):
            parameters.parse_count(text)


LLAMA = {
    "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32, "num_hidden_layers": 16,
    "num_key_value_heads": 8, "vocab_size": 128256,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "count"),
    [
        (GPT2, 124_439_808),
        # Llama 3.2 1B, tied; Qwen2 0.5B; Pythia 160M; Mistral 7B; Gemma 2B: as their pages state them.
        ({"model_type": "llama", "tie_word_embeddings": True, **LLAMA}, 1_235_814_400),
        (
            {
                "model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "num_attention_heads": 14,
                "num_hidden_layers": 24, "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True,
            },
            494_032_768,
        ),
        (
            {
                "model_type": "gpt_neox", "hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12,
                "num_hidden_layers": 12, "vocab_size": 50304,
            },
            162_322_944,
        ),
        (
            {
                "model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
                "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 32000,
            },
            7_241_732_096,
        ),
        (
            {
                "model_type": "gemma", "hidden_size": 2048, "intermediate_size": 16384, "num_attention_heads": 8,
                "num_hidden_layers": 18, "num_key_value_heads": 1, "head_dim": 256, "vocab_size": 256000,
            },
            2_506_172_416,
        ),
    ],
)  # fmt: skip
def test_a_config_is_counted_without_transformers(config: dict[str, object], count: int, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = parameters.read_config(tmp_path)
    assert model.parameters == count
    assert model.layers == config.get("num_hidden_layers", 12)


@pytest.mark.parametrize(
    "family", ["gpt2", "gpt_neox", "llama", "mistral", "phi3", "qwen2", "qwen3", "gemma", "gemma2"]
)
@pytest.mark.parametrize("tied", [True, False])
def test_families_are_counted_as_transformers_builds_them(family: str, tied: bool, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    small = {
        "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2,
        "num_hidden_layers": 3, "vocab_size": 128, "head_dim": 16, "pad_token_id": 0,
    }  # fmt: skip
    if family == "gpt2":
        small = {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 32, "vocab_size": 128, "n_inner": 80}
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": family, "tie_word_embeddings": tied, **small}))
    config = transformers.AutoConfig.for_model(family, tie_word_embeddings=tied, **small)
    built = transformers.AutoModelForCausalLM.from_config(config)
    tensors = {name: each.numel() for name, each in built.named_parameters()}
    assert dict(parameters.read_config(file).tensors) == tensors


def test_another_family_is_built_by_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    small = {"hidden_size": 64, "ffn_dim": 96, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 128,
             "word_embed_proj_dim": 64}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "opt", **small}))
    built = transformers.OPTForCausalLM(transformers.OPTConfig(**small))
    assert parameters.read_config(tmp_path).parameters == sum(each.numel() for each in built.parameters())


# ---- lines ----------------------------------------------------------------------------------------


def test_two_equal_sites_by_hand() -> None:
    # 100 MB each way over 95 of 100 Mbit/s: 8.421 s; and one and a half round trips.
    found = fp32(sites((100, 100), (100, 100)), 0.1, 0)
    assert found.seconds == pytest.approx(800 / 95 + 0.15)
    assert found.up == found.down == pytest.approx((100e6, 100e6))
    assert found.shares == (0.5, 0.5)


# As tests/bench/README.md has them: rate, RTT, loss, share of the line.
@pytest.mark.parametrize(
    ("mbit", "rtt", "loss", "share"),
    [(100, 0.1, 0, 0.932), (100, 0.1, 0.001, 0.927), (100, 0.1, 0.01, 0.904), (400, 0.1, 0.001, 0.863),
     (1000, 0.02, 0, 0.936)],
)  # fmt: skip
def test_the_plan_meets_the_measured_exchange_times(mbit: float, rtt: float, loss: float, share: float) -> None:
    seconds = fp32(sites((mbit, mbit), (mbit, mbit)), rtt, loss).seconds
    assert 800 / mbit / seconds == pytest.approx(share, rel=0.04)


def test_the_plan_meets_measurements_of_four_sites_uneven_lines_and_codecs() -> None:
    assert fp32(sites(*[(100, 100)] * 4), 0.1, 0).seconds == pytest.approx(13.22, rel=0.04)
    assert fp32(sites(*[(100, 20)] * 3, (1000, 1000)), 0.05, 0).seconds == pytest.approx(42.75, rel=0.04)
    pair = sites((100, 100), (100, 100))
    whole = fp32(pair, 0.1, 0).seconds
    for codec, of_it in (("int8", 0.257), ("int4", 0.141)):
        size = codecs.encoded(codec, 25e6)
        assert exchange(pair, Between(0.1), size, size).seconds / whole == pytest.approx(of_it, rel=0.05)


@pytest.mark.parametrize(
    ("mbit", "rtt", "loss", "share"),
    [(100, 0.1, 0, 0.576), (100, 0.1, 0.001, 0.416), (100, 0.1, 0.01, 0.336), (400, 0.1, 0.001, 0.110),
     (1000, 0.02, 0, 0.508)],
)  # fmt: skip
def test_the_plan_meets_the_measured_times_of_gloo(mbit: float, rtt: float, loss: float, share: float) -> None:
    seconds, volume = gloo_all_reduce(sites((mbit, mbit), (mbit, mbit)), Between(rtt, loss), 100e6, 1)
    assert volume == 100e6
    assert 800 / mbit / seconds == pytest.approx(share, rel=0.1)


def test_gloo_gets_slower_with_each_loss() -> None:
    rates = [gloo_rate(100e6, Between(0.1, loss)) for loss in (0, 0.0001, 0.0005, 0.001, 0.01, 0.1)]
    assert rates == sorted(rates, reverse=True) and len(set(rates)) == len(rates)


def test_a_fast_site_owns_what_thin_ones_would_send_twice() -> None:
    # Three that send at 20: with equal shares each would send 1.5 deltas, with the fast one as owner one.
    found = fp32(sites(*[(100, 20)] * 3, (1000, 1000)), 0, 0)
    assert found.shares == pytest.approx((0, 0, 0, 1), abs=1e-6)
    assert found.up == pytest.approx((100e6, 100e6, 100e6, 300e6))
    assert found.seconds == pytest.approx(800 / 20 / 0.95)


def test_a_site_that_cannot_be_dialled_owns_nothing() -> None:
    lines = [Line("a", 1e8, 1e8), Line("b", 1e8, 1e8, dialable=False)]
    assert exchange(lines, Between(0), 1e6, 1e6).shares == (1, 0)
    with pytest.raises(ValueError, match="nobody can own"):
        exchange([lines[1], Line("c", 1e8, 1e8, dialable=False)], Between(0), 1e6, 1e6)


def test_a_thin_mean_is_sent_by_the_faster_one() -> None:
    # Deltas of 100, means of 25 bytes: an owner sends the mean in place of its own delta's other half.
    found = exchange(sites((100, 100), (100, 10)), Between(0), 100e6, 25e6)
    assert sum(found.shares) == pytest.approx(1) and found.shares[1] > 0.5
    assert found.up[1] == pytest.approx(100e6 * (1 - 0.75 * found.shares[1]))


def test_sites_are_read_as_the_lab_reads_them() -> None:
    assert parse_site("paris:100/20,nat,queue=50", None) == Line("paris", 1e8, 2e7, dialable=False)
    assert parse_site("tokyo:1000", None) == Line("tokyo", 1e9, 1e9)
    assert parse_sites(["3"], "100/20") == tuple(Line(f"s{i}", 1e8, 2e7) for i in range(3))
    assert parse_sites(["a", "b:10/1"], "100")[0] == Line("a", 1e8, 1e8)


# ---- rounds, codecs, memory -----------------------------------------------------------------------


def test_codecs_are_as_large_as_the_core_makes_them() -> None:
    # The documents' megabytes of 124 M parameters; top-k at its bound.
    for codec, size in (("fp32", 496), ("fp16", 248.5), ("int8", 125), ("int4", 64), ("int2", 35)):
        assert codecs.encoded(codec, 124e6) / 1e6 == pytest.approx(size, rel=0.005)
    assert codecs.encoded("topk64", 4096) == 85 and codecs.encoded("topk128", 4096) == 148
    accepted = next(row["range"] for row in native.knob_table() if row["name"] == "codec")
    for name in accepted.removesuffix(", or UP/DOWN").split("|"):
        assert native.parse_codecs(name) == (name, name), "each that the knob names"
    assert native.parse_codecs("topk64/int8") == ("topk64", "int8") and native.parse_codecs("int4") == ("int4", "int4")
    for refused in (lambda: native.parse_codecs("int8/in4"), lambda: codecs.encoded("in4", 1)):
        with pytest.raises(ValueError, match=r'codec "in4".*\[knob\.codec\]'):
            refused()


def test_a_round_by_hand() -> None:
    pair = sites((100, 100), (100, 100))
    cost = costs.local_sgd("x", settings(codec="fp32"), pair, Between(0.1), Model(25_000_000), 0.3)
    on_lines = 800 / 95 + 0.15
    stall = on_lines + 0.1 + 0.0625 + 0.1  # commit, outer step, ready
    assert cost.exchange == pytest.approx(on_lines)
    assert cost.round == pytest.approx(stall - 0.1)
    assert cost.waits == pytest.approx(stall / (30 + stall))
    assert cost.waits_overlap == pytest.approx(0.125 / 30.125)  # a copy and the merge
    assert cost.every_overlap == 30
    assert cost.steps_a_second == pytest.approx(100 / (30 + stall))
    assert cost.of_alone == pytest.approx(30 / (30 + stall))
    assert cost.gb_day_up == pytest.approx((0.1 * 86400 / (30 + stall),) * 2)


def test_with_overlap_rounds_get_rarer_and_training_does_not_wait() -> None:
    pair = sites((100, 100), (100, 100))
    each = settings(codec="fp32", sync_every="10", overlap="1")
    cost = costs.local_sgd("x", each, pair, Between(0.1), Model(25_000_000), 0.3)
    takes = 800 / 95 + 0.15 + 0.1 + 0.0625 + 0.1  # three seconds of steps do not cover it
    assert cost.every_seconds == cost.every_overlap == pytest.approx(takes)
    assert cost.steps_a_second == pytest.approx(takes / 0.3 / (takes + 0.125))
    assert cost.gb_day_up[0] == pytest.approx(0.1 * 86400 / (takes + 0.125))


def test_fragments_send_as_much_in_smaller_rounds() -> None:
    pair = sites((100, 100), (100, 100))
    whole = costs.local_sgd("x", settings(codec="fp32", sync_every="400"), pair, Between(0.1), Model(25_000_000), 0.3)
    four = settings(codec="fp32", sync_every="400", fragments="4")
    each = costs.local_sgd("x", four, pair, Between(0.1), Model(25_000_000), 0.3)
    assert steps_between(four, 0.3, 1) == 100 and steps_between(settings(sync_every="60s", fragments="4"), 0.5, 1) == 30
    assert each.bytes_up[0] == pytest.approx(whole.bytes_up[0] / 4)
    assert each.exchange == pytest.approx(200 / 95 + 0.15, rel=1e-3)
    assert each.gb_day_up[0] == pytest.approx(whole.gb_day_up[0], rel=0.02), "but for the waits"
    assert "4 fragments" in each.settings and "fragments" not in whole.settings


def test_tensors_that_are_kept_at_16_bits_are_counted(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(GPT2))
    model = parameters.read_config(tmp_path)
    # Of each of 12 layers two norms and four biases, and the last norm; then wpe, of 1024 positions.
    small = 12 * (2 * 2 * 768 + 3 * 768 + 768 + 4 * 768 + 768) + 2 * 768
    assert model.kept("none") == 0 and model.kept("small") == small
    assert model.kept("small,wpe,ln_f") == small + 1024 * 768
    row = next(row for row in native.knob_table() if row["name"] == "keep_fp16")
    assert "fewer than 65536 elements" in row["sentence"]
    assert native.kept_elements("small", [("a", 65535), ("b", 65536)]) == 65535
    pair, path = sites((100, 100), (100, 100)), Between(0.1)
    for codec, least in (("int4", 66 / 128), ("bf16", 2.0)):
        cost = costs.local_sgd("x", settings(codec=codec, keep_fp16="small"), pair, path, model, 0.3)
        kept = small if codec == "int4" else 0
        assert cost.bytes_up[0] == pytest.approx(least * (model.parameters - kept) + (2 + 1 / 256) * kept)


def test_kept_tensors_are_reported_as_left_out_if_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *GIVEN]) == 0
    assert "COLLAB_KEEP_FP16 (wan, slow, pretrain) is not counted: give --config" in capsys.readouterr().out
    (tmp_path / "config.json").write_text(json.dumps(GPT2))
    assert main(["plan", "--config", str(tmp_path), *GIVEN[2:]]) == 0
    assert "KEEP_FP16" not in capsys.readouterr().out
    assert main(["plan", *GIVEN, "--preset", "lan", "--set", "fragments=4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["keep_fp16_not_counted"] == []


def test_ddp_by_hand() -> None:
    cost = costs.gloo_ddp(sites((100, 100), (100, 100)), Between(0.1), 25_000_000, 0.3, 1)
    seconds = 800e6 / (95e6 * 19.3 / (19.3 + 10))
    assert cost.exchange == pytest.approx(seconds)
    assert cost.steps_a_second == pytest.approx(1 / (0.1 + seconds))
    # Four ranks at each of two sites: the ring carries 2 * 7 / 8 over each line.
    assert costs.gloo_ddp(sites((1, 1), (1, 1)), Between(0), 1_000_000, 1, 4).bytes_up[0] == pytest.approx(7e6)


def test_settings_are_those_of_the_knob_table() -> None:
    assert steps_between(settings(sync_every="30s"), 0.5, 7) == 60 and steps_between(settings(), 9, 7) == 100
    for wrong in ({"codec": "int7"}, {"sync_every": "0"}, {"fragments": "65"}, {"outer_optimizer": "adam"}):
        with pytest.raises(ValueError, match=r"\[knob.bad-value\]"):
            settings(**wrong)


def test_auto_is_the_period_that_the_leader_would_choose() -> None:
    auto = settings(sync_every="auto:32", target_overhead="0.1")
    assert steps_between(auto, 0.5, 2.02) == 41
    assert steps_between(auto, 9, 0.01) == 1 and steps_between(auto, 0.001, 60) == 10_000
    assert steps_between(settings(sync_every="auto", overlap="1"), 0.5, 10) == 22
    pair = sites((100, 100), (100, 100))
    for overlap in "01":
        auto = settings(sync_every="auto", overlap=overlap)
        cost = costs.local_sgd("x", auto, pair, Between(0.1), Model(25_000_000), 0.3)
        assert cost.waits == pytest.approx(0.02 / 1.02, rel=0.02)
        behind = steps_between(settings(sync_every="auto", overlap="1"), 0.3, cost.round + 0.1) * 0.3
        assert cost.every_overlap == pytest.approx(behind) and behind < 6
        assert cost.waits_overlap == pytest.approx(0.125 / (behind + 0.125))  # a copy and the merge
        assert (cost.every_seconds == cost.every_overlap) == auto.overlap


def test_memory_by_hand() -> None:
    model = parameters.Model(1_000_000)
    rows = {row.name: row for row in memory.rank_options(model, "adamw", 0)}
    assert rows["adamw"].device == 16e6  # parameters, gradients, two states
    assert rows["8-bit optimizer"].device == 8e6 + 2e6 * (1 + 4 / 256)
    assert (rows["optimizer offloaded"].device, rows["optimizer offloaded"].offloaded) == (8e6, 8e6)
    assert memory.rank_options(model, "sgd", 0, 2.0)[0].device == 4e6
    assert "checkpointing" not in rows
    gpt2 = parameters.Model(124_439_808, 12, 768)
    plain, checkpointed = (
        {row.name: row for row in memory.rank_options(gpt2, "adamw", 8192)}[name] for name in ("adamw", "checkpointing")
    )
    kept = 34 * 2 * 8192 * 12 * 768
    assert plain.device == pytest.approx(16 * 124_439_808 + kept)
    assert checkpointed.device == pytest.approx(16 * 124_439_808 + kept / 12 + kept / 17)


def test_memory_of_a_leader_by_hand() -> None:
    assert memory.leader(settings(), 1_000_000, 2, 0.5) == 12e6 + memory.FIXED
    each = settings(codec="int8", outer_optimizer="nesterov", overlap="1")
    assert memory.leader_vectors(each, 2, 0.5) == {
        "anchor": 2, "exchange": 1, "residual": 1.5, "momentum": 1, "overlap": 1
    }  # fmt: skip
    assert "residual" not in memory.leader_vectors(settings(codec="int8", error_feedback="0"), 2, 0.5)


def test_an_owner_keeps_what_every_other_site_sends_it() -> None:
    for codec, sites, share, vectors in (
        ("fp32", 5, 1.0, 4), ("fp32", 2, 1.0, 1), ("fp16", 9, 1.0, 8 * (2 + 1 / 256) / 4), ("int4", 9, 1.0, 66 / 64),
        ("fp32", 9, 1 / 9, 1), ("int4/fp32", 9, 1.0, 66 / 64),
    ):  # fmt: skip
        assert memory.leader_vectors(settings(codec=codec), sites, share)["exchange"] == pytest.approx(vectors), codec
    assert memory.leader_vectors(settings(codec="fp32", fragments="2"), 5, 1.0)["exchange"] == 2
    given = ("--parameters", "1B", "--step", "1s", "--set", "codec=fp32", "--json")
    thin = [f"{name}:100/20,nat" for name in "abcd"]
    done = collab("plan", *given, "--sites", "hub:1000", *thin)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["memory_leader"]["yours"]["vectors"] == {"anchor": 2, "exchange": 4}


# ---- the command ----------------------------------------------------------------------------------


def test_the_table_has_every_way() -> None:
    done = collab("plan", *GIVEN)
    assert done.returncode == 0, done.stderr
    for name in ("never talking", "DDP over Gloo", "collab", *(row["name"] for row in native.preset_table())):
        assert f"\n  {name} " in done.stdout, done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 120
    assert "beside it, at a leader" in done.stdout
    assert "and 0.50 GB for the optimizer's state while a site joins" in done.stdout  # two moments of 16 bits
    assert "while a site joins" not in collab("plan", *GIVEN, "--optimizer", "sgd").stdout


def test_json_is_what_the_table_is_made_of() -> None:
    done = collab("plan", *GIVEN, "--json", "--preset", "wan", "--set", "codec=int2", "--set", "COLLAB_SYNC_EVERY=10")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    ways = {way["name"]: way for way in answer["ways"]}
    assert list(ways) == ["never talking", "DDP over Gloo", "collab", "wan", "yours"]
    assert ways["yours"]["settings"] == "int2, every 10 steps"
    expected = costs.local_sgd(
        "collab", settings(), sites((100, 100), (100, 100)), Between(0.1), Model(124_000_000), 0.3
    )
    assert ways["collab"]["round"] == pytest.approx(expected.round)
    assert answer["memory_leader"]["collab"]["bytes"] == pytest.approx(12 * 124e6 + memory.FIXED)


def test_uneven_lines_show_the_share_of_each_site() -> None:
    done = collab("plan", *GIVEN[:2], "--step", "1s", "--sites", "a:100/20", "b:100/20", "c:1000")
    assert done.returncode == 0 and "owns" in done.stdout and "100%" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("every", [50, 100])
def test_rounding_delays_no_rounds(every: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert every * 0.69 / 0.69 > every  # as floats
    given = ("--parameters", "1M", *GIVEN[2:-1], "0.69s", "--set", f"sync_every={every}", "--set", "overlap=1")
    assert main(["plan", *given]) == 0
    assert "rounds would come only every" not in capsys.readouterr().out


def test_the_plan_reports_rounds_that_overlap_would_delay(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *GIVEN, "--set", "sync_every=10"]) == 0
    out = capsys.readouterr().out
    # 248.5 MB at 95 Mbit/s, and 0.15 + 0.1 + 0.31 + 0.1 s, are 72 steps of 0.3 s; 100 steps cover them.
    assert "  with overlap, rounds would come only every 72 (lan), 72 (yours) steps\n" in out, out


def test_the_help_has_an_example() -> None:
    done = collab("plan", "--help")
    assert "collab plan --parameters 124M --sites paris:1000 tokyo:100/20" in done.stdout
    line = next(line for line in done.stdout.splitlines() if line.strip().startswith("collab plan --parameters"))
    assert collab(*line.split()[1:]).returncode == 0


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (["--parameters", "124MB"], "'124MB' parameters: expected a number above 0 such as 124M"),
        (["--step", "0.3"], "--step '0.3': expected a time above 0 with its unit, such as 0.3s or 300ms"),
        (["--line", "100Mbit"], "--line: expected DOWN/UP in Mbit/s as plain numbers, such as 100/20, got '100Mbit'"),
        (["--sites", "paris:fast", "tokyo"], "--sites paris:fast: expected DOWN/UP in Mbit/s"),
        (["--sites", "1"], "expected at least 2"),
        (["--sites", "a", "a"], "a is there twice"),
        (["--sites", "a:1,tor", "b"], "expected nat or queue=MS behind the comma, got 'tor'"),
        (["--sites", "a,nat", "b,nat"], "all sites are behind NAT"),
        (["--preset", "wann"], "the nearest one is wan"),
        (["--loss", "40"], "--loss in percent: expected a plain number from 0 to 15, got '40'"),
        (["--rtt", "100ms"], "--rtt in milliseconds: expected a plain number"),
        (["--set", "codex=int8"], "[knob.unknown"),
        (["--set", "sync_every=samples:4096"], "that one step of all sites takes [cli.plan-arguments]"),
        (["--set", "codec=int9"], "\"codec\": expected a codec"),
        (["--tokens", "4096"], "--tokens needs --config FILE"),
    ],
)  # fmt: skip
def test_an_error_is_one_line(changed: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *GIVEN, *changed]) == 2
    out, err = capsys.readouterr()
    assert words in err and err.count("\n") == 1 and err.startswith("collab: ") and out == ""


def test_a_plan_without_arguments_is_wrong_usage_and_a_missing_file_is_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["plan"]) == 2 and main(["plan", "--parameters", "124M"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("collab: give the model: --parameters 124M, or --config FILE; the time of one step")
    assert err.count("--step 0.3s") == err.count("--line DOWN/UP") == 2, "all that is missing at once"
    assert main(["plan", *GIVEN, "--measure", "/nowhere"]) == 1
    assert "/nowhere cannot be read: No such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "with model_type in it"),
        ('{"model_type": "gpt2"}', "has no n_embd"),
        ('{"model_type": "llama", "hidden_size": "x"}', "hidden_size is 'x', expected a whole number"),
        ('{"model_type": "no-such"}', "no-such"),
    ],
)
def test_an_invalid_config_is_refused(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(text)
    assert main(["plan", *GIVEN[2:], "--config", str(tmp_path)]) == 1
    err = capsys.readouterr().err
    assert words in err and err.count("\n") == 1, err


def events(file: Path, site: str, every: float, seconds: list[float]) -> Path:
    lines = [{"t": 0, "site": "coordinator", "event": "round", "round": 1, "members": [], "seconds": 1}]
    for number, took in enumerate(seconds):
        lines.append({
            "t": 1000 + every * number, "site": site, "event": "round", "round": number, "seconds": took,
            "exchange_seconds": took - 0.1, "stall_seconds": took + 0.1, "bytes_sent": 100e6, "bytes_received": 99e6,
            "codec": "fp32",
        })  # fmt: skip
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_a_run_stands_beside_the_plan(tmp_path: Path) -> None:
    files = [events(tmp_path / "a", "a", 40, [20, 15, 9, 9, 8]), events(tmp_path / "b", "b", 40, [20, 15, 8, 8, 8])]
    run = measured.read(files)
    assert (run.rounds, run.sites, run.codec, run.between) == (3, 2, "fp32", 40)
    assert (run.round, run.exchange, run.stall) == pytest.approx((9, 8.9, 9.1))
    given = ("--parameters", "25M", *GIVEN[2:], "--measure", *map(str, files))
    answer = json.loads(collab("plan", *given, "--json").stdout)["measured"]
    assert answer["exchange, s"] == {"planned": pytest.approx(800 / 95 + 0.15), "measured": pytest.approx(8.9)}
    assert answer["MB sent a round"] == {"planned": pytest.approx(100), "measured": 100}
    assert not run.overlap
    behind = events(tmp_path / "d", "a", 40, [9] * 4)
    behind.write_text(behind.read_text().replace('"codec"', '"overlap_seconds": 9.1, "codec"'))
    assert measured.read([behind]).overlap and run.fragments == 1
    parts = events(tmp_path / "e", "a", 40, [9] * 6)
    told = [json.loads(line) for line in parts.read_text().splitlines()]
    parts.write_text("".join(json.dumps(event | {"fragment": i % 3}) + "\n" for i, event in enumerate(told)))
    assert measured.read([parts]).fragments == 3
    shown = collab("plan", *given).stdout
    assert "fp32, 3 warm rounds" in shown and "of the plan" in shown
    empty = tmp_path / "c"
    empty.write_text("")
    assert "no rounds of a site in it" in collab("plan", *GIVEN, "--measure", str(empty)).stderr
