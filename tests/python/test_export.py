"""`collab export --base`: the whole model, with what sites do not average."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from commands import collab
from ranks import SCRIPTS, expect_success, run_ranks
from test_export_hostile import header, sealed
from torch_collab.cli import export


@pytest.mark.slow
def test_an_export_with_a_base_loads_strictly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    states = tmp_path / "states"
    states.mkdir()
    environment = {"COLLAB_STATE_DIR": str(states), "COLLAB_CODEC": "fp32", "COLLAB_SYNC_EVERY": "2"}
    expect_success(run_ranks("tied.py", ["a", "b"], str(tmp_path), environment=environment))
    final, base = (torch.load(tmp_path / name) for name in ("final0.pt", "base0.pt"))
    safetensors.save_file({name: each.clone() for name, each in base.items()}, tmp_path / "base.safetensors")
    monkeypatch.syspath_prepend(SCRIPTS)
    import tied  # type: ignore[import-not-found]

    for used, out in (("base0.pt", "a.pt"), ("base0.pt", "a.safetensors"), ("base.safetensors", "b.safetensors")):
        written = tmp_path / out
        done = collab("export", "--state", str(states), "--base", str(tmp_path / used), "--out", str(written))
        assert done.returncode == 0, done.stderr
        assert "1 tied" in done.stdout and "2 frozen" in done.stdout, done.stdout
        state = safetensors.load_file(written) if out.endswith("safetensors") else torch.load(written)
        model = tied.Tied()
        model.load_state_dict(state, strict=True)
        for name, tensor in model.state_dict().items():
            if name != "norm.num_batches_tracked":  # each site's own
                assert torch.equal(tensor, final[name]), (out, name)
    alone = collab("export", "--state", str(states), "--out", str(tmp_path / "part.pt"), "--format", "safetensors")
    assert alone.returncode == 0 and "; at least 2 tensors of the model are missing" in alone.stdout, alone.stdout
    assert "load it with strict=False, or add --base FILE, a state_dict of the whole model" in alone.stdout
    assert "head.weight" not in safetensors.load_file(tmp_path / "part.pt")
    torch.save({"model": {**base, "frozen.bias": base["frozen.bias"] + 1}}, tmp_path / "other.pt")
    done = collab("export", "--state", str(states), "--base", f"{tmp_path}/other.pt", "--out", f"{tmp_path}/x.pt")
    assert done.returncode == 1 and "'frozen.bias' was frozen with other values" in done.stderr, done.stderr
    assert not (tmp_path / "x.pt").exists()


def test_the_newest_run_of_a_directory_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not the most rounds: a script's second model counts from 0, and so does the run after the one of last week."""

    def write(name: str, **told: int) -> Path:
        path = tmp_path / f"{name}.collab"
        path.write_bytes(sealed(header(**told)))
        return path

    first, second = write("paris", run=7, round=20), write("paris~2", run=8, round=3)
    assert export.choose(tmp_path) == second
    words = f"collab: {first} belongs to an earlier run (round 20); --state {first} exports it\n"
    assert capsys.readouterr().out == words
    ahead = write("oslo~2", run=8, round=4)
    assert export.choose(tmp_path) == ahead, "of one run the highest round"
    assert capsys.readouterr().out == words, "a site that was a round behind is of the same run"
    assert export.choose(first) == first


def test_a_folder_is_no_file_to_write(tmp_path: Path) -> None:
    (tmp_path / "paris.collab").write_bytes(sealed(header(run=7, round=20)))
    for out in (".", str(tmp_path)):
        done = collab("export", "--state", str(tmp_path), "--out", out)
        assert done.returncode == 1 and done.stderr == (
            f"collab: --out {out} is a folder: expected a file's name [cli.export-folder]\n"
        )


ROWS = [("a.weight", "float32", [2, 2], "averaged", ""), ("mask", "float32", [2], "left out", "")]


def test_a_base_is_of_the_same_model(tmp_path: Path) -> None:
    averaged = {"a.weight": torch.ones(2, 2)}
    weight = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    base = {"a.weight": weight, "b.weight": weight.clone(), "mask": torch.ones(2), "n": torch.tensor(3)}
    whole, counts = export.complete({"model": ROWS}, averaged, base)
    assert list(whole) == list(base) and counts == {"tied": 1, "left out": 1, "other": 1}
    assert whole["b.weight"] is averaged["a.weight"] and whole["mask"] is base["mask"]
    with pytest.raises(ValueError, match=r"it has no 'a\.weight'"):
        export.complete({"model": ROWS}, averaged, {"b": torch.ones(1)})
    with pytest.raises(ValueError, match=r"'a.weight' is \[3\] there, \[2, 2\] here"):
        export.complete({"model": ROWS}, averaged, {"a.weight": torch.ones(3)})


def test_equal_constants_in_a_base_are_not_taken_for_tied() -> None:
    rows = [("norm.bias", "float32", [2], "averaged", ""), ("a", "float32", [2], "averaged", "")]
    averaged = {"norm.bias": torch.tensor([5.0, 6.0]), "a": torch.tensor([7.0, 8.0])}
    zeros, values = torch.zeros(2), torch.tensor([1.0, 2.0])
    base = {"norm.bias": zeros.clone(), "a": values, "norm.running_mean": zeros, "b": values}
    whole, counts = export.complete({"model": rows}, averaged, base)
    assert counts == {"other": 1, "tied": 1}
    assert whole["norm.running_mean"] is zeros, "a buffer that was not averaged (COLLAB_BUFFERS=0)"
    assert whole["b"] is averaged["a"], "in the memory of another"
    tied = torch.zeros(2)
    whole, counts = export.complete({"model": rows}, averaged, base | {"norm.bias": tied, "c": tied})
    assert whole["c"] is averaged["norm.bias"], "zeros that share their memory are tied"


def test_a_base_that_is_no_state_dict_is_refused(tmp_path: Path) -> None:
    torch.save({"module.a": torch.ones(1), "module.b": torch.ones(1)}, tmp_path / "ddp.pt")
    assert list(export.read_base(tmp_path / "ddp.pt")) == ["a", "b"], "as DistributedDataParallel names them"
    torch.save({"epoch": 3}, tmp_path / "none.pt")
    (tmp_path / "text.pt").write_text("no model")
    (tmp_path / "cut.pt").write_bytes((tmp_path / "none.pt").read_bytes()[:200])  # a RuntimeError of torch's
    (tmp_path / "text.safetensors").write_text("no model")
    (tmp_path / "empty.pt").touch()  # of which torch's error says nothing
    for name, words in (
        ("none.pt", "is not a model's state_dict"),
        ("text.pt", "is not a state_dict that torch.save wrote"),
        ("cut.pt", "is not a state_dict that torch.save wrote"),
        ("text.safetensors", "is not a state_dict that safetensors wrote"),
        ("empty.pt", "is not a state_dict that torch.save wrote"),
        ("gone.pt", "there is no such file"),
    ):
        with pytest.raises(ValueError, match=words) as refused:
            export.read_base(tmp_path / name)
        assert "weights_only" not in str(refused.value) and str(refused.value).endswith("]")


@pytest.mark.parametrize("as_safetensors", [False, True])
def test_an_export_that_cannot_be_written_is_an_error(as_safetensors: bool, tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"--out .*/none/m\.pt cannot be written: .* \[cli\.export-not-written\]"):
        export._write({"a": torch.ones(1)}, tmp_path / "none" / "m.pt", as_safetensors, {})
