"""The command line and the table it prints."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import PATIENCE, Coordinator, Running, collab
from ranks import expect_success, run_ranks
from torch_collab import native
from torch_collab.cli import doctor, forget, main, status
from torch_collab.options import Options

KNOBS = Path(__file__).parents[2] / "docs" / "reference" / "knobs.md"


def test_options_and_settings_have_a_field_for_every_knob() -> None:
    names = [row["name"] for row in native.knob_table()]
    assert [f.name for f in dataclasses.fields(Options)] == names
    assert list(inspect.signature(Options).parameters) == names, "what an editor shows"
    assert set(names) <= set(native.Settings.__dataclass_fields__)
    assert set(native.load_config({}, {}).raw.typed) == set(names)


@pytest.mark.parametrize("row", native.knob_table(), ids=lambda row: row["name"])
def test_a_value_in_python_is_of_the_type_that_the_table_states(row: Any) -> None:
    annotation = native.KnobValues.__annotations__[row["name"]]
    value = getattr(native.load_config({}, {}), row["name"])
    told = type(value).__name__
    assert ("None" if told == "NoneType" else told) in re.findall(r"\w+", annotation), (row, value)


def test_options_take_old_names_with_a_warning_that_names_the_new() -> None:
    with pytest.warns(DeprecationWarning, match="site_count is now called num_shards and min_sites"):
        options = Options(site_count=3, codec="int8")  # type: ignore[call-arg]
    assert options.pairs() == {"num_shards": "3", "min_sites": "3", "codec": "int8"}
    with pytest.warns(DeprecationWarning, match="outer is now called outer_optimizer"):
        options.outer = "nesterov"
    assert options.outer_optimizer == "nesterov"
    with pytest.warns(DeprecationWarning, match="log is now called log_level"):
        assert options.log is None
    with pytest.warns(DeprecationWarning), pytest.raises(ValueError, match="log='info' and log_level='debug'"):
        Options(log="info", log_level="debug")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="codecc"):
        Options(codecc="fp32")  # type: ignore[call-arg]
    with pytest.raises(AttributeError, match="codecc"):
        options.codecc = "fp32"


def test_options_do_not_show_the_token() -> None:
    assert "clb_secret" not in repr(Options(token="clb_secret", run="a"))


def test_config_tells_each_value_and_where_it_came_from() -> None:
    done = collab("config", COLLAB_SYNC_EVERY="30s")
    assert done.returncode == 0, done.stderr
    assert "COLLAB_SYNC_EVERY = 30s   [environment]" in done.stdout
    assert re.search(r"COLLAB_CODEC = fp16 +\[default\]", done.stdout)
    values = json.loads(collab("config", "--json", COLLAB_CODEC="int8").stdout)
    assert values["codec"].items() >= {"value": "int8", "source": "environment", "shared": True}.items()
    assert values["heartbeat"].items() >= {"unit": "time", "default": "1s", "advanced": True, "shared": False}.items()
    assert "COLLAB_CHUNK_KIB = 256   [default]   KiB of float32, same at all sites, advanced\n" in done.stdout


def test_config_shows_the_values_that_a_preset_set() -> None:
    done = collab("config", COLLAB_PRESET="wan", COLLAB_SYNC_EVERY="8")
    assert done.returncode == 0, done.stderr
    assert "COLLAB_PRESET = wan   [environment]" in done.stdout
    assert "COLLAB_CODEC = int4   [preset wan]" in done.stdout
    assert "COLLAB_SYNC_EVERY = 8   [environment]" in done.stdout
    wrong = collab("config", COLLAB_PRESET="wam")
    assert wrong.returncode == 1 and wrong.stderr.endswith('got "wam"; the nearest one is wan [knob.bad-value]\n'), (
        wrong.stderr
    )


def test_old_names_are_accepted_with_one_warning() -> None:
    done = collab("config", COLLAB_OUTER="nesterov", COLLAB_SITE_COUNT="2")
    assert done.returncode == 0
    assert "COLLAB_OUTER_OPTIMIZER = nesterov   [environment]" in done.stdout
    assert "COLLAB_NUM_SHARDS = 2 " in done.stdout and "COLLAB_MIN_SITES = 2 " in done.stdout
    assert done.stderr.count("WARNING") == 1, done.stderr
    for text in ("COLLAB_OUTER is now called COLLAB_OUTER_OPTIMIZER", "COLLAB_NUM_SHARDS and COLLAB_MIN_SITES"):
        assert text in done.stderr, done.stderr
    both = collab("config", COLLAB_LOG="info", COLLAB_LOG_LEVEL="debug")
    assert both.returncode == 1 and "COLLAB_LOG is" in both.stderr and "COLLAB_LOG_LEVEL is" in both.stderr


def test_config_prints_the_table_of_the_documents() -> None:
    table = collab("config", "--markdown").stdout.strip()
    assert table in KNOBS.read_text(), "the documents' table is not what `collab config --markdown` prints"
    common, advanced = table.split("<details>")
    for row in native.knob_table():
        part = advanced if row["advanced"] else common
        (line,) = [line for line in part.splitlines() if line.startswith(f"| `COLLAB_{row['name'].upper()}` | ")]
        assert (" | alike | " in line) == (row["scope"] == "sites"), line
    for preset in native.preset_table():
        assert f"| `{preset['name']}` | " in advanced


def test_the_path_of_ucx_may_be_given_and_is_no_knob(tmp_path: Path) -> None:
    done = collab("config", COLLAB_UCX_LIBRARY=str(tmp_path / "libucp.so.0"))
    assert done.returncode == 0, done.stderr
    assert "UCX_LIBRARY" not in done.stdout


def test_config_refuses_an_unknown_knob_and_names_the_nearest() -> None:
    done = collab("config", COLLAB_CODEX="fp16")
    assert done.returncode == 1
    assert done.stderr.startswith("collab: ") and "COLLAB_CODEC" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_misspelt_variable_is_not_blamed_on_a_line_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "collab.toml").write_text('[swarm]\nsync_every = 5\ncodec = "int9"\n')
    file = ("--config", str(tmp_path / "collab.toml"))
    misspelt = collab("config", *file, COLLAB_SYNC_EVRY="5")
    assert "COLLAB_SYNC_EVRY is not a knob" in misspelt.stderr and "collab.toml" not in misspelt.stderr
    refused = collab("config", *file)
    assert refused.stderr.startswith("collab: COLLAB_CODEC: expected") and refused.stderr.endswith(
        f" ({tmp_path}/collab.toml, line 3) [knob.bad-value]\n"
    ), refused.stderr


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["coordinator", "--listen", "1"], "--listen: expected HOST:PORT"),
        (["coordinator", "--listen", "127.0.0.1:0", "--sites", "0"], "--sites: expected a whole number (1..4096)"),
        (["helper", "--coordinator", "x"], "HOST:PORT of the coordinator: expected"),
        (["status", "a:1", "--watch", "0"], "--watch: expected 0.1 to 86400 seconds, got 0"),
        (["status", "a:1", "--timeout", "-1"], "--timeout: expected more than 0 and up to 86400 seconds, got -1"),
        (["doctor", "--peer", "a:70000"], "--peer: expected a port of 0..65535, got 'a:70000'"),
    ],
)
def test_a_refused_option_is_wrong_usage_and_is_named(command: list[str], words: str) -> None:
    done = collab(*command)
    assert done.returncode == 2 and done.stderr.startswith(f"collab: {words}"), done.stderr


def test_every_command_warns_once_of_foreign_variables() -> None:
    strangers = {"COLLAB_TEAM": "blue", "COLLAB_PORT": "tcp://10.0.0.1:1", "COLLAB_SERVICE_HOST": "10.0.0.1"}
    told = "WARNING collab: COLLAB_TEAM is in the environment and is not a knob"
    with Coordinator(**strangers) as coordinator:
        assert told in coordinator.before and "SERVICE" not in coordinator.before, coordinator.before
        for command in (["config", "--json"], ["doctor"], ["status", coordinator.address]):
            done = collab(*command, **strangers)
            assert done.stderr.count(told) == 1 and "SERVICE" not in done.stderr, (command, done.stderr)
            assert "COLLAB_TEAM" not in done.stdout
    assert "COLLAB_TEAM" not in collab("config", COLLAB_LOG_LEVEL="error", **strangers).stderr
    refused = collab("helper", "--coordinator", "127.0.0.1:1", COLLAB_STATEDIR="/x", **strangers)
    assert refused.returncode == 1 and "the nearest one is COLLAB_STATE_DIR" in refused.stderr


def test_a_token_is_made_at_random_and_a_file_of_it_is_private(tmp_path: Path) -> None:
    first, second = (collab("token", "--print").stdout.strip() for _ in range(2))
    assert first != second and len(first) > 40 and first.startswith("clb_")
    assert native.has_made_token(native.load_config({"COLLAB_TOKEN": first}, {}).raw), "the core knows it again"
    assert not native.has_made_token(native.load_config({"COLLAB_TOKEN": "a" * 32}, {}).raw)
    file = tmp_path / "swarm.key"
    assert collab("token", "--out", str(file)).returncode == 0
    assert file.read_text().startswith("clb_") and file.stat().st_mode & 0o077 == 0
    again = collab("token", "--out", str(file))
    assert again.returncode == 1 and str(file) in again.stderr, "a token that is there is not written over"


def test_a_token_goes_to_a_file_unless_it_is_to_be_shown(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torch_collab.cli", "token"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0 and "wrote swarm.key" in done.stdout
    token = (tmp_path / "swarm.key").read_text().strip()
    assert token.startswith("clb_") and token not in done.stdout
    assert stat.S_IMODE((tmp_path / "swarm.key").stat().st_mode) == 0o600


def test_a_token_is_put_in_front_of_the_one_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "swarm.key"
    assert collab("token", "--out", str(file)).returncode == 0
    first = file.read_text().strip()
    done = collab("token", "--rotate", str(file))
    assert done.returncode == 0 and "still accepted" in done.stdout and first not in done.stdout
    second = file.read_text().split()
    assert len(second) == 2 and second[1] == first and file.stat().st_mode & 0o077 == 0
    assert re.search(r"^  ok +token: made by", collab("doctor", COLLAB_TOKEN_FILE=str(file)).stdout, re.M)
    assert collab("token", "--rotate", str(file)).returncode == 0
    assert file.read_text().split()[1:] == second[:1], "two are enough"
    missing = collab("token", "--rotate", str(tmp_path / "none"))
    assert missing.returncode == 1 and "none cannot be read" in missing.stderr


def test_config_does_not_show_the_token() -> None:
    secret = "clb_" + "s" * 40
    done = collab("config", COLLAB_TOKEN=secret)
    assert "COLLAB_TOKEN = (set, not shown)" in done.stdout and secret not in done.stdout + done.stderr


def test_version() -> None:
    assert re.fullmatch(r"collab \d+\.\d+\.\d+\n", collab("--version").stdout)


def test_doctor_reports_and_its_status_says_whether_there_are_problems() -> None:
    done = collab("doctor")
    bad = [line for line in done.stdout.splitlines() if line.startswith("  BAD")]
    assert done.returncode == (1 if bad else 0), done.stdout + done.stderr
    for what in (
        "collab",
        "python",
        "torch",
        "knobs",
        "ucx",
        "congestion control",
        "listening",
        "name server",
        "shared memory",
        "TMPDIR",
    ):
        assert re.search(rf"^  (ok  |hint|BAD ) +{what}: ", done.stdout, re.M), f"{what} is missing in\n{done.stdout}"


def test_doctor_looks_for_the_key() -> None:
    done = collab("doctor", COLLAB_TOKEN_FILE="/nowhere/swarm.key")
    assert done.returncode == 1
    assert "tcp: COLLAB_TRANSPORT=auto, encrypted by COLLAB_TOKEN_FILE" in done.stdout
    assert "COLLAB_TOKEN_FILE=/nowhere/swarm.key cannot be read: No such file or directory" in done.stdout


def test_config_says_that_a_file_of_the_key_is_missing() -> None:
    done = collab("config", COLLAB_TOKEN_FILE="/nowhere/swarm.key")
    assert done.returncode == 0, done.stderr
    assert "    !! /nowhere/swarm.key cannot be read: No such file or directory\n" in done.stdout


def test_a_key_that_cannot_be_written_is_refused_with_the_reason(tmp_path: Path) -> None:
    missing = tmp_path / "none" / "swarm.key"
    done = collab("token", "--out", str(missing))
    assert done.returncode == 1
    assert (
        done.stderr == f"collab: {missing} cannot be written: there is no folder {missing.parent} [token.not-written]\n"
    )
    done = collab("token", "--out", str(tmp_path))
    assert done.returncode == 1 and f"name a file in it, such as {tmp_path}/swarm.key" in done.stderr
    (tmp_path / "a").touch()
    assert "there is no folder" in collab("token", "--out", str(tmp_path / "a" / "b")).stderr


@pytest.mark.parametrize(("text", "words"), [("", "is empty"), ("abcde\n", "holds 5 characters")])
def test_doctor_finds_a_key_that_the_runtime_would_refuse(text: str, words: str, tmp_path: Path) -> None:
    key = tmp_path / "swarm.key"
    key.write_text(text)
    key.chmod(0o600)
    done = collab("doctor", COLLAB_TOKEN_FILE=str(key))
    assert done.returncode == 1 and re.search(rf"^  BAD +token: .*{words}", done.stdout, re.M), done.stdout


def test_doctor_hints_at_a_token_that_the_user_made_up() -> None:
    assert re.search(r"^  hint +token: .* might be guessed", collab("doctor", COLLAB_TOKEN="a" * 32).stdout, re.M)
    wrong = collab("token", "--print").stdout.strip()[:-1] + "x"
    assert re.search(r"^  BAD +token: .*copy it again", collab("doctor", COLLAB_TOKEN=wrong).stdout, re.M)


def test_doctor_warns_of_a_key_that_others_can_read(tmp_path: Path) -> None:
    key = tmp_path / "swarm.key"
    assert collab("token", "--out", str(key)).returncode == 0
    assert "mode 0" not in collab("doctor", COLLAB_TOKEN_FILE=str(key)).stdout
    key.chmod(0o644)
    done = collab("doctor", COLLAB_TOKEN_FILE=str(key)).stdout
    assert re.search(rf"^  hint +token_file: .*mode 0644.*chmod 600 {key}$", done, re.M), done
    assert re.search(r"^  ok +token: made by", done, re.M), done


class Authority:
    """A swarm's own authority, and certificates by it, made with openssl as the guide does."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.openssl("req", "-x509", *self.new_key(name), "-days", "30", "-subj", f"/CN={name}", "-out", f"{name}.pem")

    def openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True, timeout=PATIENCE)

    def new_key(self, name: str) -> list[str]:
        return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{name}.key"]

    def sign(self, site: str, days: int) -> None:
        self.openssl("req", *self.new_key(site), "-subj", f"/CN={site}", "-out", f"{site}.csr")
        by = ["-CA", f"{self.name}.pem", "-CAkey", f"{self.name}.key", "-CAcreateserial"]
        self.openssl("x509", "-req", "-in", f"{site}.csr", *by, "-days", str(days), "-out", f"{site}.pem")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make certificates with")
