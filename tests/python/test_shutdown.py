"""How the end of a run is told from a failure."""

from __future__ import annotations

import pytest
from torch_collab.backend import shutdown


@pytest.mark.parametrize(("kind", "fails"), [(StopIteration, False), (GeneratorExit, False), (ValueError, True)])
def test_the_end_of_the_data_is_no_failure(kind: type[BaseException], fails: bool) -> None:
    try:
        raise kind
    except kind:
        assert shutdown._raising() is fails
    assert not shutdown._raising()
