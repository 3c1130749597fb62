"""How the end of a run is told from a failure."""

from __future__ import annotations

import sys

import pytest
from torch_collab.backend import shutdown


@pytest.mark.parametrize(("kind", "fails"), [(StopIteration, False), (GeneratorExit, False), (ValueError, True)])
def test_the_end_of_the_data_is_no_failure(kind: type[BaseException], fails: bool) -> None:
    try:
        raise kind
    except kind:
        assert shutdown._raising() is fails
    assert not shutdown._raising()


def test_a_script_that_trains_on_has_handled_its_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutdown, "_exit_status", 1)
    monkeypatch.setattr(shutdown, "_exit_steps", 7)
    monkeypatch.setattr(shutdown, "_steps", lambda: 7)
    assert shutdown._failed_exit()
    monkeypatch.setattr(shutdown, "_steps", lambda: 8)
    assert not shutdown._failed_exit()


def test_an_error_of_a_notebooks_cell_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys, "ps1", raising=False)
    monkeypatch.setattr(sys, "last_value", ValueError(), raising=False)
    assert shutdown._uncaught_error()
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    assert not shutdown._uncaught_error()
