"""The coordinator's page: what it shows of a run that goes on, who may see it, and what strangers can do to it."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import re
import resource
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import screenshots
from commands import PATIENCE, Coordinator, collab
from ranks import Ranks, start_site

OBJECTIVE = 'Learn "French" <script>alert(1)</script>'
# https://prometheus.io/docs/instrumenting/exposition_formats
SAMPLE = re.compile(r'^([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)*)\})? (-?[0-9.e+-]+)$')


def page_of(running: Coordinator) -> str:
    """Where a coordinator that has just begun serves its page."""
    while line := running.process.stdout.readline():
        running.before += line
        if found := re.search(r" page at (https?://[^ ,;]+)", line):
            return found[1]
    raise AssertionError("the coordinator ended before it said where its page is")


def get(
    url: str, password: str = "", method: str = "GET", trusts: ssl.SSLContext | None = None
) -> tuple[int, dict[str, str], str]:
    request = urllib.request.Request(url, method=method)
    if password:
        request.add_header("Authorization", "Basic " + base64.b64encode(f"me:{password}".encode()).decode())
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE, context=trusts) as answer:
            return answer.status, dict(answer.headers), answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read().decode()


def status_of(url: str, password: str = "") -> dict[str, Any]:
    code, _, text = get(url + "status.json", password)
    assert code == 200, text
    return dict(json.loads(text))


def wait_for(url: str, password: str, what: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE
    while not what(seen := status_of(url, password)):
        assert time.monotonic() < deadline, seen
        time.sleep(0.2)
    return seen


def members(seen: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {member["name"]: member for member in seen["swarm"]["members"]}


def samples_of(metrics: str) -> dict[str, float]:
    """Every line is one of the format; what it counts is named before."""
    typed, found = set(), {}
    for line in metrics.splitlines():
        if line.startswith("# TYPE "):
            typed.add(line.split()[2])
        elif not line.startswith("# HELP "):
            parts = SAMPLE.match(line)
            assert parts and parts[1] in typed, line
            found[f"{parts[1]}{{{parts[2] or ''}}}"] = float(parts[3])
    return found


def test_a_run_is_watched_as_it_goes_on(tmp_path: Path) -> None:
    key, board, enough = tmp_path / "swarm.key", tmp_path / "board", tmp_path / "enough"
    assert collab("token", "--out", str(key)).returncode == 0
    password = collab("token", "--page-password", str(key)).stdout.strip()
    assert len(password) == 32 and password not in key.read_text()
    options = ("--http", "127.0.0.1:0", "--objective", OBJECTIVE, "--leaderboard", str(board))

    def start(site: str, index: int) -> Ranks:
        where = coordinator.address
        return start_site(
            "until_told.py", [str(enough)], site, index, where, tmp_path / "events", COLLAB_TOKEN_FILE=str(key)
        )

    with Coordinator("--sites", "2", *options, COLLAB_TOKEN_FILE=str(key)) as coordinator:
        url = page_of(coordinator)
        for wrong in ("", "wrong", password[:-1], key.read_text().strip()):
            code, headers, text = get(url + "status.json", wrong)
            assert code == 401 and headers["WWW-Authenticate"].startswith("Basic") and "members" not in text
        assert "French" not in get(url, password)[2], "the page is filled by its script"
        worlds = {"paris": start("paris", 0), "oslo": start("oslo", 1)}
        try:
            seen = wait_for(url, password, lambda seen: len(seen["rounds"]) > 3)
            assert seen["objective"] == OBJECTIVE and seen["swarm"]["leads"]
            assert all(member["loss"] > 0 and not member["helper"] for member in members(seen).values())
            assert f"COLLAB_COORDINATOR={coordinator.address} COLLAB_TOKEN_FILE=" in seen["join"]
            worlds["oslo"].signal(0, signal.SIGKILL)
            seen = wait_for(url, password, lambda seen: "oslo" not in members(seen))
            assert any(event["event"] == "leave" and "oslo" in event["text"] for event in seen["events"])
            before = {row["name"]: row for row in seen["leaderboard"]}
            worlds["oslo"].kill()
            worlds["oslo"] = start("oslo", 1)
            seen = wait_for(
                url,
                password,
                lambda seen: any(
                    row["name"] == "oslo" and row["samples"] > before["oslo"]["samples"] for row in seen["leaderboard"]
                ),
            )
            metrics = samples_of(get(url + "metrics", password)[2])
            assert metrics["collab_leads{}"] == 1 and metrics["collab_round{}"] >= 3
            assert metrics['collab_site_up{site="oslo",state="active",role="site"}'] == 1
            for measured in ("loss", "step_seconds", "round_seconds", "waited_ratio"):
                assert metrics[f'collab_site_{measured}{{site="paris"}}'] > 0, measured
            worlds["oslo"].signal(0, signal.SIGKILL)
            wait_for(url, password, lambda seen: "oslo" in seen["swarm"]["missing"])
            told = collab("forget", "oslo", coordinator.address, COLLAB_TOKEN_FILE=str(key))
            assert told.returncode == 0, told.stdout
            old = next(row for row in status_of(url, password)["leaderboard"] if row["name"] == "oslo")
            worlds["oslo"].kill()
            worlds["oslo"] = start("bergen", 1)
            seen = wait_for(
                url,
                password,
                lambda seen: any(row["name"] == "bergen" and row["samples"] > 0 for row in seen["leaderboard"]),
            )
            assert old in seen["leaderboard"], "what a site has given under its old name stays"
            enough.touch()
            for world in worlds.values():
                world.join()
        finally:
            for world in worlds.values():
                world.kill()
        last = {row["name"]: row for row in wait_for(url, password, lambda seen: not members(seen))["leaderboard"]}
        assert metrics['collab_contributed_samples_total{site="paris"}'] <= last["paris"]["samples"]
        coordinator.process.send_signal(signal.SIGINT)
        assert coordinator.process.wait(PATIENCE) == 0
    with Coordinator(*options, COLLAB_TOKEN_FILE=str(key)) as coordinator:
        again = status_of(page_of(coordinator), password)
    assert {row["name"]: row for row in again["leaderboard"]} == last


@pytest.mark.slow
def test_a_browser_shows_sites_that_fail_and_come_back(tmp_path: Path) -> None:
    if screenshots.browser() is None:
        pytest.skip("no chromium is here: apt-get install chromium")
    with screenshots.Run(tmp_path, OBJECTIVE) as run:
        here, gone, back = screenshots.fails_and_comes_back(run, "lima")
    for seen in (here, gone, back):
        assert seen.texts["objective"] == OBJECTIVE and "lost" not in seen.texts
        join = seen.texts["join"]
        assert f"COLLAB_COORDINATOR={run.coordinator} COLLAB_RUN=letters COLLAB_TOKEN_FILE=" in join
    assert "3sites1helpersnonemissing" in here.texts["facts"]
    assert all(float(here.row("sites", site)[2]) > 0 for site in screenshots.BATCHES)
    assert "2sites" in gone.texts["facts"] and gone.row("sites", "paris")
    assert any("lima is no longer a member" in row[0] for row in gone.rows["events"])
    before, after = gone.row("board", "lima (not here)"), back.row("board", "lima")
    assert int(after[1].replace(",", "")) > int(before[1].replace(",", "")) > 0


@pytest.fixture(scope="module")
def idle() -> Iterator[tuple[Coordinator, str]]:
    """A coordinator without a token and without sites."""
    with Coordinator("--http", "127.0.0.1:0") as coordinator:
        yield coordinator, page_of(coordinator)


def test_the_page_is_one_file_and_only_read(idle: tuple[Coordinator, str]) -> None:
    url = idle[1]
    code, headers, text = get(url)
    assert code == 200 and headers["Content-Type"].startswith("text/html")
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert not re.search(r"https?:|//[a-z]+\.|src=|@import|innerHTML|<form", text)
    assert get(url, method="HEAD")[2] == "" and int(get(url, method="HEAD")[1]["Content-Length"]) == len(text.encode())
    assert get(url, method="DELETE")[0] == 405
    assert get(url + "../../etc/passwd")[0] == 404


def test_a_port_in_use_is_named(idle: tuple[Coordinator, str]) -> None:
    where = idle[1].removeprefix("http://").rstrip("/")
    done = collab("coordinator", "--listen", "127.0.0.1:0", "--http", where)
    assert done.returncode == 1 and f"another process listens at port {where.rpartition(':')[2]}" in done.stderr
    assert "[page.port-in-use]" in done.stderr


def test_other_machines_are_let_in_only_if_an_option_says_so() -> None:
    done = collab("coordinator", "--listen", "127.0.0.1:0", "--http", "0.0.0.0:0")
    assert done.returncode == 1 and "[page.in-the-clear]" in done.stderr
    assert all(way in done.stderr for way in ("--http-cert FILE", "--http-insecure", "ssh -L"))
    with Coordinator("--http", "0.0.0.0:0", "--http-insecure") as coordinator:
        port = page_of(coordinator).rpartition(":")[2]
        assert status_of(f"http://127.0.0.1:{port}")["swarm"]["swarm"] == "default"
        coordinator.process.send_signal(signal.SIGINT)
        rest = coordinator.process.stdout.read()  # not communicate(), which passes by what is buffered
        assert "[page.open]" in coordinator.first_line + coordinator.before + rest


def test_other_machines_are_let_in_over_https(tmp_path: Path) -> None:
    key, certificate, its_key = (tmp_path / name for name in ("swarm.key", "page.pem", "page.key"))
    assert collab("token", "--out", str(key)).returncode == 0
    password = collab("token", "--page-password", str(key)).stdout.strip()
    own = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=page"
    own += f" -addext subjectAltName=DNS:localhost -keyout {its_key} -out {certificate}"
    subprocess.run(["openssl", *own.split()], check=True, capture_output=True)
    served = ("--http", "0.0.0.0:0", "--http-cert", str(certificate), "--http-key", str(its_key))
    both = collab("coordinator", "--listen", "127.0.0.1:0", *served, "--http-insecure")
    assert both.returncode == 1 and "[page.both]" in both.stderr
    half = collab("coordinator", "--listen", "127.0.0.1:0", *served[:4])
    assert half.returncode == 1 and "--http-key" in half.stderr and "[page.certificate]" in half.stderr
    with Coordinator(*served, COLLAB_TOKEN_FILE=str(key)) as coordinator:
        url = page_of(coordinator)
        assert url.startswith("https://HOST:")
        url, port = url.replace("HOST", "localhost"), int(url.rstrip("/").rpartition(":")[2])
        trusts = ssl.create_default_context(cafile=str(certificate))
        assert get(url + "status.json", "wrong", trusts=trusts)[0] == 401
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as waits:  # in the midst of its handshake
            with socket.create_connection(("127.0.0.1", port), PATIENCE) as clear:
                clear.sendall(b"GET /status.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert b"HTTP" not in clear.recv(4096)
            code, _, text = get(url + "status.json", password, trusts=trusts)
            assert code == 200 and json.loads(text)["swarm"]["members"] == []
            assert get(url, password, "HEAD", trusts)[0] == 200
            assert waits.recv(1) == b""
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            get(url)
        coordinator.process.send_signal(signal.SIGINT)
        said = coordinator.first_line + coordinator.before + coordinator.process.stdout.read()
        assert "[page." not in said


def test_a_thousand_connections_keep_no_viewer_out(idle: tuple[Coordinator, str]) -> None:
    coordinator, url = idle
    host, port = url.removeprefix("http://").rstrip("/").split(":")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    many: list[socket.socket] = []
    try:
        for number in range(1000):
            many.append(socket.create_connection((host, int(port)), PATIENCE))
            many[-1].sendall(b"GET / HTTP/1.1\r\nX: " if number % 2 else b"")
        assert status_of(url)["swarm"]["members"] == []
        assert json.loads(collab("status", coordinator.address, "--json").stdout)["members"] == []
        held = len(list(Path(f"/proc/{coordinator.process.pid}/fd").iterdir()))
        assert held < 200, "of the thousand few are held"
        # A connection with half of a request is closed as well, by the number or by the time.
        many[0].settimeout(PATIENCE)
        many[-1].settimeout(PATIENCE)
        assert many[0].recv(1) == b"" and many[-1].recv(1) == b""
    finally:
        for one in many:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_guessing_passwords_keeps_no_viewer_out(tmp_path: Path) -> None:
    key = tmp_path / "swarm.key"
    assert collab("token", "--out", str(key)).returncode == 0
    password = collab("token", "--page-password", str(key)).stdout.strip()
    with Coordinator("--http", "127.0.0.1:0", COLLAB_TOKEN_FILE=str(key)) as coordinator:
        url = page_of(coordinator)
        host, port = url.removeprefix("http://").rstrip("/").split(":")

        def tries() -> set[int]:
            """Forty at once, more than are answered in a second."""
            with contextlib.ExitStack() as stack:
                strangers = [
                    http.client.HTTPConnection(host, int(port), PATIENCE, source_address=("127.0.0.2", 0))
                    for _ in range(40)
                ]
                for stranger in strangers:
                    stack.enter_context(contextlib.closing(stranger)).connect()
                for stranger in strangers:
                    stranger.request("GET", "/status.json", headers={"Authorization": "Basic eDp3cm9uZw=="})
                return {stranger.getresponse().status for stranger in strangers}

        deadline = time.monotonic() + PATIENCE
        while 429 not in tries():
            assert time.monotonic() < deadline, "nobody bounds it"
        for _ in range(5):
            assert tries() <= {401, 429}
            assert status_of(url, password)["swarm"]["members"] == []


def test_the_password_goes_with_its_key(tmp_path: Path) -> None:
    key, old, new = (tmp_path / name for name in ("swarm.key", "old.key", "new.key"))
    assert collab("token", "--out", str(key)).returncode == 0
    old.write_text(key.read_text())
    with Coordinator("--http", "127.0.0.1:0", COLLAB_TOKEN_FILE=str(key)) as coordinator:
        url = page_of(coordinator)
        assert collab("token", "--rotate", str(key)).returncode == 0
        new.write_text(key.read_text().split()[0] + "\n")
        passwords = [collab("token", "--page-password", str(file)).stdout.strip() for file in (old, new)]

        def wait_for_codes(*expected: int) -> None:
            deadline = time.monotonic() + PATIENCE
            while tuple(get(url, password)[0] for password in passwords) != expected:
                assert time.monotonic() < deadline, expected
                time.sleep(0.2)

        wait_for_codes(200, 200)
        new.replace(key)
        wait_for_codes(401, 200)


def test_an_endless_head_is_not_read(idle: tuple[Coordinator, str]) -> None:
    host, port = idle[1].removeprefix("http://").rstrip("/").split(":")
    with socket.create_connection((host, int(port)), PATIENCE) as one, pytest.raises(ConnectionError):
        for _ in range(1000):
            one.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * 65536)
    assert get(idle[1])[0] == 200
