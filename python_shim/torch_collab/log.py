"""Logging for users: Python's `logging`, logger `torch_collab`, for the shim and for the core.

Records of the core and of the shim enter one queue of the core. A daemon thread passes them to `logging` in order, so
that no thread of the core waits for the interpreter. The queue exists from the loading of the core on. Before that,
once the interpreter has begun to end, and in a forked child there is none: the shim calls `logging` at once, and the
core writes to stderr.

Each record has `site` and `rank`. If no handler would get a record, a handler of ours writes it to stderr.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
from typing import Any, TextIO

from torch_collab.escape import escaped

LOGGER = logging.getLogger("torch_collab")
_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "off": logging.CRITICAL + 10,
}
_NO_END = 3600.0  # seconds that one call waits for a record
_HANDLERS_LIMIT = 5.0  # seconds that handlers have at the end
_ECHO = 1.0  # seconds within which a second warning of _TOLD_ON is an echo of the first
_TOLD_ON = (".same-data]", ".declined]")  # a coordinator logs these, and so do sites that it tells

_said: set[str] = set()
_level_chosen = False  # LOGGER's level is ours, not the user's
_site, _rank = "", None  # source of the shim's own lines while there is no queue
_core: Any = None  # the module whose queue our thread empties
_thread: threading.Thread | None = None


class Line(logging.Formatter):
    """`2026-11-24T21:52:34.123Z INFO collab[paris/0]: …`, as the core writes to stderr."""

    def format(self, record: logging.LogRecord) -> str:
        time_ms = int(record.created * 1000)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time_ms // 1000))
        site, rank = getattr(record, "site", ""), getattr(record, "rank", None)
        whose = f"[{site}{'' if rank is None else f'/{rank}'}]" if site or rank is not None else ""
        return f"{stamp}.{time_ms % 1000:03d}Z {record.levelname} collab{whose}: {record.getMessage()}"


class _Stderr(logging.StreamHandler[TextIO]):
    """Silent if another handler gets the record. So each line appears once, even if the root logger is set up after
    us."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(Line())

    def handle(self, record: logging.LogRecord) -> bool:
        self.stream = sys.stderr  # sys.stderr may have been replaced
        return False if _others_handle() else bool(super().handle(record))

    def handleError(self, record: logging.LogRecord) -> None:
        pass  # stderr is closed; there is nobody to tell


def _others_handle() -> bool:
    logger: logging.Logger | None = LOGGER
    while logger is not None:
        if any(not isinstance(handler, _Stderr) for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


def _ensure_handler() -> None:
    if not _others_handle() and not any(isinstance(handler, _Stderr) for handler in LOGGER.handlers):
        LOGGER.addHandler(_Stderr())


# ---- level and source --------------------------------------------------------------------------


def set_level(name: str, explicit: bool = True) -> None:
    """Sets the level of the logger and of the core. A level that the user gave the logger stays, unless `explicit`."""
    global _level_chosen
    _ensure_handler()
    if explicit or _level_chosen or LOGGER.level == logging.NOTSET:
        LOGGER.setLevel(_LEVELS.get(name, logging.INFO))
        _level_chosen = True
    _tell_core_the_level()


def set_source(site: str, rank: int | None) -> None:
    """Sets the source of all lines from here on."""
    global _site, _rank
    _site, _rank = site, rank
    if _core is not None:
        _core.set_log_source(site, rank)


def _tell_core_the_level() -> None:
    """The core need not make records that no handler would get."""
    if _core is not None:
        wanted = LOGGER.getEffectiveLevel()
        _core.set_log_level(next((name for name, level in _LEVELS.items() if level >= wanted), "off"))


# ---- the queue ---------------------------------------------------------------------------------


def start(core: Any) -> None:
    """From here on one thread passes on the records of the core and of the shim. Does nothing if that thread runs."""
    global _core, _thread
    if _core is not None:
        return
    set_level("info", explicit=False)
    _core = core
    core.set_log_source(_site, _rank)
    _tell_core_the_level()
    core.open_log_queue()
    _thread = threading.Thread(target=_hand_over, args=(core,), name="collab-log", daemon=True)
    _thread.start()
    atexit.register(stop)


def stop() -> None:
    """Passes on the records that wait; from then on the core writes to stderr."""
    global _core
    core, _core = _core, None
    if core is not None and _thread is not None:
        atexit.unregister(stop)
        core.close_log_queue(_HANDLERS_LIMIT)
        _thread.join(_HANDLERS_LIMIT)  # else the interpreter's end finds it in C++ code and ends the process


def flush(timeout: float = _HANDLERS_LIMIT) -> bool:
    """True once handlers have everything that was logged so far."""
    return _core is None or bool(_core.flush_log(timeout))


def _forget_the_thread() -> None:
    global _core, _thread
    _core = _thread = None


os.register_at_fork(after_in_child=_forget_the_thread)


def _hand_over(core: Any) -> None:
    level = LOGGER.getEffectiveLevel()
    before: Any = None
    while True:
        row = core.drain_log(_NO_END)
        if row is not None:
            if _is_echo(row, before):
                before = None  # a third one is news again
            else:
                _emit(*row)
                before = row
        elif not core.log_queue_open():
            return
        if LOGGER.getEffectiveLevel() != level:  # the user changed the level
            level = LOGGER.getEffectiveLevel()
            _tell_core_the_level()


def _is_echo(row: Any, before: Any) -> bool:
    """A coordinator in this process has warned, and the site here repeats what that coordinator told it."""
    if before is None or not row[-1].endswith(_TOLD_ON):
        return False
    return (row[0], *row[2:]) == (before[0], *before[2:]) and row[1] - before[1] < _ECHO


def _emit(level: str, created: float, site: str, rank: int | None, text: str) -> None:
    if not LOGGER.isEnabledFor(_LEVELS[level]):
        return
    record = _record(level, created, site, rank, text)
    try:
        LOGGER.handle(record)
    except Exception as error:  # raised by a user's filter
        told = f"a filter or handler of {LOGGER.name} raised {error!r} for: {text} [log.handler]"
        sys.stderr.write(Line().format(_record("error", created, site, rank, told)) + "\n")


def _record(level: str, created: float, site: str, rank: int | None, text: str) -> logging.LogRecord:
    extra = {"site": site, "rank": rank}
    record = LOGGER.makeRecord(LOGGER.name, _LEVELS[level], "(collab)", 0, text, (), None, None, extra)
    record.created, record.msecs = created, created * 1000 % 1000
    return record


def _say(level: str, message: str) -> None:
    core = _core
    if core is not None:
        core.log(level, message)
        return
    _ensure_handler()
    if LOGGER.level == logging.NOTSET:
        LOGGER.setLevel(logging.INFO)
    _emit(level, time.time(), _site, _rank, " | ".join(map(escaped, message.splitlines())))


# ---- what the shim says ------------------------------------------------------------------------


def debug(message: str) -> None:
    _say("debug", message)


def info(message: str) -> None:
    _say("info", message)


def warning(message: str) -> None:
    _say("warning", message)


def warn_once(message: str) -> None:
    """Logs a warning that would come at every step only the first time."""
    if message not in _said:
        _said.add(message)
        _say("warning", message)


def error(message: str) -> None:
    _say("error", message)
