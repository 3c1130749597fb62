"""`collab doctor`: is this machine fit to be a site, and what would other sites see of it."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Any

from torch_collab import __version__, addresses, links, native
from torch_collab.environment import collab_variables

_MIN_SHARED_MEMORY = 1 << 30


class Findings:
    """Lines of the report; a problem makes the exit status 1, a hint does not."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.problems = 0

    def fine(self, what: str, text: str) -> None:
        self.lines.append(f"  ok    {what}: {text}")

    def hint(self, what: str, text: str) -> None:
        self.lines.append(f"  hint  {what}: {text}")

    def problem(self, what: str, text: str) -> None:
        self.problems += 1
        self.lines.append(f"  BAD   {what}: {text}")


def add_to(parsers: Any) -> None:
    sub = parsers.add_parser("doctor", help="check this machine: versions, UCX, ports, shared memory, address")
    sub.add_argument("--clean", action="store_true", help="remove shared memory that dead processes left behind")
    sub.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    findings = Findings()
    for check in (_versions, _knobs, _links, _ucx, _congestion_control, _port, _address, _shared_memory):
        check(findings)
    _orphans(findings, arguments.clean)
    print("\n".join(findings.lines))
    count = findings.problems
    print(f"{count} problem{'s' if count != 1 else ''} found" if count else "no problems found")
    return 1 if count else 0


def _versions(found: Findings) -> None:
    found.fine("collab", __version__)
    found.fine("python", f"{platform.python_version()} on {platform.platform()}")
    try:
        import torch
        import torch.distributed as dist
    except Exception as error:
        found.problem("torch", f"does not import: {error}")
        return
    if not dist.is_available() or not dist.is_gloo_available():
        found.problem("torch", f"{torch.__version__} has no torch.distributed with Gloo, which collab needs")
        return
    cuda = "with NCCL" if torch.cuda.is_available() and dist.is_nccl_available() else "CPU only here"
    found.fine("torch", f"{torch.__version__}, {cuda}")
    if "collab" not in dist.Backend.backend_list:
        found.problem("backend", "importing torch did not register 'collab'; is TORCH_DEVICE_BACKEND_AUTOLOAD=0 set?")


def _knobs(found: Findings) -> None:
    try:
        loaded = native.load_config(collab_variables(), {})
    except ValueError as error:
        found.problem("knobs", str(error))
        return
    changed = [f"{name}={value}" for name, value, source in loaded.values if source != "default"]
    found.fine("knobs", ", ".join(changed) if changed else "all at their defaults")


def _links(found: Findings) -> None:
    try:
        config = native.load_config(collab_variables(), {})
        choice = links.choose(config)
    except ValueError:
        return  # told with the knobs
    except RuntimeError as error:
        found.problem("links", str(error).removeprefix("collab: "))
        return
    found.fine("links", f"{choice.kind}: {choice.reason}")
    for name, value, _ in config.values:
        if name not in ("token_file", "tls_cert", "tls_key", "tls_ca") or not value:
            continue
        try:
            with Path(value).open("rb") as file:
                file.read(1)
        except OSError as error:
            found.problem(name, f"COLLAB_{name.upper()}={value} cannot be read: {error.strerror}")


def _ucx(found: Findings) -> None:
    problem = native.ucx_problem()
    if problem is None:
        found.fine("ucx", native.ucx_description())
    else:
        found.problem(
            "ucx",
            f"does not load: {problem}; pip install libucx-cu12 (without it links use tcp)",
        )


def _congestion_control(found: Findings) -> None:
    base = Path("/proc/sys/net/ipv4")
    try:
        now = (base / "tcp_congestion_control").read_text().strip()
        available = (base / "tcp_available_congestion_control").read_text().strip()
        allowed = (base / "tcp_allowed_congestion_control").read_text().strip()
    except OSError as error:
        found.hint("congestion control", f"unknown ({error})")
        return
    text = f"default {now}; available {available}; allowed to us {allowed}"
    if now in ("bbr", "bbr2", "bbr3"):
        found.fine("congestion control", text)
    else:
        found.hint(
            "congestion control",
            f"{text}. On long links with loss bbr is many times faster: sysctl net.ipv4.tcp_congestion_control=bbr",
        )


def _port(found: Findings) -> None:
    listen = os.environ.get("COLLAB_LISTEN", "0.0.0.0:0")
    try:
        host, port = addresses.split_host_port(listen)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind((host, port))
            server.listen(1)
            found.fine("listening", f"{listen} works" + (f" (got port {server.getsockname()[1]})" if port == 0 else ""))
    except (OSError, ValueError) as error:
        found.problem("listening", f"{listen} does not work: {error}; set COLLAB_LISTEN=HOST:PORT")


def _address(found: Findings) -> None:
    hostname = socket.gethostname()
    if addresses.is_loopback(hostname):
        found.hint(
            "hostname",
            f"{hostname} resolves to loopback: torchrun would tell other machines to dial themselves. Use an address "
            "in --rdzv-endpoint and --local-addr, or fix /etc/hosts",
        )
    coordinators = [part.strip() for part in os.environ.get("COLLAB_COORDINATOR", "").split(",") if part.strip()]
    try:
        address = addresses.dial_address(
            os.environ.get("COLLAB_ADVERTISE", ""), os.environ.get("COLLAB_LISTEN", "0.0.0.0:0"), coordinators
        )
    except (OSError, ValueError) as error:
        found.problem("address", str(error))
        return
    if addresses.is_loopback(address):
        found.hint(
            "address",
            f"others would dial {address}, which only this machine can; MASTER_ADDR or COLLAB_COORDINATOR names this "
            "machine or is not set here. COLLAB_ADVERTISE=ADDRESS says otherwise",
        )
    else:
        found.fine("address", f"others would dial {address}")


def _shared_memory(found: Findings) -> None:
    for what, path in (("shared memory", "/dev/shm"), ("TMPDIR", tempfile.gettempdir())):
        try:
            free = shutil.disk_usage(path).free
        except OSError as error:
            found.problem(what, f"{path}: {error}")
            continue
        text = f"{path} has {free / 2**30:.1f} GiB free (a model needs 8 bytes a parameter, 12 with nesterov)"
        if free < _MIN_SHARED_MEMORY:
            found.hint(what, text + "; in a container enlarge it with --shm-size" if path == "/dev/shm" else text)
        else:
            found.fine(what, text)


def _orphans(found: Findings, clean: bool) -> None:
    orphans = native.find_orphan_arenas()
    if not orphans:
        found.fine("orphans", "no shared memory left behind")
    for path, size, why in orphans:
        text = f"{path} ({size / 2**20:.0f} MiB): {why}"
        if not clean:
            found.hint("orphans", f"{text}; `collab doctor --clean` removes it")
            continue
        try:
            native.remove_orphan_arena(path)
            found.fine("orphans", f"removed {text}")
        except (OSError, RuntimeError) as error:
            found.problem("orphans", f"{path} cannot be removed: {error}")
