"""examples/two_sites.ipynb: a notebook as the format has it, without outputs, whose cells run one after the other."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import bare_environment

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "two_sites.ipynb"
# What Jupyter would do, in a process of its own; then what there is.
RUN = """
import json, sys
there = {"__name__": "__main__"}
for number, cell in enumerate(json.loads(open(sys.argv[1], encoding="utf-8").read())["cells"]):
    if cell["cell_type"] == "code":
        exec(compile("".join(cell["source"]), f"cell {number}", "exec"), there)
import matplotlib.pyplot as plt
drawn = [len(axes.lines) + len(axes.patches) for number in plt.get_fignums() for axes in plt.figure(number).axes]
rounds = {site: [each.metrics for each in those] for site, those in there["rounds"].items()}
print("TOLD " + json.dumps({"drawn": drawn, "rounds": rounds, "ends": there["ends"]}))
"""


def cells() -> list[dict[str, Any]]:
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert set(notebook) == {"cells", "metadata", "nbformat", "nbformat_minor"}
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    return list(notebook["cells"])


def test_it_is_a_notebook_without_outputs() -> None:
    found = cells()
    ids = [cell["id"] for cell in found]
    assert len(set(ids)) == len(ids) and all(re.fullmatch(r"[a-zA-Z0-9-_]{1,64}", each) for each in ids)
    for cell in found:
        assert isinstance(cell["metadata"], dict) and isinstance(cell["source"], list)
        assert all(line.endswith("\n") for line in cell["source"][:-1])
        more = {"outputs": [], "execution_count": None} if cell["cell_type"] == "code" else {}
        assert cell["cell_type"] in ("code", "markdown")
        assert {key: cell[key] for key in cell.keys() - {"id", "metadata", "source", "cell_type"}} == more
    assert sum(cell["cell_type"] == "code" for cell in found) >= 4


@pytest.mark.wan
@pytest.mark.usefixtures("allowed")
def test_the_notebooks_cells_train_two_sites_and_plot(tmp_path: Path) -> None:
    kept = bare_environment()
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(NOTEBOOK)],
        env=kept | {"MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout.split("TOLD ")[1])
    for site in ("paris", "tokyo"):
        losses = told["ends"][site]["losses"]
        assert len(losses) == 110 and sum(losses[-10:]) < 0.8 * sum(losses[:10])
        assert [each["collab/round"] for each in told["rounds"][site]][-5:] == [1, 2, 3, 4, 5]
        assert all(each["collab/contributors"] == 2 for each in told["rounds"][site] if each["collab/round"] > 0)
    rounds = len(told["rounds"]["paris"])
    assert told["drawn"] == [2 + 4, 2 * rounds, 2 * rounds]
