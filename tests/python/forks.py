"""Starts Python programs as forks of a process that has imported torch: the imports are most of what a short one costs.

What is forked is a process like any other: a session, an environment and a `__main__` of its own, and an end by the
interpreter's own way out. What the interpreter, torch or the allocator read while they start is that of the server, so
a program that sets such a variable is started afresh, but for PYTHONPATH: what is imported already stays. There are two
servers, so that ranks differ in the order of sets.

A torchrun has a server of its own, which it forks before it has threads. That forks its workers. They are the agent's
grandchildren, which getppid() tells, and all of one torchrun have one hash seed; else they are as without.
"""

from __future__ import annotations

import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import CodeType
from typing import IO, Any

SERVER = "import sys; sys.path[0] = sys.argv[2]; import forks; exec(forks.serve())"
# Of the variables that a test may set, those that are read once, at a start.
READ_AT_START = ("PYTHON", "TORCH_", "OMP_", "MKL_", "KMP_", "MALLOC_", "LD_", "CUDA_")
READ_LATE = ("PYTHONPATH", "TORCH_NCCL_ASYNC_ERROR_HANDLING")  # which torchrun sets
LONGEST_REQUEST = 1 << 18
ASKED_TO_END = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


def serve() -> CodeType:
    """Returns in each fork, with the script that it is to run."""
    import torch
    import torch._dynamo  # what making an optimizer imports
    import torch.distributed
    import torch.distributed.launcher.api  # torchrun
    import torch.nn.parallel  # noqa: F401

    control = socket.socket(fileno=int(sys.argv[1]))
    assert threading.active_count() == 1, "a fork has none of its parent's threads"
    return serve_forks(control)


def serve_forks(control: socket.socket) -> CodeType:
    """Returns in each fork, as `serve`."""
    ended: dict[int, int] = {}  # a signal may have ended the wait for an answer: it is asked for again
    while True:
        message, files, _, _ = socket.recv_fds(control, LONGEST_REQUEST, 2)
        if not message:
            os._exit(0)  # the parent has ended
        request = json.loads(message)
        if "reap" in request:
            pid = request["reap"]
            if pid not in ended:
                ended[pid] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            answer = ended[pid]
        else:
            # The server may ignore these: none is to be lost before the fork takes them as any program does.
            signal.pthread_sigmask(signal.SIG_BLOCK, ASKED_TO_END)
            has_session, tell = os.pipe()
            if (answer := os.fork()) == 0:
                os.setsid()
                os.close(tell)
                os.close(has_session)
                control.close()
                for number in ASKED_TO_END:
                    signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, ASKED_TO_END)
                return become(request, *files)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ASKED_TO_END)
            ended.pop(answer, None)  # of an earlier process
            for file in (tell, *files):
                os.close(file)
            os.read(has_session, 1)
            os.close(has_session)
        control.send(json.dumps([request["number"], answer]).encode())


def become(request: dict[str, Any], output: int, errors: int) -> CodeType:
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()  # the server's would be everybody's
    os.dup2(output, 1)
    os.dup2(errors, 2)
    os.close(output)
    os.close(errors)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    first, *rest = request["arguments"]
    sys.orig_argv[:] = [sys.executable, first, *rest]
    if first == "-u":
        first, *rest = rest
        sys.stdout = sys.__stdout__ = unbuffered(1)  # type: ignore[misc]
        sys.stderr = sys.__stderr__ = unbuffered(2)  # type: ignore[misc]
    added = request["environment"].get("PYTHONPATH", "").split(os.pathsep)
    sys.path[1:1] = [folder for folder in added if folder and folder not in sys.path]
    if (first, *rest[:1]) == ("-m", "torch.distributed.run") and (worker := serve_torchrun()):
        return worker
    main = vars(sys.modules["__main__"])
    del main["forks"], main["sys"], sys.modules["forks"]
    if first == "-m":
        sys.argv[:], sys.path[0] = rest, os.getcwd()
        run = f"import runpy; runpy.run_module({rest[0]!r}, run_name='__main__', alter_sys=True)"
        return compile(run, "<fork>", "exec")
    sys.argv[:], sys.path[0] = [first, *rest], str(Path(first).parent)
    main["__file__"] = first
    return compile(Path(first).read_bytes(), first, "exec", dont_inherit=True)


