"""`collab doctor` as JSON, as it goes, and towards another machine."""

from __future__ import annotations

import json
import socket
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
        (good, well), (bad, ill) = peer.try_ports("127.0.0.1", {taken: "links", closed: ""})
    assert good and well == f"port {taken} of 127.0.0.1 (links) can be reached"
    assert not bad and ill.startswith(f"port {closed} of 127.0.0.1 is refused: the machine is reached and nothing")


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
        Running("doctor", "--peer", f"127.0.0.1:{server.getsockname()[1]}") as doctor,
    ):
        assert doctor.process.stdout is not None
        first = doctor.process.stdout.readline()
        assert first.startswith("  ok    collab: ") and doctor.process.poll() is None, first
        assert "can be reached" in doctor.process.stdout.read()
