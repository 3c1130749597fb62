"""`collab init` and `collab run`: a swarm from one file."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shlex
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from commands import collab
from ranks import SCRIPTS, free_port
from test_page import status_of
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.utils import _parse_rendezvous_config
from torch_collab import native
from torch_collab.cli import run as run_command
from torch_collab.cli import swarm_file
from torch_collab.options import Options
from torch_collab.rendezvous.settings import read_settings
from torchruns import Node, Nodes

FILE = """\
version = 1
[swarm]
run = "night"
endpoint = "paris.example:29410"
coordinator_port = 29412
token_file = "swarm.key"
sync_every = 30
overlap = true

[site]
name = "paris"
first = true
listen = "0.0.0.0:29411"
max_mbit_up = 2.5
"""


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return collab(*arguments, folder=folder, **environment)


def told(output: str) -> tuple[dict[str, str], list[str]]:
    """The environment and the command that `collab run` has printed."""
    *variables, command = (
        line.removeprefix("collab: ") for line in output.splitlines() if "# " in line or "torchrun" in line
    )
    pairs = (shlex.split(line, comments=True)[0].split("=", 1) for line in variables)
    return dict(pairs), shlex.split(command)


@pytest.fixture
def swarm(tmp_path: Path) -> Path:
    (tmp_path / "collab.toml").write_text(FILE)
    (tmp_path / "swarm.key").write_text("clb_a-key-that-is-long-enough-for-this-test\n")
    (tmp_path / "swarm.key").chmod(0o600)
    return tmp_path


def test_init_writes_a_file_that_it_can_read_and_a_key_that_it_does_not_tell(tmp_path: Path) -> None:
    done = run(tmp_path, "init", "--site", "paris", "--endpoint", "127.0.0.1:29500", "--nnodes", "3")
    assert done.returncode == 0, done.stderr
    key = tmp_path / "swarm.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert native.has_made_token(native.load_config({"COLLAB_TOKEN_FILE": str(key)}, {}).raw)
    assert key.read_text().strip() not in done.stdout + done.stderr + (tmp_path / "collab.toml").read_text()
    assert "  collab run --site NAME train.py\n" in done.stdout
    assert "Port 29500 is torch's own store, which the token does not protect" in done.stdout
    file = swarm_file.read(tmp_path / "collab.toml", (tmp_path / "collab.toml").read_text())
    entries = file.entries("")
    assert entries["nnodes"].text == "3" and entries["token_file"].text == str(key)
    assert file.entries("tokyo")["state_dir"].text == str(tmp_path / "state"), "at every machine"
    again = run(tmp_path, "init")
    assert again.returncode == 1 and "collab.toml already exists and is not overwritten" in again.stderr
    (tmp_path / "collab.toml").unlink()
    before = key.read_text()
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "paris.collab").touch()
    done = run(tmp_path, "init")
    assert "which was already there" in done.stdout and key.read_text() == before
    assert "state has models of an earlier run" in done.stdout


def test_a_first_machine_with_an_address_of_ipv6_listens_there(tmp_path: Path) -> None:
    assert run(tmp_path, "init", "--endpoint", "[2001:db8::1]:29500").returncode == 0
    entries = swarm_file.read(tmp_path / "collab.toml", (tmp_path / "collab.toml").read_text()).entries("")
    assert entries["listen"].text == "[::]:29501" and entries["advertise"].text == "2001:db8::1"


@pytest.mark.parametrize(
    ("option", "text", "words"),
    [
        ("--site", "a/b", "--site: expected a name"),
        ("--run", ".x", "--run: expected a name"),
        ("--endpoint", "pa~ris", "--endpoint: expected a host's name"),
        ("--endpoint", "none", "--endpoint: expected this machine as the others reach it, got 'none'"),
        ("--endpoint", "0.0.0.0:29400", "--endpoint: expected this machine as the others reach it"),
        ("--token-file", "a.key", "COLLAB_TOKEN_FILE: a.key holds 5 characters"),
    ],
)
def test_init_writes_nothing_that_run_would_refuse(tmp_path: Path, option: str, text: str, words: str) -> None:
    (tmp_path / "a.key").write_text("hello\n")
    (tmp_path / "a.key").chmod(0o600)
    done = run(tmp_path, "init", option, text)
    assert done.returncode in (1, 2) and done.stderr.startswith(f"collab: {words}"), done.stderr
    assert not (tmp_path / "collab.toml").exists()


def test_init_makes_its_folder(tmp_path: Path) -> None:
    assert run(tmp_path, "init", "a/b").returncode == 0
    assert (tmp_path / "a" / "b" / "collab.toml").exists() and (tmp_path / "a" / "b" / "swarm.key").exists()
    wrong = run(tmp_path, "init", "a/b/swarm.key/c")
    assert wrong.returncode == 1 and "cannot be made: Not a directory [cli.init-folder]" in wrong.stderr


def test_run_is_torchrun_with_what_the_file_says(swarm: Path) -> None:
    done = run(swarm, "run", "--dry-run", "--torchrun=--log-dir=logs", "train.py", "--site", "x", "--epochs", "3")
    assert done.returncode == 0, done.stderr
    variables, command = told(done.stdout)
    assert variables == {
        "COLLAB_RUN": "night",
        "COLLAB_SITE": "paris",
        "COLLAB_TOKEN_FILE": str(swarm / "swarm.key"),
        "COLLAB_SYNC_EVERY": "30",
        "COLLAB_OVERLAP": "1",
        "COLLAB_LISTEN": "0.0.0.0:29411",
        "COLLAB_MAX_MBIT_UP": "2.5",
    }
    assert command[-5:] == ["train.py", "--site", "x", "--epochs", "3"], "what follows the script is the script's"
    for option in (
        "--nnodes=2", "--max-restarts=3", "--rdzv-backend=collab", "--rdzv-endpoint=paris.example:29410",
        "--rdzv-id=night", "--rdzv-conf=is_host=1,coordinator_port=29412", "--log-dir=logs",
    ):  # fmt: skip
        assert option in command, option
    assert "COLLAB_SYNC_EVERY=30   # collab.toml, line 7" in done.stdout


def test_rendezvous_options_join_those_of_the_file(swarm: Path) -> None:
    asked = ("--torchrun=--rdzv-conf=site_nodes=4", "--torchrun=--rdzv_conf=coordinator_port=1,join_timeout=9,")
    _, command = told(run(swarm, "run", "--dry-run", *asked, "train.py").stdout)
    conf = [word for word in command if word.startswith("--rdzv-conf")]
    assert conf == ["--rdzv-conf=is_host=1,site_nodes=4,coordinator_port=1,join_timeout=9"]
    apart = run(swarm, "run", "--dry-run", "--torchrun=--rdzv-conf", "--torchrun=site_nodes=4", "train.py")
    assert apart.returncode == 1 and "[cli.run-conf]" in apart.stderr


def test_another_site_passes_the_table_of_the_first_by(swarm: Path) -> None:
    variables, command = told(run(swarm, "run", "--dry-run", "--site", "tokyo", "--join", "10.0.0.1", "a.py").stdout)
    assert variables["COLLAB_SITE"] == "tokyo" and "COLLAB_LISTEN" not in variables
    assert "--rdzv-endpoint=10.0.0.1:29410" in command and "--rdzv-conf=is_host=0,coordinator_port=29412" in command
    by_variable = run(swarm, "run", "--dry-run", "a.py", COLLAB_SITE="tokyo").stdout
    assert "[site] of collab.toml is for paris, and is ignored here" in by_variable
    assert "COLLAB_LISTEN" not in by_variable and "is_host=0," in by_variable
    forgotten = run(swarm, "run", "--dry-run", "--join", "10.0.0.1", "a.py")
    assert forgotten.returncode == 1 and "--site NAME" in forgotten.stderr, "the first one's name"
    assert run(swarm, "run", "--dry-run", "--site", "paris", "--join", "10.0.0.1", "a.py").returncode == 0


def test_options_win_over_the_environment_which_wins_over_the_file(swarm: Path) -> None:
    (swarm / "other.key").write_text("clb_another-key-that-is-long-enough-for-it\n")
    given = {"COLLAB_RUN": "day", "COLLAB_SYNC_EVERY": "5", "COLLAB_TOKEN": "clb_secret-secret-secret-secret-secret"}
    done = run(swarm, "run", "--dry-run", "a.py", **given)
    variables, command = told(done.stdout)
    assert variables["COLLAB_SYNC_EVERY"] == "5" and "--rdzv-id=day" in command
    assert "COLLAB_TOKEN_FILE" not in variables and "clb_secret" not in done.stdout, (
        "a token there is instead of the file's"
    )
    done = run(swarm, "run", "--dry-run", "--run", "noon", "--token-file", "other.key", "a.py", **given)
    variables, command = told(done.stdout)
    assert "--rdzv-id=noon" in command and variables["COLLAB_RUN"] == "noon"
    assert variables["COLLAB_TOKEN_FILE"] == str(swarm / "other.key") and "COLLAB_TOKEN" not in variables


def test_config_says_which_line_a_value_is_from(swarm: Path) -> None:
    done = run(swarm, "config", COLLAB_OVERLAP="0", COLLAB_PRESET="wan")
    assert done.returncode == 0, done.stderr
    assert "COLLAB_SYNC_EVERY = 30   [collab.toml, line 7]" in done.stdout, "what is given by itself wins over a preset"
    assert "COLLAB_OVERLAP = 0   [environment]" in done.stdout
    assert "COLLAB_SITE = paris   [collab.toml, line 11]" in done.stdout
    assert "COLLAB_CODEC = int4   [preset wan]" in done.stdout
    assert "COLLAB_HEARTBEAT = 1s   [default]" in done.stdout
    elsewhere = collab("config", "--json", "--config", str(swarm / "collab.toml"))
    assert json.loads(elsewhere.stdout)["sync_every"]["source"] == f"{swarm}/collab.toml, line 7"
    (swarm / "collab.toml").write_text(FILE.replace("sync_every = 30", 'sync_every = "often"'))
    wrong = run(swarm, "config")
    assert wrong.returncode == 1
    assert "COLLAB_SYNC_EVERY: expected" in wrong.stderr and "collab.toml, line 7" in wrong.stderr


def test_the_file_can_say_what_options_can() -> None:
    assert {row["name"] for row in native.knob_table()} == swarm_file.KNOBS == set(Options().__dataclass_fields__)
    paths = {row["name"] for row in native.knob_table() if row["range"] == "a path"}
    text = "[swarm]\n" + "".join(f'{name} = "x"\n' for name in paths)
    read = swarm_file.read(Path("/swarm/collab.toml"), text).swarm
    assert {name: entry.text for name, entry in read.items()} == dict.fromkeys(paths, "/swarm/x")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("sync_evry = 3", r"collab\.toml, line 4: \[swarm\] sync_evry: is not known; the nearest is sync_every"),
        ("outer = 'average'", r"line 4: \[swarm\] outer: is now called outer_optimizer"),
        ("first = true", r"line 4: \[swarm\] first: belongs in \[site\]"),
        ("site = 'a'", r"line 4: \[swarm\] site: .*`name` in \[site\]"),
        ("token = 'clb_x'", r"line 4: \[swarm\] token: .*token_file = \"swarm.key\""),
        ("codec = {a = 1}", r"line 4: \[swarm\] codec: expected a string, a number, true or false, got \{'a': 1\}"),
        ("coordinator_port = 70000", r"line 4: \[swarm\] coordinator_port: expected a whole number, 0..65535"),
        ("endpoint = 'a:b'", r"line 4: \[swarm\] endpoint: expected HOST:PORT, got 'a:b' \[knob\.host-port\]$"),
        ("endpoint = 5", r"line 4: \[swarm\] endpoint: expected a string, \"HOST:PORT\", got 5 \[cli\.swarm"),
        ("nnodes = 'zwei'", r"line 4: \[swarm\] nnodes: expected N or N:MAX.*, got 'zwei' \[cli\.torchrun-value\]$"),
        ("nnodes = '3:2'", r"nnodes: expected N or N:MAX"),
        ("[site]\nnproc_per_node = 'two'", r"line 5: \[site\] nproc_per_node: expected a number of processes, .*'two'"),
        ("[site]\nnproc_per_node = 0", r"nproc_per_node: expected a number of processes, at least 1"),
        ("[site]\nsync_every = 5", r"\[site\] sync_every: belongs in \[swarm\]: it must be the same on all sites"),
        ("COLLAB_SYNC_EVERY = 5", r"COLLAB_SYNC_EVERY: is written sync_every here"),
        ("SYNC_EVERY = 5", r"SYNC_EVERY: is written sync_every here"),
        ("[swarms]", r"line 4: swarms: is not known outside .*; the nearest is swarm"),
        ("codec fp16", r"is not valid TOML: .*line 4"),
    ],
)  # fmt: skip
def test_an_error_in_the_file_names_its_line(line: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        swarm_file.read(Path("collab.toml"), f"# the swarm\n[swarm]\nrun = 'a'\n{line}\n")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('sync_every = "5 bananas"', r'COLLAB_SYNC_EVERY: expected .*"5 bananas" \(collab\.toml, line 7\) \[knob'),
        ("sync_every = -1", r'COLLAB_SYNC_EVERY: expected .*"-1" \(collab\.toml, line 7\) \[knob\.bad-value\]$'),
        ("codec = 5", r'COLLAB_CODEC: expected .*got "5"'),
        ('preset = "wam"', r"COLLAB_PRESET: expected .*the nearest one is wan"),
    ],
)
def test_run_refuses_what_no_process_of_the_swarm_would_take(swarm: Path, line: str, words: str) -> None:
    (swarm / "collab.toml").write_text(FILE.replace("sync_every = 30", line))
    done = run(swarm, "run", "--dry-run", "a.py")
    assert done.returncode == 1 and done.stdout == "", done.stdout
    assert re.match(rf"collab: {words}", done.stderr) and done.stderr.count("\n") == 1, done.stderr


def test_run_refuses_an_invalid_key_and_a_misspelt_variable(swarm: Path) -> None:
    misspelt = run(swarm, "run", "--dry-run", "a.py", COLLAB_SYNC_EVRY="5")
    assert misspelt.returncode == 1 and "COLLAB_SYNC_EVRY is not a knob" in misspelt.stderr
    unknown = run(swarm, "run", "--dry-run", "a.py", COLLAB_FOO="5")
    assert unknown.returncode == 0 and "COLLAB_FOO" in unknown.stderr
    (swarm / "swarm.key").write_text("hello\n")
    done = run(swarm, "run", "--dry-run", "a.py")
    assert done.returncode == 1 and "holds 5 characters" in done.stderr, done.stderr
    assert done.stderr.endswith(" (collab.toml, line 6) [token.short]\n")
    (swarm / "swarm.key").unlink()  # the other token's variables win, and it is not asked for
    assert run(swarm, "run", "--dry-run", "a.py", COLLAB_TOKEN="clb_" + "s" * 40).returncode == 0


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["run", "--nnodes", "x", "a.py"], "--nnodes: expected N or N:MAX machines, at least 1, got 'x'"),
        (["run", "--nproc-per-node", "two", "a.py"], "--nproc-per-node: expected a number of processes"),
        (["run", "--max-restarts", "-1", "a.py"], "--max-restarts: expected a whole number, got '-1'"),
        (["init", "--nnodes", "0"], "--nnodes: expected N or N:MAX"),
    ],
)
def test_arguments_torchrun_refuses_are_wrong_usage(tmp_path: Path, command: list[str], words: str) -> None:
    done = run(tmp_path, *command)
    assert done.returncode == 2 and done.stderr.startswith(f"collab: {words}"), done.stderr
    assert done.stderr.endswith(" [cli.torchrun-value]\n")
    assert not list(tmp_path.iterdir())


def test_run_ends_as_the_script_does_with_what_the_file_says(swarm: Path) -> None:
    text = FILE.replace("paris.example", "127.0.0.1").replace("sync_every = 30", "nnodes = 1")
    (swarm / "collab.toml").write_text(text)
    (swarm / "a.py").write_text("import os; print('listens at', os.environ['COLLAB_LISTEN']); raise SystemExit(3)\n")
    done = run(swarm, "run", "--torchrun=--standalone", "--max-restarts", "0", "a.py")
    assert "listens at 0.0.0.0:29411" in done.stdout, done.stderr
    assert done.returncode == 1 and "collab: the script has failed:" in done.stderr
    assert "exitcode  : 3" in done.stderr and "Traceback" not in done.stderr, done.stderr
    (swarm / "a.py").write_text("")
    assert run(swarm, "run", "--torchrun=--standalone", "a.py").returncode == 0


def test_a_machine_joins_by_the_coordinator_alone_if_the_first_machine_is_gone(swarm: Path) -> None:
    """Which is all that torchrun's own rendezvous is told of this swarm's: no endpoint, no port, no second machine."""
    both = run(swarm, "run", "--torchrun=--standalone", "--join", "127.0.0.1:1", "a.py")
    assert both.returncode != 0 and "[cli.run-standalone]" in both.stderr, both.stderr
    late = ("--site", "tokyo", "--torchrun=--standalone", "--dry-run", "a.py")
    done = run(swarm, "run", *late, COLLAB_COORDINATOR="rome:29402")
    assert done.returncode == 0, done.stderr
    variables, command = told(done.stdout)
    assert variables["COLLAB_COORDINATOR"] == "rome:29402" and variables["COLLAB_RUN"] == "night"
    assert variables["COLLAB_TOKEN_FILE"] == str(swarm / "swarm.key")
    assert command[:2] == ["torchrun", "--nnodes=1"] and command[-2:] == ["--standalone", "a.py"]
    assert not [word for word in command if "rdzv" in word], command


def test_errors_of_run_itself_have_no_traceback(swarm: Path) -> None:
    """In the words of the rendezvous, of a signal, or before anything is started."""
    (swarm / "a.py").write_text("")
    wait = "--torchrun=--rdzv-conf=is_host=0,join_timeout=1"
    done = run(swarm, "run", "--site", "tokyo", "--join", f"127.0.0.1:{free_port()}", wait, "a.py")
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("collab: cannot reach --rdzv-endpoint=") and last.endswith("[rendezvous.unreachable]")
    assert "COLLAB_COORDINATOR=HOST:PORT collab run --torchrun=--standalone, with the same --site" in last, last
    none = run(swarm, "run", "b.py")
    assert none.returncode == 1 and none.stderr.endswith(f"there is no script b.py in {swarm} [cli.run-no-script]\n")


def test_a_file_of_a_newer_version_is_refused_with_both_versions(swarm: Path) -> None:
    (swarm / "collab.toml").write_text("version = 2\n[future]\nx = 1\n")
    for command in (["run", "a.py"], ["config"]):
        done = run(swarm, *command)
        assert done.returncode == 1, done.stdout
        assert "collab.toml, line 1: version: the file was written by a newer collab (version 2; this one reads 1)" in (
            done.stderr
        )


def test_options_of_the_page_reach_torchrun_as_one_word_each(swarm: Path) -> None:
    words = ["--http", "[::1]:8080", "--http-insecure", "--objective", "a,b=c 5%", "--leaderboard", "board.txt"]
    done = run(swarm, "run", "--dry-run", *words, "a.py")
    (conf,) = (word for word in shlex.split(done.stdout.splitlines()[-1]) if word.startswith("--rdzv-conf="))
    asked = _parse_rendezvous_config(conf.removeprefix("--rdzv-conf="))
    page = read_settings(RendezvousParameters("collab", "127.0.0.1:1", "a", 2, 2, **asked)).page
    assert page == {
        "http": "[::1]:8080",
        "http_insecure": "1",
        "objective": "a,b=c 5%",
        "leaderboard": str(swarm / "board.txt"),
    }
    for command in (["run"], ["coordinator", "--listen", "127.0.0.1:0"]):
        alone = run(swarm, *command, "--objective", "x", *(["a.py"] if command == ["run"] else []))
        assert alone.returncode == 1 and "[page.no-http]" in alone.stderr, alone.stderr


def test_run_says_what_is_missing_before_torch_is_loaded(swarm: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (swarm / "swarm.key").unlink()
    done = run(swarm, "run", "a.py")
    assert done.returncode == 1 and "swarm.key (collab.toml, line 6) cannot be read" in done.stderr, done.stderr
    nowhere = run(tmp_path_factory.mktemp("empty"), "run", "a.py")
    assert nowhere.returncode == 1 and "which swarm? give --join HOST:PORT" in nowhere.stderr
    named = run(swarm, "run", "--config", "none.toml", "a.py")
    assert named.returncode == 1 and "none.toml cannot be read: No such file" in named.stderr


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["run", "--join", "127.0.0.1:xx", "a.py"], "--join: expected HOST:PORT, got '127.0.0.1:xx'"),
        (["init", "--endpoint", "127.0.0.1:99999"], "--endpoint: expected a port of 0..65535, got '127.0.0.1:99999'"),
        (["init", "--endpoint", "127.0.0.1:0"], "--endpoint: the ports are 0 and the two after it: expected 1..65532"),
    ],
)
def test_an_invalid_address_is_wrong_usage_of_its_option(tmp_path: Path, command: list[str], words: str) -> None:
    done = run(tmp_path, *command)
    assert done.returncode == 2 and done.stderr.startswith(f"collab: {words}"), done.stderr
    assert not list(tmp_path.iterdir())


def ports_in_a_row(count: int) -> int:
    while True:
        first = free_port()
        with contextlib.suppress(OSError), contextlib.ExitStack() as all_of_them:
            for port in range(first, first + count):
                all_of_them.enter_context(socket.create_server(("127.0.0.1", port)))
            return first


@pytest.mark.slow
def test_two_machines_train_one_model_from_one_file(nodes: Nodes) -> None:
    port = ports_in_a_row(3)
    folder = nodes.folder
    done = run(folder, "init", "--endpoint", f"127.0.0.1:{port}", "--site", "paris")
    assert done.returncode == 0, done.stderr
    file = folder / "collab.toml"
    file.write_text(file.read_text().replace("# sync_every = 100", "sync_every = 10"))
    (folder / "swarm.key").chmod(0o640)
    commands = {
        match[2] or "paris": shlex.split(match[1].replace("NAME", "tokyo"))
        for match in re.finditer(r"^  collab (run (?:--site (NAME) )?.*?)train\.py$", done.stdout, re.M)
    }
    assert list(commands) == ["paris", "NAME"]
    plain = {"OMP_NUM_THREADS": "1"}
    for site, command in zip(("paris", "tokyo"), commands.values(), strict=True):
        shown = ["--http", "127.0.0.1:0", "--objective", "Letters, 100 %"] if site == "paris" else []
        started = [sys.executable, "-m", "torch_collab.cli", "run", *shown, *command[1:]]
        started += [str(SCRIPTS / "torchrun.py"), str(folder)]
        node = Node(site, started, {}, plain, folder, number=len(nodes.all))
        nodes.all.append(node)
    for node in nodes.all:
        node.wait_for_rounds(2, "paris", "tokyo")
    assert "chmod 600" in nodes.all[0].output, "a token that others can read is warned of"
    status = run(folder, "status", "--json")
    assert status.returncode == 0 and "paris" in status.stdout and "tokyo" in status.stdout, status.stderr
    (page,) = re.findall(r"page at (http://\S+/)", nodes.all[0].output)
    password = run(folder, "token", "--page-password", "swarm.key").stdout.strip()
    seen = status_of(page, password)
    assert seen["objective"] == "Letters, 100 %"
    assert {member["name"] for member in seen["swarm"]["members"]} == {"paris", "tokyo"}
    name = json.loads(status.stdout)["swarm"]
    assert seen["join"] == (
        f"COLLAB_SYNC_EVERY=10 collab run --site NAME --join 127.0.0.1:{port} --token-file swarm.key --run {name} "
        "train.py"
    )
    nodes.end_together()
    assert all((folder / "state" / f"{node.name}.collab").exists() for node in nodes.all)
    assert not any("COLLAB_STATE_DIR is not set" in node.output for node in nodes.all)


@pytest.mark.parametrize("given", ["-m", "--module", "--no-python", "--no_python"])
def test_a_script_torchrun_takes_for_no_file_is_not_looked_for(given: str) -> None:
    run_command._check_script(argparse.Namespace(module=False, torchrun=[given], script="b"))
    with pytest.raises(ValueError, match="there is no script b in "):
        run_command._check_script(argparse.Namespace(module=False, torchrun=[], script="b"))


@pytest.mark.parametrize(
    ("http", "words"),
    [("8080", "--http: expected HOST:PORT"), ("0.0.0.0:8080", "in the clear"), ("::1:x", "HOST:PORT")],
)
def test_a_page_that_could_not_be_served_is_refused_before_anything_starts(http: str, words: str, swarm: Path) -> None:
    done = run(swarm, "run", "--http", http, "--dry-run", "train.py")
    assert done.returncode in (1, 2) and words in done.stderr and done.stdout == ""


def test_the_pages_password_is_that_of_the_folders_key(swarm: Path) -> None:
    asked = run(swarm, "token", "--page-password")
    assert asked.returncode == 0 and asked.stdout == run(swarm, "token", "--page-password", "swarm.key").stdout