def test_doctor_checks_certificates_as_other_sites_will(tmp_path: Path) -> None:
    swarm = Authority(tmp_path, "swarm")
    Authority(tmp_path, "other")
    for site, days in (("paris", 20), ("soon", 5), ("late", -1)):
        swarm.sign(site, days)

    def key_line(cert: str, key: str, authority: str) -> str:
        names = {"CERT": f"{cert}.pem", "KEY": f"{key}.key", "CA": f"{authority}.pem"}
        done = collab("doctor", **{f"COLLAB_TLS_{knob}": str(tmp_path / name) for knob, name in names.items()})
        found = re.search(r"^  (ok  |hint|BAD ) +certificate: .*$", done.stdout, re.M)
        assert found, done.stdout + done.stderr
        assert done.returncode == (1 if found[1] == "BAD " else 0)
        return found[0]

    assert key_line("paris", "paris", "swarm").startswith(
        "  ok    certificate: the swarm's authority signed this site's"
    )
    assert re.search(r"hint +certificate: .* make a new one soon", key_line("soon", "soon", "swarm"))
    expired = r"BAD +certificate: .*late.pem has expired: the certificate of CN=late"
    assert re.search(expired, key_line("late", "late", "swarm"))
    assert re.search(r"BAD +certificate: COLLAB_TLS_KEY: .*late.key .*mismatch", key_line("paris", "late", "swarm"))
    assert re.search(r"BAD +certificate: .*paris.pem: unable to get local issuer", key_line("paris", "paris", "other"))


