"""`collab doctor` as JSON, as it goes, and towards another machine."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from commands import Running, collab
from ranks import free_port
from torch_collab.cli import peer

FILE = """\
[swarm]
endpoint = "paris.example:29510"
coordinator_port = 29512
[site]
listen = "0.0.0.0:29511"
"""


def test_ports_are_those_given_or_of_the_file_or_the_usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert peer.ports("paris", None) == ("paris", {29400: "rendezvous", 29401: "links", 29402: "coordinator"})
    assert peer.ports("paris:1,29402", None) == ("paris", {1: "", 29402: "coordinator"})
    assert peer.ports("[::1]:7", None)[0] == "::1" == peer.ports("[::1]", None)[0]
    (tmp_path / "collab.toml").write_text(FILE)
    assert peer.ports("a", None)[1] == {29510: "rendezvous", 29511: "links", 29512: "coordinator"}
    for wrong in ("", "a:b", "a:1,x", "a:0"):
        with pytest.raises(ValueError, match=r"expected HOST"):
            peer.ports(wrong, None)


def test_a_port_that_is_open_and_one_that_is_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken, closed = server.getsockname()[1], free_port()
        (_, good, well), (_, bad, ill) = peer.try_ports("127.0.0.1", {taken: "links", closed: ""})
    assert good and well == f"port {taken} of 127.0.0.1 (links) can be reached"
    assert not bad and ill.startswith(f"port {closed} of 127.0.0.1 is refused: the machine is up, but nothing")


def test_doctor_as_json_has_every_finding_and_its_verdict() -> None:
    closed = free_port()
    done = collab("doctor", "--json", "--peer", f"127.0.0.1:{closed}")
    told = json.loads(done.stdout)
    assert done.returncode == 1 and told["problems"] == sum(row["verdict"] == "BAD" for row in told["findings"])
    rows = {row["what"]: row for row in told["findings"]}
    assert rows["collab"]["verdict"] == "ok" and rows["peer"]["verdict"] == "BAD"
    assert f"port {closed} of 127.0.0.1" in rows["peer"]["text"]


def test_doctor_prints_a_finding_when_it_has_it() -> None:
    with (
        socket.create_server(("127.0.0.1", 0), backlog=1) as server,
        Running("doctor", "--seconds", "0", "--peer", f"127.0.0.1:{server.getsockname()[1]}") as doctor,
    ):
        first = doctor.process.stdout.readline()
        assert first.startswith("  ok    collab: ") and doctor.process.poll() is None, first
        assert "can be reached" in doctor.process.stdout.read()


def swarm(folder: Path) -> tuple[str, int, int, int]:
    """A swarm's file, and the ports in it: rendezvous, links, coordinator."""
    rendezvous, links, coordinator = (free_port() for _ in range(3))
    file = folder / "collab.toml"
    file.write_text(
        f'[swarm]\nendpoint = "127.0.0.1:{rendezvous}"\ncoordinator_port = {coordinator}\n'
        f'[site]\nlisten = "127.0.0.1:{links}"\n'
    )
    return str(file), rendezvous, links, coordinator


@contextmanager
def answering(file: str, **environment: str) -> Iterator[None]:
    with Running("doctor", "--answer", "--config", file, **environment) as doctor:
        told = ""
        while "collab: answers at ports" not in told:
            line = doctor.process.stdout.readline()
            assert line, told
            told += line
        yield


@pytest.mark.slow
@pytest.mark.parametrize("dialled", [True, False])
def test_the_line_to_a_doctor_that_answers_is_measured_both_ways(tmp_path: Path, dialled: bool) -> None:
    file, rendezvous, links, coordinator = swarm(tmp_path)
    own = free_port()
    here = {"COLLAB_LISTEN": f"127.0.0.1:{own}", **({} if dialled else {"COLLAB_ADVERTISE": "none"})}
    with answering(file):
        done = collab("doctor", "--json", "--seconds", "0.4", "--config", file, "--peer", "127.0.0.1", **here)
    told = json.loads(done.stdout)
    reached = [row for row in told["findings"] if row["what"] == "peer"]
    assert [row["verdict"] for row in reached] == ["ok"] * 3, reached
    assert {int(row["text"].split()[1]) for row in reached} == {rendezvous, links, coordinator}
    line = told["line"]
    assert line is not None, told["findings"]
    assert line["peer"] == f"127.0.0.1:{links}" and line["transport"] == "tcp" and line["seconds"] == 0.4
    assert line["round_trip_ms"] > 0 and line["mbit_to_peer"] > 1 and line["mbit_from_peer"] > 1, line
    assert line["own_port"] == (own if dialled else None) and line["not_dialled"] == ""
    rows = {row["what"]: row for row in told["findings"]}
    assert rows["line"]["verdict"] == "ok" == rows["back"]["verdict"]
    assert f"port {own} here can be reached" in rows["back"]["text"] or not dialled


@pytest.mark.slow
@pytest.mark.parametrize(
    ("there", "here", "words"),
    [
        ("a" * 32, "", "[tcp.peer-encrypts]"),
        ("", "a" * 32, "[tcp.peer-has-no-key]"),
        ("a" * 32, "b" * 32, "[tls.other-key]"),
    ],
    ids=["none here", "none there", "another"],
)
def test_another_key_is_reported_as_a_problem(tmp_path: Path, there: str, here: str, words: str) -> None:
    file, _, links, _ = swarm(tmp_path)
    with answering(file, COLLAB_TOKEN=there):
        done = collab("doctor", "--seconds", "1", "--peer", f"127.0.0.1:{links}", COLLAB_TOKEN=here)
    assert done.returncode == 1 and done.stdout.endswith("1 problem found\n"), done.stdout
    (line,) = re.findall(r"^  BAD +line: (the line to 127\.0\.0\.1:\d+ was not measured: .*)", done.stdout, re.M)
    assert words in line and "[cli.line-closed]" in line


def test_a_taken_port_is_named_by_the_answering_side(tmp_path: Path) -> None:
    file, rendezvous, _, _ = swarm(tmp_path)
    with socket.create_server(("127.0.0.1", rendezvous)):
        done = collab("doctor", "--answer", "--config", file)
    words = f"port {rendezvous} cannot be opened here: Address already in use; collab doctor --answer needs"
    assert done.returncode == 1 and words in done.stderr, done.stderr


def test_a_time_that_is_no_time_is_refused() -> None:
    done = collab("doctor", "--peer", "127.0.0.1", "--seconds", "-1")
    assert done.returncode == 2 and "[cli.doctor-seconds]" in done.stderr, done.stderr
    none = collab("doctor", "--peer", "")
    assert none.returncode != 0 and "expected HOST" in none.stderr, none.stdout
