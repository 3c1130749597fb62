"""Numbers and lists in sentences."""

from __future__ import annotations

from torch_collab.formatting import counted, listed


def test_a_count_of_one_is_singular() -> None:
    assert [counted(count, "site") for count in (0, 1, 2)] == ["0 sites", "1 site", "2 sites"]


def test_a_long_list_says_how_many_more() -> None:
    assert listed([]) == "" and listed(["a", "b"]) == "a, b"
    assert listed(list("abcd"), most=3) == "a, b, c and 1 more"
    assert listed(["x"] * 16).count("x") == 16 and listed(["x"] * 18).endswith("x and 2 more")
