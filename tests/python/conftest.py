"""Fixtures of the Python tests."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

# The line above lets these be found.
import second_tries
from second_tries import pytest_terminal_summary  # noqa: F401  (a hook)
from torchruns import Nodes
from turns import have_own_mounts, in_order, pytest_runtest_protocol  # noqa: F401  (a hook)


@pytest.fixture(autouse=True)
def _records_of_the_test(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sites of one test find no records of another's, nor of the user's."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


def pytest_configure(config: object) -> None:
    if hasattr(config, "workerinput"):
        have_own_mounts()
    # For what fixtures start that serve more than one test.
    state = os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="collab-tests-state-")
    atexit.register(shutil.rmtree, state, ignore_errors=True)
    # Of what asks a name server all the same (turns.py).
    os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")
    # A shell starts background jobs with Ctrl-C ignored, and what the tests start would inherit that.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "slow: takes more than ten seconds")  # type: ignore[attr-defined]
    config.addinivalue_line("markers", "second_try(why): run once more if it fails; why says what decides it")  # type: ignore[attr-defined]
    config.addinivalue_line("markers", "alone: runs beside no other test of `pytest -n`")  # type: ignore[attr-defined]
    config.addinivalue_line("markers", "cuda: needs a GPU, and a torch that knows it")  # type: ignore[attr-defined]
    config.addinivalue_line("markers", "wan: needs network namespaces and TUN")  # type: ignore[attr-defined]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    second_tries.pytest_collection_modifyitems(items)
    in_order(items)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("cuda") is not None and not torch.cuda.is_available():
        pytest.skip(f"no GPU that torch {torch.__version__} can use")


@pytest.fixture(scope="session")
def allowed() -> None:
    """Skips, in words, where namespaces or TUN devices are not to be had."""
    check = subprocess.run(
        [sys.executable, "-m", "torch_collab.cli", "lab", "--check"], capture_output=True, text=True, timeout=60
    )
    if check.returncode != 0:
        pytest.skip(check.stderr.strip())


@pytest.fixture
def serves_none(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a handler tells its workers stays in the test. With a coordinator given it serves none."""
    saved = dict(os.environ)
    monkeypatch.setenv("COLLAB_COORDINATOR", "127.0.0.1:9")
    yield
    os.environ.clear()
    os.environ.update(saved)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    made = Nodes(tmp_path)
    try:
        yield made
    finally:
        for node in made.all:
            node.kill()
