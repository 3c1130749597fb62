"""What the build finds and links: any torch, CUDA builds without CUDA's toolkit too, and UCX where it is to be had."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
import torch
import torch_collab
import yaml
from commands import collab
from ranks import expect_success, run_ranks
from torch_collab import native, torch_compat

ROOT = Path(__file__).resolve().parents[2]
TORCH = Path(torch.__file__).parent
MODULE = f"_C{EXTENSION_SUFFIXES[0]}"
NO_CUDA = "Your installed Caffe2 version uses CUDA but I cannot find the CUDA libraries"
WITHOUT_UCX = "collab: without the ucx transport, for UCX's headers (ucp/api/ucp.h) were not found"


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, errors="replace", timeout=300
    )


def cuda_build_of_torch(folder: Path) -> Path:
    """This torch as PyPI's looks to a machine without CUDA: CUDA's libraries are there, CMake's packages fail."""
    package = folder / "torch"
    (package / "lib").mkdir(parents=True)
    for entry in TORCH.iterdir():
        if entry.name not in ("lib", "share", "__pycache__"):
            (package / entry.name).symlink_to(entry)
    for library in (TORCH / "lib").iterdir():
        (package / "lib" / library.name).symlink_to(library)
    for name in ("libtorch_cuda.so", "libc10_cuda.so"):
        (package / "lib" / name).touch()
    for name, text in {
        "Torch": 'find_package(Caffe2 REQUIRED PATHS "${CMAKE_CURRENT_LIST_DIR}/../Caffe2" NO_DEFAULT_PATH)',
        "Caffe2": f'message(FATAL_ERROR "{NO_CUDA}")',
    }.items():
        config = package / "share" / "cmake" / name / f"{name}Config.cmake"
        config.parent.mkdir(parents=True)
        config.write_text(text)
    return package


@pytest.mark.slow
@pytest.mark.timeout(600)  # configures and compiles: seconds, but not on a loaded machine
def test_a_cuda_build_of_torch_needs_no_cuda(tmp_path: Path) -> None:
    package = cuda_build_of_torch(tmp_path / "packages")
    # Of UCX it has no headers: the folder found first is empty.
    (tmp_path / "packages" / "libucx").mkdir()
    (tmp_path / "packages" / "libucx" / "__init__.py").touch()
    packages = {"PYTHONPATH": str(tmp_path / "packages")}
    prefix = f"-DCMAKE_PREFIX_PATH={package / 'share' / 'cmake'}"

    trap = tmp_path / "trap"
    trap.mkdir()
    (trap / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.25)\nproject(a NONE)\nfind_package(Torch)\n")
    caught = run("cmake", "-S", str(trap), "-B", str(trap / "build"), prefix)
    assert caught.returncode != 0 and "uses CUDA" in caught.stderr, "else what follows would show nothing"

    build = tmp_path / "build"
    configured = run(
        "cmake", "-G", "Ninja", "-S", str(ROOT), "-B", str(build), prefix, f"-DPython_EXECUTABLE={sys.executable}",
        "-DCOLLAB_BUILD_TESTS=OFF", "-DCMAKE_CXX_FLAGS_RELEASE=-O0", **packages,
    )  # fmt: skip
    assert configured.returncode == 0, configured.stdout + configured.stderr
    assert f"{sys.executable}: {package}\n" in configured.stdout
    without_ucx = WITHOUT_UCX in configured.stdout
    assert without_ucx or "headers from the system: " in configured.stdout

    target = f"plugin/torch/{MODULE}"
    link = run("ninja", "-C", str(build), "-t", "commands", "-s", target).stdout
    libraries = {Path(word).name for word in link.split() if ".so" in word and Path(word).parent == package / "lib"}
    assert libraries == {"libtorch_cpu.so", "libc10.so", "libtorch_python.so"}, link
    assert not re.search(r"-l(torch|c10|cud)|libcud|libtorch\.so|-L", link), link
    assert ("libcollab_transport_ucx.a" in link) != without_ucx

    compiled = run("ninja", "-C", str(build), "plugin/torch/CMakeFiles/collab_torch.dir/site_group.cpp.o")
    assert compiled.returncode == 0, compiled.stdout


def test_the_built_extension_loads_no_cuda() -> None:
    from torch_collab import _C

    told = run("readelf", "-d", _C.__file__)
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", told.stdout))
    assert {"libtorch_cpu.so", "libc10.so", "libtorch_python.so"} <= needed, told.stdout + told.stderr
    assert not [name for name in needed if "cud" in name or name == "libtorch.so"], "libtorch.so loads libtorch_cuda.so"


