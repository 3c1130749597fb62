"""Where a site's record is, whose it is, what tells it from another training's, and how `collab doctor` clears up."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed as dist
from commands import Coordinator, collab
from ranks import Ranks, expect_success, listing, start_site
from torch_collab import log, native
from torch_collab.swarm import records

DAY = 24 * 3600


def settings(**knobs: str) -> native.Settings:
    return native.load_config({f"COLLAB_{name.upper()}": value for name, value in knobs.items()}, {})


def place(store: Any = None, **knobs: str) -> tuple[str, str]:
    world: Any = SimpleNamespace(config=settings(**knobs), store=store)
    return records.place(world)


@pytest.fixture(autouse=True)
def _of_no_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TORCHELASTIC_RUN_ID", "COLLAB_ENDPOINT", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)


def test_the_folder_is_the_one_named_else_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert records.folder(settings(state_dir="/somewhere")) == "/somewhere"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert records.folder(settings()) == f"{tmp_path}/torch-collab"
    monkeypatch.setenv("HOME", "/home/anna")
    for unusable in ("relative/path", ""):
        monkeypatch.setenv("XDG_STATE_HOME", unusable)
        assert records.folder(settings()) == "/home/anna/.local/state/torch-collab"


def test_a_site_of_a_swarm_that_keeps_no_model_says_so(caplog: pytest.LogCaptureFixture) -> None:
    def tell(one_world: bool, several_sites: bool, **knobs: str) -> str:
        world: Any = SimpleNamespace(config=settings(**knobs), one_world=one_world, several_sites=several_sites)
        caplog.clear()
        records.tell_what_stays(world)
        assert log.flush()
        return caplog.text

    with caplog.at_level("INFO"):
        for one_world, several_sites in ((True, True), (False, True), (False, False)):
            assert "COLLAB_STATE_DIR is not set" in tell(one_world, several_sites)
        assert not tell(True, False), "the script is alone"
        assert not tell(False, False, state_dir="/somewhere")


def test_a_record_without_a_home_is_in_memory_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    assert place(coordinator="10.0.0.1:29500") == ("", "")
    assert place(coordinator="10.0.0.1:29500") == ("", "")
    assert log.flush()
    assert caplog.text.count("[record.no-folder]") == 1 and "COLLAB_STATE_DIR" in caplog.text


def test_the_scope_is_the_same_after_a_restart_and_another_for_another_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def scope(store: Any = None, **knobs: str) -> str:
        return place(store, **knobs)[1]

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    inner = dist.PrefixStore("a", dist.PrefixStore("b", store))
    assert scope(inner) == f"store 127.0.0.1:{store.port}"
    assert scope(inner, coordinator="10.0.0.1:29500,10.0.0.2:1") == "coordinator 10.0.0.1:29500,10.0.0.2:1"
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert scope(inner) == f"store 127.0.0.1:{store.port}"
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "night")
    assert scope(inner) == "torchrun night"
    monkeypatch.setenv("COLLAB_ENDPOINT", "10.0.0.1:29400")
    assert scope(inner, coordinator="10.0.0.1:29500") == "torchrun night at 10.0.0.1:29400"


def test_a_rendezvous_that_nothing_names_has_no_record_on_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert place(dist.HashStore()) == ("", "")
    assert place(dist.FileStore(str(tmp_path / "file")))[1] == f"store {tmp_path}/file"
    monkeypatch.setenv("MASTER_ADDR", "10.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "29500")
    assert place(dist.HashStore())[1] == "store 10.0.0.1:29500"


def make(folder: Path, name: str, days: int) -> Path:
    path = folder / f"gpt2~{name}~1~0123456789abcdef~0123456789abcdef.record"
    for each in (path, Path(f"{path}.lock"), Path(f"{path}.damaged-1")):
        each.write_text("1 host\n")
        os.utime(each, (time.time() - days * DAY,) * 2)
    return path


def test_doctor_removes_records_that_are_old_and_nobodys(tmp_path: Path) -> None:
    folder = tmp_path / "torch-collab"
    folder.mkdir()
    young, old, held = make(folder, "young", 6), make(folder, "old", 8), make(folder, "held", 8)
    mine = folder / "best.record"
    mine.write_text("not collab's")
    os.utime(mine, (0, 0))
    with Path(f"{held}.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = collab("doctor", XDG_STATE_HOME=str(tmp_path))
        assert f"records: {old} (21 bytes): written 8 days ago, and no process uses it" in done.stdout, done.stdout
        assert "`collab doctor --clean` removes it" in done.stdout
        assert f"records: in {folder}: 2, of which 1 in use" in done.stdout
        assert old.exists()
        done = collab("doctor", "--clean", XDG_STATE_HOME=str(tmp_path))
        assert f"records: removed {old}" in done.stdout, done.stdout
    left = {path.name for path in folder.iterdir()}
    kept = {f"{path.name}{end}" for path in (young, held) for end in ("", ".lock", ".damaged-1")}
    assert left == kept | {"best.record"}


def test_doctor_tells_where_records_are_and_where_they_cannot_be(tmp_path: Path) -> None:
    there = tmp_path / "not" / "made" / "yet"
    assert f"ok    records: in {there}: 0, of which 0 in use" in collab("doctor", COLLAB_STATE_DIR=str(there)).stdout
    assert not there.exists()
    in_place = tmp_path / "file"
    in_place.write_text("")
    done = collab("doctor", COLLAB_STATE_DIR=str(in_place / "below"))
    assert f"hint  records: {in_place}/below cannot be written" in done.stdout, done.stdout


def start(tmp_path: Path, coordinator: Coordinator, **environment: str) -> Ranks:
    events = tmp_path / "events.jsonl"
    done = [str(tmp_path / "done")]
    return start_site("until_told.py", done, "paris", 0, coordinator.address, events, 1, **environment)


def test_a_second_process_with_one_record_is_told_the_holder(tmp_path: Path) -> None:
    state = {"COLLAB_STATE_DIR": str(tmp_path / "state")}
    with Coordinator(COLLAB_MIN_SITES="1") as coordinator, start(tmp_path, coordinator, **state) as first:
        first.wait_for_line(0, "training starts")
        with start(tmp_path, coordinator, **state) as second:
            refused = second.join()
        (tmp_path / "done").touch()
        expect_success(first.join())
    assert refused[0].status != 0 and "[record.owned]" in refused[0].output, listing(refused)
    owner = f"process {first.processes[0].pid} on host {socket.gethostname()}"
    assert owner in refused[0].output, listing(refused)


@pytest.fixture(params=["ro", "size=4k"])
def small_folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder that takes nothing more: read-only, or full."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", request.param, "none", str(folder)]
    made = subprocess.run(mount, capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {made.stderr.strip()}")
    try:
        if request.param != "ro":
            (folder / "torch-collab").mkdir()
            with (folder / "filler").open("wb", buffering=0) as filler, pytest.raises(OSError, match="No space left"):
                while True:
                    filler.write(bytes(4096))
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_site_trains_with_its_record_in_memory_if_nothing_can_be_written(small_folder: Path, tmp_path: Path) -> None:
    with (
        Coordinator(COLLAB_MIN_SITES="1") as coordinator,
        start(tmp_path, coordinator, XDG_STATE_HOME=str(small_folder)) as site,
    ):
        site.wait_for_line(0, "round 2:")
        (tmp_path / "done").touch()
        finished = expect_success(site.join())
    assert finished[0].output.count("[record.in-memory]") == 1, listing(finished)
