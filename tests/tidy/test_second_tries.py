"""A test that fails is run once more only where it says why, and that it was is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PLUGIN = Path(__file__).parents[1] / "python" / "second_tries.py"
CASES = """
import pytest
from pathlib import Path

def at_a_second_try(name):
    tried = Path(name)
    if not tried.exists():
        tried.touch()
        pytest.fail("the first time")

@pytest.mark.second_try("the weather decides it")
def test_marked():
    at_a_second_try("marked")

@pytest.mark.second_try("the weather decides it")
def test_marked_and_wrong():
    pytest.fail("each time")

def test_not_marked():
    at_a_second_try("not marked")
"""


def pytest_in(folder: Path, text: str) -> str:
    (folder / "test_cases.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "pytest_rerunfailures", "-p", "second_tries", "test_cases.py"]
    environment = {"PYTHONPATH": str(PLUGIN.parent), "PATH": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120).stdout


def test_only_a_marked_test_runs_again_and_the_summary_names_it(tmp_path: Path) -> None:
    out = pytest_in(tmp_path, CASES)
    assert "\n1 test passed at a second try: test_cases.py::test_marked (the weather decides it)\n" in out, out
    assert "the first time" in out, "why the first try failed is told"
    assert "2 failed, 1 passed, " in out.splitlines()[-1], out


def test_the_summary_reports_zero_second_tries_too(tmp_path: Path) -> None:
    assert "\n0 tests passed at a second try\n" in pytest_in(tmp_path, "def test_good():\n    pass\n")


def test_a_mark_without_a_reason_is_refused(tmp_path: Path) -> None:
    text = "import pytest\n@pytest.mark.second_try\ndef test_it():\n    pass\n"
    assert "1 passed" not in pytest_in(tmp_path, text)
