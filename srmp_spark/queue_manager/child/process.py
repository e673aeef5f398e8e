"""How a child starts and ends.

    python -m MODULE FD < SETTINGS

``FD`` is its command socket, ``SETTINGS`` a JSON object: ``{"parent": PID, …}`` (:class:`.link.ChildLink` gives both). The
settings come by standard input because they hold secrets, and every user of a host sees the arguments of every process. A
child ends with its parent: PR_SET_PDEATHSIG tells the kernel, also at kill -9, and the end of the command socket tells it.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

from srmp_spark.queue_manager.child.log_lines import log_to_stderr
from srmp_spark.queue_manager.child.without_pandas import leave_out_pandas

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int) -> None:
    """Ask the kernel for SIGKILL when the parent ends, whatever ends it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:  # it ended before we asked
        os._exit(0)


def run_child(serve: Callable[[socket.socket, dict[str, Any]], object]) -> NoReturn:
    """A child's entry: ``serve`` gets the command socket and the settings, and returns when the parent has closed its end."""
    settings = json.load(sys.stdin)
    end_with_parent(settings["parent"])
    leave_out_pandas()
    # A terminal or an init system signals the whole group: the parent drains first, and its end is ours.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    log_to_stderr()
    # As the main process: all three write to one standard error
    logging.Formatter.converter = time.gmtime
    serve(socket.socket(fileno=int(sys.argv[1])), settings)
    logging.shutdown()
    os._exit(0)  # threads that still write to callers, or look up names, must not hold us up
