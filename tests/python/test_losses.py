"""A rank dies: sums, means and barriers go on over the living, calls that need everybody name it."""

from __future__ import annotations

import pytest
from ranks import expect_success, listing, run_ranks

SITES = ["paris", "paris", "oslo", "bern"]


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["ucx", "tcp"])
def test_survivors_go_on(transport: str) -> None:
    environment = {"COLLAB_TRANSPORT": transport, "COLLAB_LINK_GRACE": "4s", "COLLAB_HEARTBEAT": "500ms"}
    finished = run_ranks("losses.py", SITES, "2", environment=environment)
    assert finished[2].status == -9, listing(finished)
    expect_success([finished[rank] for rank in (0, 1, 3)])
    for rank in (0, 1, 3):
        assert "rank 2 of oslo is gone" in finished[rank].output, listing(finished)
        assert "[hub.living-only]" in finished[rank].output, listing(finished)


@pytest.mark.slow
def test_ranks_that_lose_the_coordinator_end_with_a_message() -> None:
    """In one world the first site's leader serves it; the ranks that are left are told, within the grace."""
    environment = {"COLLAB_LINK_GRACE": "4s", "COLLAB_HEARTBEAT": "500ms"}
    finished = run_ranks("losses.py", SITES, "0", environment=environment)
    for rank in (1, 2, 3):
        assert finished[rank].status not in (0, -9), listing(finished)
    for rank in (2, 3):  # rank 1 hears of it within its site first
        assert "[hub.unreachable]" in finished[rank].output, listing(finished)
