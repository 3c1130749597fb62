"""`collab doctor`: is this machine fit to be a site, and what would other sites see of it."""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import platform
import re
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from torch_collab import __version__, native
from torch_collab.cli import forms, keys, knobs, line, peer, swarm_file
from torch_collab.escape import escaped
from torch_collab.formatting import counted
from torch_collab.network import addresses, links
from torch_collab.swarm import records

_MIN_SHARED_MEMORY = 1 << 30
_RDMA = Path("/sys/class/infiniband")
_SOON = timedelta(days=14)
_NAME_SECONDS = 3.0
_OLD_RECORD = timedelta(days=7)
# Codes of failed measurements that would stop sites, too, because their tokens do not match.
_OTHER_TOKEN = ("tls.", "tcp.peer-encrypts", "tcp.peer-has-no-key")


class Findings:
    """Lines of the report, printed as they come; a problem makes the exit status 1, a hint does not."""

    def __init__(self, quiet: bool) -> None:
        self.rows: list[dict[str, str]] = []
        self._quiet = quiet

    @property
    def problems(self) -> int:
        return sum(row["verdict"] == "BAD" for row in self.rows)

    def fine(self, what: str, text: str) -> None:
        self._add("ok", what, text)

    def hint(self, what: str, text: str) -> None:
        self._add("hint", what, text)

    def problem(self, what: str, text: str) -> None:
        self._add("BAD", what, text)

    def _add(self, verdict: str, what: str, text: str) -> None:
        self.rows.append({"verdict": verdict, "what": what, "text": text})
        if not self._quiet:
            print(f"  {verdict:<5} {what}: {escaped(text)}", flush=True)


def add_to(parsers: Any) -> None:
    sub = forms.add(
        parsers,
        "doctor",
        "check this machine: versions, UCX, token, ports, shared memory, address",
        "Says whether this machine can be a site, what other sites see of it, and what to do.",
        [
            "collab doctor",
            "collab doctor --clean  # removes what dead processes have left behind",
            "collab doctor --answer  # in Paris, before the swarm runs: takes its ports until Ctrl-C",
            "collab doctor --peer paris.example.org  # in Tokyo: ports both ways, round trip, Mbit/s each way",
        ],
        {0: "no problem found; hints do not count", 1: "a line begins with BAD, or --answer cannot listen"},
    )
    sub.add_argument(
        "--clean", action="store_true", help="remove shared memory and old records that dead processes left behind"
    )
    sub.add_argument("--json", action="store_true", help="print everything as JSON, at the end")
    sub.add_argument(
        "--peer",
        metavar="HOST[:PORT,...]",
        help="try ports of another machine (default: those in collab.toml); the swarm or `collab doctor --answer` "
        "must be running there",
    )
    sub.add_argument(
        "--seconds",
        type=float,
        default=10.0,
        help="how long to measure the line to a --peer that answers; 0: do not measure it (default: %(default)g)",
    )
    sub.add_argument(
        "--answer", action="store_true", help="after the checks, answer machines that run --peer, until Ctrl-C"
    )
    swarm_file.add_option(sub)


def run(arguments: argparse.Namespace) -> int:
    if not 0 <= arguments.seconds <= 600:
        raise forms.WrongUsage(f"--seconds: expected 0 to 600, got {arguments.seconds:g} [cli.doctor-seconds]")
    tried = peer.ports(arguments.peer, arguments.config) if arguments.peer is not None else None
    findings = Findings(quiet=arguments.json)
    _versions(findings)
    config = _knobs(findings, arguments.config)
    choice = _links(findings, config) if config else None
    if config:
        _key(findings, config, choice)
    _ucx(findings)
    _congestion_control(findings, config, choice)
    _port(findings, config.listen if config else _listen_as_given(), config)
    if config:
        _address(findings, config)
    _name_server(findings)
    _shared_memory(findings)
    _orphans(findings, arguments.clean)
    if config:
        _records(findings, records.folder(config), arguments.clean)
    figures = None
    if tried:
        open_ports = _peer(findings, *tried)
        if config and arguments.seconds and peer.of_links(tried[1]) in open_ports:
            figures = _line(findings, config, tried[0], peer.of_links(tried[1]), arguments.seconds)
    count = findings.problems
    if arguments.json:
        told = {"problems": count, "findings": findings.rows, "line": figures and figures.as_json()}
        print(json.dumps(told, indent=2), flush=True)
    else:
        print(f"{counted(count, 'problem')} found" if count else "no problems found", flush=True)
    if arguments.answer and config:
        return line.answer(config, peer.usual(arguments.config))
    return 1 if count else 0