@pytest.mark.parametrize("knob", ["CERT", "KEY", "CA"])
def test_doctor_reports_an_incomplete_certificate(knob: str, tmp_path: Path) -> None:
    (tmp_path / "some.pem").touch(mode=0o600)
    done = collab("doctor", **{f"COLLAB_TLS_{knob}": str(tmp_path / "some.pem")})
    assert re.search(r"^  BAD +certificate: .*COLLAB_TLS_CERT, COLLAB_TLS_KEY and COLLAB_TLS_CA", done.stdout, re.M), (
        done.stdout
    )


def test_doctor_refuses_what_another_site_has_signed() -> None:
    chain = Path(__file__).parents[1] / "transport" / "certificates" / "chain"

    def told(name: str) -> str:
        return collab(
            "doctor",
            COLLAB_TLS_CERT=str(chain / f"{name}.pem"),
            COLLAB_TLS_KEY=str(chain / f"{name}.key"),
            COLLAB_TLS_CA=str(chain / "authority.pem"),
        ).stdout

    assert re.search(r"^  ok +certificate: the swarm's authority signed this site's certificate", told("site"), re.M)
    assert re.search(
        r"^  BAD +certificate: .*guest.pem: no certificate in COLLAB_TLS_CA signed it directly", told("guest"), re.M
    )


