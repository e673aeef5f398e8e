"""Start a child process, and end it with its parent.

    python -m MODULE FD < SETTINGS

``FD`` is the descriptor of the command socket. ``SETTINGS`` is a :class:`.packets.Start` as JSON
(:mod:`.encoding`). :class:`.link.ChildLink` provides both. The settings are sent by standard input
because they hold secrets, and every user of a host can see the arguments of every process. A child
ends with its parent: the kernel kills it (PR_SET_PDEATHSIG), also when the parent got kill -9, and
the child also ends when its command socket is closed.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import NoReturn, TypeVar

from srmp_spark.logs.form import log_to_stderr
from srmp_spark.queue_manager.child.encoding import decode
from srmp_spark.queue_manager.child.packets import Start
from srmp_spark.queue_manager.child.without_pandas import leave_out_pandas

_PR_SET_PDEATHSIG = 1

_Settings = TypeVar("_Settings")


def end_with_parent(parent: int) -> None:
    """Ask the kernel to send SIGKILL to this process when its parent ends, even by kill -9.

    ``parent`` is the parent's process id. This process ends at once if the parent has already
    ended. Raises :class:`OSError` if the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:  # The parent ended before the request.
        os._exit(0)


def run_child(
    kind: type[_Settings], serve: Callable[[socket.socket, Start[_Settings]], object]
) -> NoReturn:
    """Run a child process until ``serve`` returns, then exit with code 0.

    The settings, of the type ``kind``, are read from standard input. ``serve`` gets the command
    socket and the settings, and must return when the parent has closed its end of the socket.
    SIGTERM and SIGINT are ignored, pandas is left out (:mod:`.without_pandas`), and the log goes to
    standard error.
    """
    start = decode(sys.stdin.read(), Start[kind])  # type: ignore[valid-type]  # a type at run time
    end_with_parent(start.parent)
    leave_out_pandas()
    # A terminal or an init system signals the whole process group. The parent drains first, and
    # this process ends with it.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    log_to_stderr(start.log, start.noun)
    serve(socket.socket(fileno=int(sys.argv[1])), start)
    logging.shutdown()
    os._exit(0)  # Threads that still write to callers, or look up names, must not delay the end.