def _peer(found: Findings, host: str, wanted: dict[int, str]) -> set[int]:
    """Returns the ports that can be reached."""
    reached = set()
    for port, good, text in peer.try_ports(host, wanted):
        (found.fine if good else found.problem)("peer", text)
        if good:
            reached.add(port)
    return reached


def _line(found: Findings, config: native.Settings, host: str, port: int, seconds: float) -> line.Figures | None:
    try:
        figures = line.measure(config, host, port, seconds)
    except (OSError, RuntimeError, ValueError) as error:
        text = str(error).removeprefix("collab: ")
        if any(f"[{code}" in text for code in _OTHER_TOKEN):
            found.problem("line", text)
            return None
        found.hint("line", f"{text}. To measure it, run `{line.ANSWER}` on {host} with the same token, while no swarm "
                   "uses its ports")  # fmt: skip
        return None
    found.fine("line", str(figures))
    if figures.own_port is None:
        found.fine("back", "others do not dial this site: COLLAB_ADVERTISE=none")
    elif figures.not_dialled:
        found.hint("back", f"{host} cannot reach port {figures.own_port} here: {figures.not_dialled}. Open it, or set "
                   "COLLAB_ADVERTISE=none: then this site dials the others, and one of them must be "
                   "reachable")  # fmt: skip
    else:
        found.fine("back", f"port {figures.own_port} here can be reached from {host}")
    return figures


def _versions(found: Findings) -> None:
    found.fine("collab", __version__)
    found.fine("python", f"{platform.python_version()} on {platform.platform()}")
    try:
        import torch
        import torch.distributed as dist
    except Exception as error:
        found.problem("torch", f"cannot be imported: {error}")
        return
    if not dist.is_available() or not dist.is_gloo_available():
        found.problem("torch", f"{torch.__version__} has no torch.distributed with Gloo, which collab needs")
        return
    cuda = "with NCCL" if torch.cuda.is_available() and dist.is_nccl_available() else "CPU only here"
    found.fine("torch", f"{torch.__version__}, {cuda}")
    if "collab" not in dist.Backend.backend_list:
        found.problem("backend", "importing torch did not register 'collab'; is TORCH_DEVICE_BACKEND_AUTOLOAD=0 set?")


def _knobs(found: Findings, file: str | None) -> native.Settings | None:
    try:
        loaded = knobs.load(file=file, dials=True)
    except ValueError as error:
        found.problem("knobs", str(error))
        return None
    changed = [f"{name}={value}" for name, value, source in loaded.values if source != "default"]
    found.fine("knobs", ", ".join(changed) if changed else "all at their defaults")
    return loaded


def _links(found: Findings, config: native.Settings) -> links.Choice | None:
    try:
        choice = links.choose(config)
    except RuntimeError as error:
        found.problem("links", str(error).removeprefix("collab: "))
        return None
    found.fine("links", f"{choice.kind}: {choice.reason}")
    return choice


def _key(found: Findings, config: native.Settings, choice: links.Choice | None) -> None:
    files = keys.files_of(config)
    what = "certificate" if any(knob.startswith("tls_") for knob in files) else "token"
    wrong = {knob: why for knob, path in files.items() if (why := keys.unreadable(path))}
    for knob, path in files.items():
        if knob in wrong:
            found.problem(knob, f"COLLAB_{knob.upper()}={path} {wrong[knob]}")
        elif exposed := keys.exposed(knob, path):
            found.hint(knob, exposed)
    if choice is None or wrong:
        return
    if choice.kind != "tcp":
        if keys.is_given(config):
            found.hint(what, f"links over {choice.kind} do not use it; they are neither encrypted nor authenticated")
        return
    try:
        native.try_transport(links.make(config, ""))
        if "tls_cert" in files:
            _certificate(found, keys.expiry(files))
        elif keys.is_given(config):
            _token(found, config)
    except (ValueError, RuntimeError, OSError) as error:
        found.problem(what, str(error).removeprefix("collab: "))


def _token(found: Findings, config: native.Settings) -> None:
    if native.has_made_token(config.raw):
        found.fine("token", "made by `collab token`")
    else:
        found.hint(
            "token",
            "this token was not made by `collab token` of this version. It might be guessed, so it is stretched, which "
            "takes a few tenths of a second at each start. Make a new one for all sites",
        )