def unbuffered(descriptor: int) -> io.TextIOWrapper:
    return io.TextIOWrapper(os.fdopen(descriptor, "wb", 0, closefd=False), write_through=True)


def serve_torchrun() -> CodeType | None:
    """In the agent: its workers will be forks. In each of them, what it is to run."""
    from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        ours.close()
        for number in ASKED_TO_END:  # all processes of a site may be asked at once
            signal.signal(number, signal.SIG_IGN)
        return serve_forks(theirs)
    theirs.close()
    server, begun_with, afresh = Server(ours), dict(os.environ), subprocess_handler.Popen

    def start_worker(args: Sequence[str], env: dict[str, str], **others: Any) -> Fork | subprocess.Popen[bytes]:
        python, *arguments = args
        redirected = any(others[stream] is not None for stream in ("stdout", "stderr"))
        if python != sys.executable or redirected or is_read_at_start(changes(begun_with, env)):
            whole: subprocess.Popen[bytes] = afresh(args=args, env=env, **others)
            return whole
        return Fork(server, arguments, env, [1, 2], None)

    subprocess_handler.Popen = start_worker  # type: ignore[misc]
    return None


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> set[str]:
    return {name for name in {*before, *after} if before.get(name) != after.get(name)}


def is_read_at_start(names: set[str]) -> bool:
    return any(name.startswith(READ_AT_START) for name in names.difference(READ_LATE))


def bare_environment() -> dict[str, str]:
    """This process's environment, less what it says to collab, and less PYTHONUNBUFFERED.

    Under that, `print` writes a line and its end apart, and what another process of the test says falls between.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("COLLAB_") and name != "PYTHONUNBUFFERED"
    }


def usual_environment() -> dict[str, str]:
    return {**bare_environment(), "OMP_NUM_THREADS": "1"}


class Server:
    def __init__(self, control: socket.socket, process: subprocess.Popen[bytes] | None = None) -> None:
        self._lock = threading.Lock()
        self._control = control
        self._process = process  # kept as long as this
        self._asked = 0

    def ask(self, request: dict[str, Any], files: Sequence[int] = ()) -> int:
        with self._lock:
            self._asked += 1
            request["number"] = self._asked
            socket.send_fds(self._control, [json.dumps(request).encode()], files)
            while True:
                said = self._control.recv(64)
                assert said, "the server of forks has ended"
                number, answer = json.loads(said)
                if number == self._asked:  # a signal may have ended the wait for an earlier one
                    return int(answer)


def start_server(number: int) -> Server:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {**usual_environment(), "PYTHONHASHSEED": str(number)}
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(theirs.fileno()), str(Path(__file__).parent)],
            env=environment, stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True,
        )  # fmt: skip
    return Server(ours, process)


_servers: dict[int, Server] = {}


class Fork:
    """Has of subprocess.Popen what the tests use."""

    def __init__(
        self,
        server: Server,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        files: Sequence[int],
        folder: Path | None,
    ) -> None:
        self._server = server
        self.args = list(arguments)
        self.returncode: int | None = None
        request = {"arguments": self.args, "environment": dict(environment), "folder": str(folder or Path.cwd())}
        self.pid = server.ask(request, files)
        self._ended = os.pidfd_open(self.pid)

    def poll(self) -> int | None:
        return self._wait(0)

    def wait(self, timeout: float | None = None) -> int:
        status = self._wait(timeout)
        if status is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _wait(self, seconds: float | None) -> int | None:
        if self.returncode is None:
            poll = select.poll()
            poll.register(self._ended, select.POLLIN)
            if poll.poll(None if seconds is None else seconds * 1000):
                self.returncode = self._server.ask({"reap": self.pid})
                os.close(self._ended)
        return self.returncode


def start(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    output: IO[str],
    errors: IO[str],
    number: int = 0,
    folder: Path | None = None,
) -> Fork | subprocess.Popen[bytes]:
    """Python with these arguments, which begin with a script or with `-m`; `number` chooses the server."""
    if is_read_at_start(changes(usual_environment(), environment)):
        return subprocess.Popen(
            [sys.executable, *arguments],
            env=environment,
            stdout=output,
            stderr=errors,
            start_new_session=True,
            cwd=folder,
        )
    if number % 2 not in _servers:
        _servers[number % 2] = start_server(number % 2)
    return Fork(_servers[number % 2], arguments, environment, [output.fileno(), errors.fileno()], folder)
