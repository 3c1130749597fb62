"""The manifests of examples/deploy, as far as they can be judged without a scheduler: form, commands, knobs."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_documents import blocks, commands, refused
from torch.distributed.run import get_args_parser
from torch_collab import native
from torch_collab.cli import parser

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "examples" / "deploy"
PAGES = {
    "slurm": ["site.sbatch"],
    "skypilot": ["sky-coordinator.yaml", "sky-site.yaml"],
    "kubernetes": ["k8s-coordinator.yaml", "k8s-site.yaml"],
}
SBATCH = {
    "job-name", "nodes", "ntasks-per-node", "gpus-per-node", "cpus-per-task", "time", "signal", "requeue", "open-mode",
}  # fmt: skip
API = {"Deployment": "apps/v1", "Service": "v1", "PersistentVolumeClaim": "v1", "Job": "batch/v1"}
TASK = {"name", "num_nodes", "resources", "workdir", "file_mounts", "envs", "setup", "run"}


def read(name: str) -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text("utf-8")))


def check_shell(text: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """It is bash, and what it says to collab and torchrun is taken; which of the two it calls."""
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    called = []
    for words in commands(text):
        if words[0] == "srun":
            words = words[next(i for i, word in enumerate(words) if i and not word.startswith("-")) :]
        called += check_command(words, capsys)
    return called


def check_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    if words[0] not in ("collab", "torchrun"):
        return []
    wrong = refused(parser() if words[0] == "collab" else get_args_parser(), words[1:], capsys)
    assert not wrong, f"{' '.join(words)}: {wrong}"
    return [words[0]]


def check_knobs(given: dict[str, Any]) -> None:
    """They are texts, as the environment has them, knobs, and of values that collab takes."""
    assert all(isinstance(value, str) for value in given.values()), given
    known = {f"COLLAB_{row['name'].upper()}" for row in native.knob_table()}
    assert {name for name in given if name.startswith("COLLAB_")} <= known, given
    native.load_config({name: value for name, value in given.items() if not name.endswith(("_FILE", "_DIR"))}, {})


def objects() -> Iterator[tuple[str, Any]]:
    for name in PAGES["kubernetes"]:
        yield from ((name, each) for each in read(name))


def test_wrong_ones_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AssertionError, match="syntax"):
        check_shell("if true; echo", capsys)
    with pytest.raises(AssertionError, match="--sitez"):
        check_shell("srun -l collab coordinator --listen 0.0.0.0:1 --sitez 2", capsys)
    with pytest.raises(AssertionError, match="unrecognized"):
        check_shell("srun --label torchrun --nodes=2 train.py", capsys)
    for wrong in ({"COLLAB_SITEZ": "paris"}, {"COLLAB_SITE_INDEX": 1}):
        with pytest.raises(AssertionError, match="COLLAB_SITE"):
            check_knobs(wrong)
    with pytest.raises(ValueError, match="COLLAB_NUM_SHARDS"):
        check_knobs({"COLLAB_NUM_SHARDS": "none"})


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_the_files_and_says_that_they_were_not_run(page: str) -> None:
    path = f"docs/guides/{page}.md"
    shown = [block.text + "\n" for block in blocks(path)]
    text = (ROOT / path).read_text("utf-8")
    assert re.search(r"^\*\*Nothing on this page was run on .+\*\*", text, re.M)
    for name in PAGES[page]:
        assert f"examples/deploy/{name}" in text
        for part in (DEPLOY / name).read_text("utf-8").split("---\n"):
            assert part in shown, f"{path} shows another {name}"


def test_every_manifest_has_its_page() -> None:
    assert sorted(file.name for file in DEPLOY.iterdir()) == sorted(name for names in PAGES.values() for name in names)


def test_the_script_for_slurm(capsys: pytest.CaptureFixture[str]) -> None:
    text = (DEPLOY / "site.sbatch").read_text("utf-8")
    lines = text.splitlines()
    options = re.findall(r"^#SBATCH --([a-z-]+)(?:=\S+)?$", text, re.M)
    assert lines[0] == "#!/bin/bash" and set(options) <= SBATCH and len(options) == text.count("#SBATCH")
    assert all(line.startswith("#SBATCH") for line in lines[1 : 1 + len(options)]), "sbatch stops at the first command"
    assert check_shell(text, capsys) == ["torchrun"]
    known = {f"COLLAB_{row['name'].upper()}" for row in native.knob_table()}
    assert set(re.findall(r"COLLAB_[A-Z_]+", text)) <= known
    bare = subprocess.run(["bash", str(DEPLOY / "site.sbatch")], env={}, capture_output=True, text=True, timeout=60)
    assert bare.returncode != 0 and "COLLAB_SITE=NAME" in bare.stderr, "without a site's name it does not start"


@pytest.mark.parametrize(("name", "calls"), [("sky-coordinator.yaml", "collab"), ("sky-site.yaml", "torchrun")])
def test_tasks_of_skypilot(name: str, calls: str, capsys: pytest.CaptureFixture[str]) -> None:
    (task,) = read(name)
    assert set(task) <= TASK and {"name", "resources", "run"} <= set(task)
    assert isinstance(task["resources"], dict) and set(task["resources"]) <= {
        "cpus",
        "ports",
        "accelerators",
        "use_spot",
    }
    assert task["file_mounts"] == {"~/swarm.key": "./swarm.key"}
    assert check_shell(task["setup"], capsys) == [] and check_shell(task["run"], capsys) == [calls]
    check_knobs(task.get("envs", {}))


def test_objects_of_kubernetes_have_what_their_kinds_require() -> None:
    found: dict[str, Any] = {}
    for name, each in objects():
        assert each["apiVersion"] == API[each["kind"]], name
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", each["metadata"]["name"])
        found[each["kind"]] = each["spec"]
    assert set(found) == set(API)
    labels = found["Deployment"]["template"]["metadata"]["labels"]
    assert found["Deployment"]["selector"]["matchLabels"] == labels == found["Service"]["selector"]
    (port,) = found["Service"]["ports"]
    (container,) = found["Deployment"]["template"]["spec"]["containers"]
    assert [{"containerPort": port["targetPort"]}] == container["ports"]
    assert f"0.0.0.0:{port['targetPort']}" in container["command"]
    assert found["PersistentVolumeClaim"]["accessModes"] == ["ReadWriteOnce"]
    assert found["PersistentVolumeClaim"]["resources"]["requests"]["storage"]
    assert found["Job"]["template"]["spec"]["restartPolicy"] in ("OnFailure", "Never")


def test_objects_of_kubernetes_fit_its_schemas() -> None:
    """108 MB of schemas, and so not among the packages of CI: pip install kubernetes-validate."""
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate, the schemas, is not installed")
    for _, each in objects():
        validate.validate(each, "1.37", strict=True)
        wrong = {**each, "spec": {**each["spec"], "replicaz": 1}}
        with pytest.raises(validate.ValidationError, match="replicaz"):
            validate.validate(wrong, "1.37", strict=True)


def test_pods_of_kubernetes_mount_what_is_there_and_say_what_parses(capsys: pytest.CaptureFixture[str]) -> None:
    claims = {each["metadata"]["name"] for _, each in objects() if each["kind"] == "PersistentVolumeClaim"}
    for _, each in objects():
        pod = each["spec"].get("template", {}).get("spec")
        if pod is None:
            continue
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert len(volumes) == len(pod["volumes"]) and all(len(volume) == 2 for volume in pod["volumes"])
        for volume in volumes.values():
            assert volume.get("persistentVolumeClaim", {}).get("claimName", *claims) in claims
            assert volume.get("secret", {}).get("defaultMode", 0o400) == 0o400
        for container in pod["containers"]:
            assert container["name"] and container["image"]
            assert all(isinstance(word, str) for word in container["command"])
            assert check_command(container["command"], capsys)
            mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
            assert set(mounted) == set(volumes)
            given = {variable["name"]: variable["value"] for variable in container["env"]}
            check_knobs(given)
            places = [value for name, value in given.items() if name.endswith(("_FILE", "_DIR"))]
            assert places and all(any(place.startswith(path) for path in mounted.values()) for place in places)


def instructions(name: str) -> list[tuple[str, str]]:
    """Of a Dockerfile: each instruction with its words on one line."""
    text = re.sub(r"^#.*\n", "", (ROOT / "docker" / name).read_text("utf-8"), flags=re.M)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines if line)]


@pytest.mark.parametrize("name", ["coordinator.Dockerfile", "train.Dockerfile"])
def test_a_dockerfile_copies_from_stages_it_has_and_builds_with_the_packages_of_the_setup(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    setup = (ROOT / "ci" / "setup.sh").read_text("utf-8")
    packages = set(re.search(r"run_packages=\((.*?)\)", setup, re.S)[1].split())  # type: ignore[index]
    stages: list[str] = []
    installed: list[set[str]] = []
    for word, rest in instructions(name):
        assert word in {"FROM", "ARG", "RUN", "COPY", "ENV", "USER", "EXPOSE", "ENTRYPOINT", "CMD"}, word
        if word == "FROM":
            base, _, stage = rest.partition(" AS ")
            assert base == "debian:12-slim" or base in stages, base
            stages.append(stage)
        elif word == "COPY":
            source = re.match(r"--from=(\w+) ", rest)
            assert source is None or source[1] in stages[:-1], rest
        elif word == "RUN":
            check_shell(rest, capsys)
            for listed in re.findall(r"apt-get install -y --no-install-recommends ([^&]*)", rest):
                installed.append(set(listed.split()))
        elif word in ("ENTRYPOINT", "CMD"):
            assert yaml.safe_load(rest), f"{word} is a list, so that signals reach the program"
    (build,) = (each for each in installed if "cmake" in each)
    assert build <= packages | {"python3-dev"}, f"{name} builds with what ci/setup.sh does not: {build - packages}"
    assert not any("build-essential" in each for each in installed if each is not build), (
        "the last stage compiles nothing"
    )


def test_the_set_up_asks_nothing_of_pip_that_debians_does_not_have() -> None:
    """A fresh Debian 12 makes environments with pip 23.0, which has --config-settings and not yet its short form."""
    scripts = [*(ROOT / "ci").glob("*.sh"), *(ROOT / "docker").glob("*"), *(ROOT / "examples").glob("*.sh")]
    text = "\n".join(path.read_text("utf-8") for path in scripts).replace("\\\n", " ")
    calls = re.findall(r"\bpip (?:install|wheel)\b[^\n]*", text)
    assert len(calls) >= 6 and any("--config-settings" in call for call in calls)
    assert not [call for call in calls if re.search(r" -C\b", call)]


def test_the_coordinators_image_builds_existing_targets() -> None:
    text = (ROOT / "docker" / "coordinator.Dockerfile").read_text("utf-8")
    targets = re.search(r"--target (.+)", text)[1].split()  # type: ignore[index]
    tools = (ROOT / "plugin" / "tools" / "CMakeLists.txt").read_text("utf-8")
    assert all(f"add_executable({target} " in tools for target in targets)
    assert re.search(rf"install\(TARGETS {' '.join(targets)} RUNTIME .* COMPONENT tools\)", tools)
    options = set(re.findall(r"-D(COLLAB_\w+)", text))
    top = (ROOT / "CMakeLists.txt").read_text("utf-8")
    assert options and all(f"option({option} " in top for option in options)