def _certificate(found: Findings, until: datetime) -> None:
    text = f"the swarm's authority signed this site's certificate, which is valid until {until:%Y-%m-%d %H:%M} UTC"
    soon = until - datetime.now(UTC) < _SOON
    (found.hint if soon else found.fine)("certificate", text + (": make a new one soon" if soon else ""))


def _ucx(found: Findings) -> None:
    problem = native.ucx_problem()
    devices = sorted(path.name for path in _RDMA.iterdir()) if _RDMA.is_dir() else []
    if problem is None and devices:
        advice = "COLLAB_TRANSPORT=ucx uses it, on a trusted network where all machines have it"
        found.hint("ucx", f"{native.ucx_description()}; this machine has RDMA ({', '.join(devices)}): {advice}")
    elif problem is None:
        found.fine("ucx", native.ucx_description())
    else:
        found.hint("ucx", f"COLLAB_TRANSPORT=ucx cannot be used: {problem}")


def _congestion_control(found: Findings, config: native.Settings | None, choice: links.Choice | None) -> None:
    base = Path("/proc/sys/net/ipv4")
    try:
        now = (base / "tcp_congestion_control").read_text().strip()
        available = (base / "tcp_available_congestion_control").read_text().strip()
        allowed = (base / "tcp_allowed_congestion_control").read_text().strip()
    except OSError as error:
        found.hint("congestion control", f"unknown ({error})")
        return
    text = f"default {now}; available {available}; allowed to every user {allowed}"
    wanted, source = {name: rest for name, *rest in config.values}["tcp_congestion"] if config else ("", "default")
    if source == "default" and (choice is None or choice.kind != "tcp"):
        wanted = ""  # only links over TCP request one
    refusal = _congestion_refusal(wanted) if wanted not in ("", now) else None
    used = now if refusal or not wanted else wanted
    if refusal:
        text += f". COLLAB_TCP_CONGESTION={wanted}: {refusal}, so tcp links use {now}"
    elif used != now:
        text += f"; tcp links use {used}"
    slow = used not in ("bbr", "bbr2", "bbr3")
    if slow:
        chosen = used == wanted and _congestion_refusal("bbr") is None
        remedy = (
            "COLLAB_TCP_CONGESTION=bbr" if chosen else "modprobe tcp_bbr; sysctl net.ipv4.tcp_congestion_control=bbr"
        )
        text += f". On long links that lose packets, bbr is many times faster: {remedy}"
    (found.hint if slow or refusal else found.fine)("congestion control", text)


def _congestion_refusal(name: str) -> str | None:
    """Why the system does not let our sockets use it, or None."""
    with socket.socket() as probe:
        try:
            probe.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        except PermissionError:
            return "this user may not use it"
        except OSError:
            return "this system does not have it"
    return None


def _listen_as_given() -> str:
    """The address to listen at if a knob was refused, so that no settings could be loaded."""
    default = next(row["default"] for row in native.knob_table() if row["name"] == "listen")
    return os.environ.get("COLLAB_LISTEN", default)


def _port(found: Findings, listen: str, config: native.Settings | None) -> None:
    try:
        host, port = addresses.split_host_port(listen)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind((host, port))
            server.listen(1)
            found.fine("listening", f"{listen} works" + (f" (got port {server.getsockname()[1]})" if port == 0 else ""))
    except (OSError, ValueError) as error:
        if (
            config
            and isinstance(error, OSError)
            and error.errno == errno.EADDRINUSE
            and (own := _listener(config, port))
        ):
            found.fine("listening", f"{listen} is in use by this swarm's own {own}, which runs here")
            return
        found.problem("listening", f"{listen} does not work: {error}; set COLLAB_LISTEN=HOST:PORT")


def _listener(config: native.Settings, port: int) -> str:
    """The site of this swarm that listens at the port, as text; "" if this user can see none."""
    listening = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            rows = [line.split() for line in Path("/proc/net", table).read_text().splitlines()[1:]]
            listening |= {f"socket:[{row[9]}]" for row in rows
                          if row[3] == "0A" and int(row[1].rpartition(":")[2], 16) == port}  # fmt: skip
    folder = records.folder(config)
    for path, _, _, holder in native.find_records(folder) if folder else ():
        run, site, *_ = [*Path(path).name.split("~"), ""]
        other = (config.given("run") and run != config.run) or (config.given("site") and site != config.site)
        process = re.match(r"process (\d+) ", holder)
        if other or not process:
            continue
        if listening & _sockets(process[1]):
            return f"site {site} of run {run} ({holder})"
    return ""