def test_doctor_tells_what_tcp_would_refuse_without_a_key() -> None:
    def refusals(**environment: str) -> list[str]:
        return re.findall(r"^  BAD +links: (.*)$", collab("doctor", COLLAB_TRANSPORT="tcp", **environment).stdout, re.M)

    assert "8.8.8.8 is neither this machine nor a private address" in refusals(COLLAB_ADVERTISE="8.8.8.8")[0]
    assert "1.1.1.1 is neither" in refusals(COLLAB_COORDINATOR="1.1.1.1:29500", COLLAB_ADVERTISE="None")[0]
    assert not refusals(COLLAB_ADVERTISE="192.168.1.2", COLLAB_COORDINATOR="10.0.0.1:29500")
    assert not refusals(COLLAB_ADVERTISE="8.8.8.8", COLLAB_INSECURE="1")
    assert not refusals(COLLAB_ADVERTISE="8.8.8.8", COLLAB_TOKEN="clb_" + "s" * 40)


def test_doctor_tells_that_the_system_lacks_a_congestion_control() -> None:
    done = collab("doctor", COLLAB_TCP_CONGESTION="nosuch").stdout
    assert re.search(
        r"^  hint +congestion control: .*COLLAB_TCP_CONGESTION=nosuch: .*, so tcp links use \w+", done, re.M
    )


