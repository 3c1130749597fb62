"""All that collab logs goes through Python's `logging`, and is never lost without a count."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

LINE = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z "
# `core` says things as the core's own threads do.
BEGIN = """
import logging, os, sys, threading
from torch_collab import log, native
core = native._module()
"""


def run(script: str, *flags: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, *flags, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == status, done.stderr
    return done


def test_without_a_handler_lines_go_to_stderr_before_the_exit() -> None:
    done = run(BEGIN + "core.log('info', 'of the core')\nlog.set_source('paris', 3)\nlog.warning('of the shim')\n")
    first, second = done.stderr.splitlines()
    assert re.fullmatch(LINE + "INFO collab: of the core", first)
    assert re.fullmatch(LINE + r"WARNING collab\[paris/3\]: of the shim", second)


def test_a_users_handler_gets_records() -> None:
    done = run(
        BEGIN
        + """
class Mine(logging.Handler):
    def emit(self, record):
        print(record.levelname, record.name, record.site, record.rank, record.getMessage(), sep="|")

logging.getLogger("torch_collab").addHandler(Mine())
log.set_level("debug")
log.set_source("paris", 0)
for level in ("debug", "info", "warning", "error"):
    core.log(level, f"100 % {level}")
    log.info(f"after {level}")
"""
    )
    said = [f"{level.upper()}|torch_collab|paris|0|100 % {level}" for level in ("debug", "info", "warning", "error")]
    after = [f"INFO|torch_collab|paris|0|after {level}" for level in ("debug", "info", "warning", "error")]
    assert done.stdout.splitlines() == [line for pair in zip(said, after, strict=True) for line in pair], "in order"
    assert done.stderr == ""


def test_a_filter_drops_records_and_a_failing_one_is_reported() -> None:
    done = run(
        BEGIN
        + """
logger = logging.getLogger("torch_collab")
logger.addFilter(lambda record: "secret" not in record.getMessage())
core.log("info", "a secret")
core.log("info", "no matter")
log.flush()
logger.addFilter(lambda record: 1 / 0)
core.log("info", "the third")
"""
    )
    first, second = done.stderr.splitlines()
    assert first.endswith("INFO collab: no matter")
    assert re.fullmatch(LINE + r"ERROR collab: .*ZeroDivisionError.* for: the third \[log\.handler\]", second)


def test_the_level_is_the_users_until_the_knob_is_given() -> None:
    done = run(
        """
import logging
logging.getLogger("torch_collab").setLevel(logging.WARNING)
"""
        + BEGIN
        + """
core.log("info", "hidden")
log.set_level("info", False)
core.log("info", "still hidden")
log.set_level("debug", True)
core.log("debug", "shown")
log.flush()
logging.getLogger("torch_collab").setLevel(logging.ERROR)
core.log("error", "an error")
log.flush()
core.log("warning", "a warning")
"""
    )
    assert [line.split(": ")[1] for line in done.stderr.splitlines()] == ["shown", "an error"]


def test_no_line_comes_twice() -> None:
    for before, after in (("", "logging.basicConfig(level=logging.INFO)"), ("logging.basicConfig()", "")):
        done = run(
            f"import logging\n{before}\n" + BEGIN + f"log.info('first')\nlog.flush()\n{after}\nlog.info('once')\n"
        )
        assert done.stderr.count("once") == 1 and "INFO:torch_collab:once" in done.stderr


def test_a_forked_child_writes_to_stderr() -> None:
    done = run(
        BEGIN
        + """
core.log("info", "before")
child = os.fork()
if child == 0:
    core.log("info", "of the child's core")
    log.info("of the child's shim")
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
core.log("info", "after")
"""
    )
    for text in ("before", "of the child's core", "of the child's shim", "after"):
        assert done.stderr.count(text) == 1, done.stderr


def test_many_lines_at_once_are_logged_or_counted() -> None:
    done = run(
        BEGIN
        + """
def say(thread):
    for i in range(2500):
        core.log("info", f"{thread} {i}")

threads = [threading.Thread(target=say, args=(thread,)) for thread in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""
    )
    counted = sum(int(n) for n in re.findall(r"(\d+) lines of the log were left out.*\[log\.overflow\]", done.stderr))
    said = [tuple(map(int, pair)) for pair in re.findall(r"INFO collab: (\d) (\d+)\n", done.stderr)]
    assert len(said) + counted == 10_000
    for thread in range(4):
        mine = [i for of, i in said if of == thread]
        assert mine == sorted(mine)


def test_the_last_words_before_an_abort() -> None:
    say = "\nsys.setswitchinterval(60)\ncore.log('error', 'the last words')\nos.abort()\n"
    done = run(BEGIN + say, "-X", "faulthandler", status=-signal.SIGABRT)
    words, trace = done.stderr.find("ERROR collab: the last words"), done.stderr.find("Fatal Python error: Aborted")
    assert 0 <= words < trace, done.stderr


def test_the_last_words_before_an_exception_and_a_termination() -> None:
    done = run(BEGIN + "core.log('error', 'the last words')\nraise ValueError('no')\n", status=1)
    assert "ERROR collab: the last words" in done.stderr
    done = run(BEGIN + "core.log('error', 'the last words')\nnative.carry_out_termination()\n", status=-signal.SIGTERM)
    assert "ERROR collab: the last words" in done.stderr


def test_a_handler_that_hangs_does_not_hold_the_core() -> None:
    done = run(
        BEGIN
        + """
held = threading.Event()
class Hangs(logging.Handler):
    def createLock(self):
        self.lock = None  # else logging.shutdown() waits for it

    def emit(self, record):
        held.set()
        threading.Event().wait()

log._HANDLERS_LIMIT = 0.1
logging.getLogger("torch_collab").addHandler(Hangs())
core.log("info", "first")
held.wait()
for i in range(5000):
    core.log("info", f"line {i}")
"""
    )
    assert "line 0\n" in done.stderr and "904 lines of the log were left out" in done.stderr, done.stderr[-300:]


def test_import_torch_starts_nothing() -> None:
    run("import threading, torch, torch_collab, sys\nsys.exit(threading.active_count() - 1)\n")


def test_a_warning_of_coordinator_and_site_in_one_process_comes_once() -> None:
    said = "".join(
        f"core.log({level!r}, {text!r})\n"
        for level, text in (
            ("warning", "alike [round.same-data]"),
            ("warning", "alike [round.same-data]"),
            ("warning", "news"),
            ("warning", "news"),
            ("warning", "alike [round.same-data]"),
            ("warning", "alike [round.same-data]"),
            ("warning", "alike [round.same-data]"),
        )
    )
    done = run(BEGIN + said)
    told = [line.partition("collab: ")[2].split()[0] for line in done.stderr.splitlines()]
    assert told == ["alike", "news", "news", "alike", "alike"], done.stderr