def _sockets(process: str) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):  # another user's process, or one that has ended
        for entry in Path("/proc", process, "fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                found.add(os.readlink(entry))
    return found


def _address(found: Findings, config: native.Settings) -> None:
    hostname = socket.gethostname()
    if addresses.is_loopback(hostname):
        found.hint(
            "hostname",
            f"{hostname} resolves to loopback: torchrun would tell other machines to dial themselves. Use an address "
            "in --rdzv-endpoint and --local-addr, or fix /etc/hosts",
        )
    if config.advertise == addresses.NOT_DIALABLE:
        found.fine("address", "others do not dial this site: COLLAB_ADVERTISE=none")
        return
    try:
        address = addresses.dial_address(config.advertise, config.listen, list(config.coordinator))
    except (OSError, ValueError) as error:
        found.problem("address", str(error))
        return
    if addresses.is_loopback(address):
        found.hint(
            "address",
            f"others would dial {address}, which only this machine can reach; MASTER_ADDR or COLLAB_COORDINATOR names "
            "this machine or is not set here. Set COLLAB_ADVERTISE=ADDRESS to change that",
        )
    else:
        found.fine("address", f"others would dial {address}")


def _name_server(found: Findings) -> None:
    def look_up() -> None:
        with contextlib.suppress(OSError):  # an error for a missing name is an answer, too
            socket.getnameinfo((addresses.ANYWHERE, 0), 0)

    asked = threading.Thread(target=look_up, daemon=True)
    began = time.monotonic()
    asked.start()
    asked.join(_NAME_SECONDS)
    if asked.is_alive():
        found.hint(
            "name server",
            f"no answer within {_NAME_SECONDS:.0f} s to the look-up of an address. torch's stores look up each machine "
            "that connects, so every start waits for this: correct /etc/resolv.conf (or shorten the wait there: "
            "options timeout:1 attempts:1)",
        )
    else:
        found.fine("name server", f"an address was looked up in {time.monotonic() - began:.1f} s")


def _shared_memory(found: Findings) -> None:
    for what, path in (("shared memory", "/dev/shm"), ("TMPDIR", tempfile.gettempdir())):
        try:
            free = shutil.disk_usage(path).free
        except OSError as error:
            found.problem(what, f"{path}: {error}")
            continue
        text = f"{path} has {free / 2**30:.1f} GiB free (a model needs 8 bytes per parameter, 12 with nesterov)"
        if free < _MIN_SHARED_MEMORY:
            found.hint(what, text + "; in a container, enlarge it with --shm-size" if path == "/dev/shm" else text)
        else:
            found.fine(what, text)


def _orphans(found: Findings, clean: bool) -> None:
    orphans = native.find_orphan_arenas()
    if not orphans:
        found.fine("orphans", "no shared memory left behind")
    for path, size, why in orphans:
        text = f"{path} ({size / 2**20:.0f} MiB): {why}"
        _clean(found, "orphans", clean, path, text, native.remove_orphan_arena)


def _clean(found: Findings, what: str, clean: bool, path: str, text: str, remove: Callable[[str], object]) -> None:
    if not clean:
        found.hint(what, f"{text}; `collab doctor --clean` removes it")
        return
    try:
        remove(path)
        found.fine(what, f"removed {text}")
    except (OSError, RuntimeError) as error:
        found.problem(what, f"{path} cannot be removed: {error}")


def _records(found: Findings, folder: str, clean: bool) -> None:
    if not folder:
        found.hint("records", "this user has no home folder, so a restarted site loses what it has promised; name a "
                   "folder with COLLAB_STATE_DIR or XDG_STATE_HOME")  # fmt: skip
        return
    least = int(_OLD_RECORD.total_seconds())
    held = kept = 0
    for path, size, age, holder in native.find_records(folder):
        if holder or age < least:
            held += bool(holder)
            kept += 1
            continue
        text = f"{path} ({size} bytes): written {age // 86400} days ago, and no process uses it"
        _clean(found, "records", clean, path, text, lambda old: native.remove_record(old, least))
    if records.writable(folder):
        found.fine("records", f"in {folder}: {kept}, of which {held} in use")
    else:
        found.hint("records", f"{folder} cannot be written, so a restarted site loses what it has promised; name "
                   "another with COLLAB_STATE_DIR or XDG_STATE_HOME")  # fmt: skip