def test_doctor_knows_a_site_that_is_not_dialled() -> None:
    assert "address: others do not dial this site" in collab("doctor", COLLAB_ADVERTISE="None").stdout


def test_doctor_finds_a_port_in_use_and_a_bad_knob() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        done = collab("doctor", COLLAB_LISTEN=listen, COLLAB_CODEC="zip")
    assert done.returncode == 1
    assert f"{listen} does not work" in done.stdout
    assert "zip" in done.stdout
    assert "2 problems found" in done.stdout


@pytest.mark.parametrize(("run", "verdict"), [("night", "ok"), ("day", "BAD")])
def test_doctor_takes_the_port_of_the_site_that_runs_here_for_no_problem(
    run: str, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = f"process {os.getpid()} on host here"
    rows = [("/state/night~paris~1~x.record", 1, 1, held)]
    monkeypatch.setattr(native, "find_records", lambda folder: rows, raising=False)
    config = native.load_config({"COLLAB_RUN": run, "COLLAB_STATE_DIR": "/state"}, {})
    findings = doctor.Findings(quiet=True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        listen = f"127.0.0.1:{server.getsockname()[1]}"
        doctor._port(findings, listen, config)
    (row,) = findings.rows
    assert row["verdict"] == verdict, row
    own = f"{listen} is in use by this swarm's own site paris of run night ({held}), which runs here"
    assert (row["text"] == own) == (verdict == "ok"), row


def test_doctor_hints_at_a_silent_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()
    monkeypatch.setattr(doctor, "_NAME_SECONDS", 0.1)
    monkeypatch.setattr(socket, "getnameinfo", lambda *_: answers.wait(30.0))
    findings = doctor.Findings(quiet=True)
    doctor._name_server(findings)
    answers.set()
    doctor._name_server(findings)
    assert [row["verdict"] for row in findings.rows] == ["hint", "ok"]
    assert "/etc/resolv.conf" in findings.rows[0]["text"]


@pytest.mark.parametrize(("devices", "verdict"), [(["mlx5_1", "mlx5_0"], "hint"), ([], "ok"), (None, "ok")])
def test_doctor_recommends_ucx_where_there_is_rdma(
    devices: list[str] | None, verdict: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(doctor, "_RDMA", tmp_path / "infiniband")
    monkeypatch.setattr(native, "ucx_problem", lambda: None)
    monkeypatch.setattr(native, "ucx_description", lambda: "UCX 1.13.1")
    if devices is not None:
        for device in ["", *devices]:
            (tmp_path / "infiniband" / device).mkdir()
    findings = doctor.Findings(quiet=True)
    doctor._ucx(findings)
    (row,) = findings.rows
    assert row["verdict"] == verdict, row
    assert ("RDMA (mlx5_0, mlx5_1)" in row["text"]) == ("COLLAB_TRANSPORT=ucx" in row["text"]) == (verdict == "hint")


@pytest.mark.slow
def test_a_coordinator_answers_status_and_ends_at_ctrl_c() -> None:
    with Coordinator("--sites", "2") as coordinator:
        done = collab("status", coordinator.address)
        assert done.returncode == 0, done.stderr
        both = f"127.0.0.1:1,{coordinator.address}"
        answer = json.loads(collab("status", "--json", "--timeout", "2", COLLAB_COORDINATOR=both).stdout)
        assert answer["coordinator"] == coordinator.address, "the one that answers"
        with Running("status", coordinator.address, "--watch", "0.1", "--json", PYTHONUNBUFFERED="1") as watch:
            lines = [watch.process.stdout.readline() for _ in range(3)]
            assert all(json.loads(line)["coordinator"] == coordinator.address for line in lines), lines
            watch.process.send_signal(signal.SIGINT)
            assert watch.process.wait(PATIENCE) == 130
        coordinator.process.send_signal(signal.SIGINT)
        out, _ = coordinator.process.communicate(timeout=PATIENCE)
        assert coordinator.process.returncode == 0, out
        assert "Traceback" not in out


@pytest.mark.slow
def test_a_port_in_use_is_named() -> None:
    with Coordinator() as coordinator:
        done = collab("coordinator", "--listen", coordinator.address)
        assert done.returncode == 1
        assert coordinator.address.rpartition(":")[2] in done.stderr and "in use" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_status_without_an_answer_names_the_address() -> None:
    started = time.monotonic()
    done = collab("status", "127.0.0.1:1", "--timeout", "2")
    assert done.returncode == 1 and "127.0.0.1:1" in done.stderr and "Traceback" not in done.stderr
    assert time.monotonic() - started < 30
    done = collab("status", "127.0.0.1:1,127.0.0.1:2", "--timeout", "2")
    assert done.returncode == 1 and "none of the 2 coordinators answers: 127.0.0.1:1: " in done.stderr, done.stderr


def test_status_without_a_coordinator_says_how_one_is_named() -> None:
    done = collab("status")
    assert done.returncode == 1 and "which swarm? name its coordinator (HOST:PORT)" in done.stderr


def test_several_coordinators_give_the_leaders_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"a:1": '{"leads": false}', "b:1": '{"leads": true}'}
    monkeypatch.setattr(native, "query_status", lambda transport, address, limit: told[address], raising=False)
    assert status.ask({}, {"a:1": "", "b:1": ""}, timedelta(seconds=1)) == {"coordinator": "b:1", "leads": True}
    assert status.ask({}, {"a:1": ""}, timedelta(seconds=1))["coordinator"] == "a:1"


FILE = '[swarm]\nrun = "night"\nendpoint = "{}"\ncoordinator_port = 29402\n'


def test_the_site_of_this_machine_is_asked_if_the_first_machine_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(transport: object, address: str, limit: timedelta) -> str:
        if address.startswith("192.0.2.7"):
            raise ConnectionError("nobody listens there")
        return json.dumps({"swarm": runs[0], "leads": True})

    runs = ["night"]
    monkeypatch.setattr(native, "query_status", answer, raising=False)
    for name in [name for name in os.environ if name.startswith("COLLAB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLLAB_INSECURE", "1")
    file = tmp_path / "collab.toml"
    file.write_text(FILE.format("192.0.2.7"))
    asked = ["status", "--config", str(file)]
    assert main(asked) == 0 and "coordinator: localhost:29402\nswarm: night\n" in capsys.readouterr().out
    runs[0] = "day"
    assert main(asked) == 1
    said = capsys.readouterr().err
    assert (
        "192.0.2.7:29402: nobody listens there; localhost:29402: the coordinator there belongs to the run 'day'" in said
    )
    assert main([*asked, "192.0.2.7:29402"]) == 1 and "localhost" not in capsys.readouterr().err, "named on the line"
    file.write_text(FILE.format("127.0.0.1"))
    assert main(asked) == 0 and "coordinator: 127.0.0.1:29402\n" in capsys.readouterr().out, "once is enough"


def test_forget_tells_the_site_of_this_machine_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def tell(transport: object, address: str, sites: list[str], seconds: float) -> tuple[bool, str]:
        if address.startswith("192.0.2.7"):
            raise ConnectionError("nobody listens there")
        return True, f"{sites[0]} is forgotten"

    runs = ["night"]
    monkeypatch.setattr(native, "query_status", lambda *_: json.dumps({"swarm": runs[0]}), raising=False)
    monkeypatch.setattr(native, "tell_forget", tell)
    for name in [name for name in os.environ if name.startswith("COLLAB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLLAB_INSECURE", "1")
    (tmp_path / "collab.toml").write_text(FILE.format("192.0.2.7"))
    asked = ["forget", "paris", "--config", str(tmp_path / "collab.toml")]
    assert main(asked) == 0
    away = "192.0.2.7:29402: no answer (nobody listens there)\n"
    assert capsys.readouterr().out == away + "localhost:29402: paris is forgotten\n"
    runs[0] = "day"
    assert main(asked) == 1 and capsys.readouterr().out == away, "another run's coordinator is not told"


def test_a_period_not_chosen_yet_is_explained() -> None:
    assert status.render({"round": 0, "period": 0}).splitlines() == ["round: 0", "period: as COLLAB_SYNC_EVERY says"]
    assert status.render({"period": 30}) == "period: 30"
    starting = status.render({"run": 0, "round": 0, "applicants": ["paris"]})
    assert starting.startswith("There has been no round yet: sites are still starting (1 so far).\n")


def test_arguments_of_forget_are_sites_and_optional_addresses() -> None:
    assert forget.split(["a", "b"]) == (["a", "b"], "")
    assert forget.split(["a", "b", "host:1"]) == (["a", "b"], "host:1")
    assert forget.split(["a", "host:1,[::1]:2"]) == (["a"], "host:1,[::1]:2")
    assert forget.split(["a", "host:x"]) == (["a", "host:x"], "")
    assert forget.split(["host:1"]) == (["host:1"], "")


@pytest.mark.slow
def test_forget_reports_the_answer_of_every_coordinator() -> None:
    with Coordinator() as coordinator:
        candidates = f"127.0.0.1:1,{coordinator.address}"
        done = collab("forget", "tokyo", candidates, "--timeout", "2")
        assert done.returncode == 1 and not done.stderr
        first, second = done.stdout.splitlines()
        assert first.startswith("127.0.0.1:1: no answer (")
        nobody = "no site is waiting at this coordinator [coordinator.forget-nobody-waits]"
        assert second == f"{coordinator.address}: {nobody}"
        assert collab("forget", "tokyo", COLLAB_COORDINATOR=coordinator.address).stdout == second + "\n"


@pytest.mark.slow
def test_forget_that_reaches_nobody_says_so() -> None:
    done = collab("forget", "tokyo", "127.0.0.1:1", "--timeout", "2")
    assert done.returncode == 1 and "nobody was told" in done.stderr and "Traceback" not in done.stderr
    done = collab("forget", "tokyo")
    assert done.returncode == 1 and "COLLAB_COORDINATOR" in done.stderr


@pytest.mark.slow
def test_the_state_that_leaders_keep_can_be_exported(tmp_path: Path) -> None:
    environment = {"COLLAB_STATE_DIR": str(tmp_path), "COLLAB_CODEC": "fp32", "BATCH": "4"}
    (tmp_path / "out").mkdir()
    expect_success(run_ranks("local_sgd.py", ["a", "b"], str(tmp_path / "out"), "4", "2", environment=environment))
    done = collab("export", "--state", str(tmp_path), "--out", str(tmp_path / "model.pt"))
    assert done.returncode == 0, done.stderr
    assert "if load_state_dict misses keys" in done.stdout and "strict=False" not in done.stdout, "all is averaged"
    state = torch.load(tmp_path / "model.pt")
    final = torch.load(tmp_path / "out" / "0.pt")[-1]
    assert list(state) == ["0.weight", "0.bias", "2.weight", "2.bias", "4.weight", "4.bias"]
    assert all(torch.equal(a, b) for a, b in zip(state.values(), final, strict=True))


def test_export_without_a_state_file_says_so(tmp_path: Path) -> None:
    done = collab("export", "--state", str(tmp_path), "--out", str(tmp_path / "model.pt"))
    assert done.returncode == 1 and "COLLAB_STATE_DIR" in done.stderr
