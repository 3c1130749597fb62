"""data_rank() and data_world_size(): the shares of a script that divides its data by itself are a sampler's."""

from __future__ import annotations

from ranks import Ranks, expect_success, run_ranks


def test_a_share_is_that_of_a_default_sampler() -> None:
    with Ranks("shares.py", [], [{}]) as ranks:
        (rank,) = expect_success(ranks.join())
    said = dict(line.split(": ", 1) for line in rank.output.splitlines() if line.split(": ")[0] in NAMES)
    assert said["early"].endswith("[capture.data-rank-early]")
    assert said["one world"] == "(0, 1) (0, 1) True"
    assert said["late"] == said["late again"] == "(0, 1) (0, 1) True"
    assert said["shard"] == "(1, 3) (1, 3) True"
    assert said["no shard"].endswith("[knob.site-index]")
    assert rank.output.count("[capture.data-rank-alone]") == 1, "said once, and not of shards or of one world"
    assert "site tokyo alone" in rank.output


NAMES = ("early", "one world", "late", "late again", "shard", "no shard")


def test_ranks_of_one_world_have_a_share_each() -> None:
    finished = expect_success(run_ranks("share.py", ["paris", "paris", "tokyo"]))
    assert [rank.output.split("share ")[1].split("\n")[0] for rank in finished] == ["0 of 3", "1 of 3", "2 of 3"]
    assert all("[capture.data-rank-alone]" not in rank.output for rank in finished)
