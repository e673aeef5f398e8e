"""Send the log of a process to its standard error, in the form that ``serve`` was asked for."""

from __future__ import annotations

import logging
import os
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, get_args

from srmp_spark.logs.json_lines import MAIN, JsonFormatter
from srmp_spark.logs.text_lines import OneLineFormatter

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]
LEVELS: tuple[LogLevel, ...] = get_args(LogLevel)
FORMATS: tuple[LogFormat, ...] = get_args(LogFormat)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogForm:
    """What of the log a process writes, and how."""

    level: LogLevel = "info"
    """Least level of lines that are written. Other libraries write none below info."""
    format: LogFormat = "text"


class _StderrLog(logging.Handler):
    """Writes the log of this process to its standard error, each line in one write.

    There is no buffer: lines of several processes do not mix, and a line that cannot be written is
    lost alone. It must not stop the service, or change its exit code.
    """

    def __init__(self, form: LogForm, process: str) -> None:
        super().__init__()
        self.form = form
        as_json = JsonFormatter(process, _main_module())
        self.setFormatter(as_json if form.format == "json" else OneLineFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record. If the disk is full or the reader is gone, the line is lost."""
        try:
            text = self.format(record) + "\n"
        except Exception:
            self.handleError(record)  # It prints the fault of the log call.
            return
        line = text.encode(sys.stderr.encoding, "backslashreplace")
        with suppress(OSError):
            while line:
                line = line[os.write(sys.stderr.fileno(), line) :]


def log_to_stderr(form: LogForm, process: str) -> None:
    """Send the log of this process to its standard error.

    ``process`` is the name of the process in lines of JSON. In this form warnings and uncaught
    errors of Python, too, are lines of JSON.
    """
    level: int = getattr(logging, form.level.upper())
    logging.basicConfig(level=max(level, logging.INFO), handlers=[_StderrLog(form, process)])
    for name in ("srmp_spark", MAIN):
        logging.getLogger(name).setLevel(level)
    if form.format == "json":
        _log_what_python_prints()


def _main_module() -> str:
    """Return the name of the module that this process runs."""
    spec = getattr(sys.modules[MAIN], "__spec__", None)
    return MAIN if spec is None else str(spec.name)


def form_of_this_process() -> LogForm:
    """Return the form in which this process logs. Its child processes log in the same one."""
    found = (each.form for each in logging.getLogger().handlers if isinstance(each, _StderrLog))
    return next(found, LogForm())


def say_last(text: str, code: int) -> None:
    """Write the reason why this process ends to standard error, and its exit code into the log.

    ``text`` is the error with its hint. It is one line, of JSON if the log has this form.
    """
    if form_of_this_process().format == "json":
        log.critical('process.failed code=%d reason="%s"', code, text)
    else:
        print(f"srmp-spark: {text}", file=sys.stderr, flush=True)


def _log_what_python_prints() -> None:
    """Log the warnings and the uncaught errors that Python would print as text."""
    logging.captureWarnings(capture=True)

    def uncaught(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        log.critical("python.uncaught", exc_info=(kind, error, trace))

    def in_thread(found: threading.ExceptHookArgs) -> None:
        if found.exc_value is not None:
            error = (found.exc_type, found.exc_value, found.exc_traceback)
            log.error("python.thread_failed", exc_info=error)

    def ignored(found: sys.UnraisableHookArgs) -> None:
        if found.exc_value is not None:
            error = (found.exc_type, found.exc_value, found.exc_traceback)
            log.error("python.ignored", exc_info=error)

    sys.excepthook, threading.excepthook, sys.unraisablehook = uncaught, in_thread, ignored