def test_ucx_is_built_in_if_it_is_found(tmp_path: Path) -> None:
    """cmake/CollabFindUcx.cmake alone: run as a script, it looks into no folder of the system."""
    ucx = tmp_path / "packages" / "libucx"
    ucx.mkdir(parents=True)
    (ucx / "__init__.py").touch()
    script = tmp_path / "find.cmake"
    script.write_text(
        f'include("{ROOT}/cmake/CollabFindUcx.cmake")\ncollab_find_ucx()\n'
        'message(STATUS "found [${COLLAB_UCX_INCLUDE_DIR}]")\n'
    )

    def find(*definitions: str) -> tuple[int, str]:
        command = ["cmake", f"-DPython_EXECUTABLE={sys.executable}", *definitions, "-P", str(script)]
        done = run(*command, PYTHONPATH=str(ucx.parent))
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    status, told = find("-DCOLLAB_WITH_UCX=AUTO")
    assert status == 0 and "found []" in told, told
    assert WITHOUT_UCX in told and "pip install libucx-cu12" in told
    status, told = find("-DCOLLAB_WITH_UCX=ON")
    assert status != 0 and "COLLAB_WITH_UCX=ON" in told and "pip install libucx-cu12" in told, told
    status, told = find("-DCOLLAB_WITH_UCX=AUTO", f"-DCOLLAB_UCX_ROOT={ucx}")
    assert status != 0 and f"COLLAB_UCX_ROOT is {ucx}, which has no" in told, told

    headers = ucx / "include" / "ucp" / "api"
    headers.mkdir(parents=True)
    (headers / "ucp.h").touch()
    (headers / "ucp_version.h").write_text("#define UCP_API_MAJOR    1\n#define UCP_API_MINOR    22\n")
    for asked in ("AUTO", "ON"):
        status, told = find(f"-DCOLLAB_WITH_UCX={asked}")
        assert status == 0 and f"found [{ucx}/include" in told, told


def test_the_loader_looks_for_ucx_if_there_is_no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "libucx", None)
    assert native.ucx_library_dir() == ""


@pytest.mark.slow
def test_two_sites_train_where_there_is_no_ucx(tmp_path: Path) -> None:
    missing = {"COLLAB_UCX_LIBRARY": str(tmp_path / "libucp.so.0"), "COLLAB_SYNC_EVERY": "3"}
    for rank in expect_success(run_ranks("one_word.py", ["paris", "rome"], environment=missing)):
        assert "links between sites use tcp: COLLAB_TRANSPORT=auto, not encrypted, as no token is given" in rank.output
        assert "round 3: paris, rome averaged" in rank.output


def test_doctor_says_that_ucx_is_missing_and_what_brings_it(tmp_path: Path) -> None:
    missing = {"COLLAB_UCX_LIBRARY": str(tmp_path / "libucp.so.0")}
    remedy = 'pip install "torch-collab[ucx]"'
    told = collab("doctor", **missing).stdout
    hint = re.search(r"^  hint  ucx: COLLAB_TRANSPORT=ucx cannot be used: .*$", told, re.M)
    assert hint and remedy in hint[0], told
    assert "  ok    links: tcp: " in told
    refused = collab("doctor", COLLAB_TRANSPORT="ucx", **missing)
    bad = re.search(r"^  BAD   links: COLLAB_TRANSPORT=ucx, and .*$", refused.stdout, re.M)
    assert refused.returncode == 1 and bad and remedy in bad[0], refused.stdout


def test_the_extension_of_this_torch_is_loaded(tmp_path: Path) -> None:
    release = ".".join(torch.__version__.split(".")[:2])
    installed = next(Path(native.__file__).parent.glob(f"_C*{EXTENSION_SUFFIXES[0]}"))
    (tmp_path / f"_C-torch{release}{EXTENSION_SUFFIXES[0]}").symlink_to(installed)
    (tmp_path / f"_C-torch9.1{EXTENSION_SUFFIXES[0]}").touch()
    loaded = f"native._extension(pathlib.Path({str(tmp_path)!r}), torch.__version__)"
    code = f"import pathlib, torch; from torch_collab import native; print({loaded}.build_info()['torch'])"
    told = run(sys.executable, "-c", code)
    assert told.stdout.strip().startswith(release + "."), told.stderr


def test_a_wheel_without_an_extension_for_this_torch_says_for_which_it_is(tmp_path: Path) -> None:
    for release in ("2.15", "2.9"):
        (tmp_path / f"_C-torch{release}{EXTENSION_SUFFIXES[0]}").touch()
    words = r"this wheel is for torch 2\.9 and 2\.15, and this is torch 2\.14\.1\+cpu: .*\[ddp\.torch-not-in-wheel\]"
    with pytest.raises(RuntimeError, match=words):
        native._extension(tmp_path, "2.14.1+cpu")


@pytest.mark.parametrize("name", torch_collab.__all__)
def test_public_functions_say_what_they_raise(name: str) -> None:
    assert "Raises" in (getattr(torch_collab, name).__doc__ or "")


def test_a_release_is_built_for_every_tested_torch_and_python() -> None:
    job = yaml.safe_load((ROOT / ".github/workflows/wheels.yml").read_text("utf-8"))["jobs"]["wheel"]
    (builds,) = (step["run"].split()[1:] for step in job["steps"] if step.get("run", "").startswith("ci/wheel.sh "))
    assert tuple(version.rpartition(".")[0] for version in builds) == torch_compat.TESTED
    minors = [int(python.removeprefix("python3.")) for python in job["strategy"]["matrix"]["python"]]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["requires-python"] == f">=3.{minors[0]}" and minors == list(range(minors[0], minors[-1] + 1))
    named = {int(each) for each in re.findall(r"Python :: 3\.(\d+)", "\n".join(project["classifiers"]))}
    assert named <= set(minors)
