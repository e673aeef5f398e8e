"""Start ``srmp-spark`` for a test without paying for its imports each time.

A run of all tests starts ``python -m srmp_spark.cli`` some thousand times, and a fresh interpreter
takes a quarter of a second of CPU to import a queue manager. The *zygote* is one process for each
process of tests. It has imported the commands and the queue manager, and does nothing else. A
program is a fork of the zygote: a process of its own, with its own arguments, environment,
directory and descriptors, which runs :func:`srmp_spark.cli.main` and can be killed like any other.

:func:`install` replaces :class:`subprocess.Popen`. The class forks a program only if the fork is
the same program as a fresh interpreter would be; everything else it starts as before. So tests need
no change. A program under ``strace``, with descriptors of its own, or with other variables for the
interpreter is a fresh interpreter, and so is every child of a queue manager.

``SRMP_SPARK_TESTS_FRESH=1`` in the environment of the tests starts fresh interpreters alone.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

PROGRAM = "srmp_spark.cli"
PRELOADED = (
    PROGRAM,
    "srmp_spark.queue_manager.serve",
    "srmp_spark.commands.capture",
    "srmp_spark.commands.common",
    "srmp_spark.commands.doctor",
    "srmp_spark.commands.messages",
    "srmp_spark.commands.queues",
    "srmp_spark.commands.serve",
    "srmp_spark.commands.streams",
    "srmp_spark.commands.subscribe",
)
"""Modules that the zygote imports. None of them starts a thread."""
OF_THE_INTERPRETER = ("PYTHON", "LD_", "MALLOC_", "GLIBC_", "LC_", "LANG")
"""Beginnings of the names of variables that the interpreter or libc reads at its start.

A program with other values of these variables is a fresh interpreter.
"""
FRESH = "SRMP_SPARK_TESTS_FRESH"
REQUEST_MAX = 1 << 20
"""Most bytes of one request: arguments and environment. A longer one is a socket error."""
PID_BYTES = 8


class ForkingPopen(subprocess.Popen):  # type: ignore[type-arg]  # what it replaces takes any text
    """Starts a program by a fork of the zygote, if the result is the same.

    Any other program is started as :class:`subprocess.Popen` starts it.
    """

    _status: int | None = None
    """Descriptor from which a forked program's process id and exit code are read.

    ``None`` means that the program was not forked.
    """

    def _execute_child(self, args: Any, executable: Any, *rest: Any) -> None:  # noqa: ANN401
        (preexec, _close, passed, cwd, env, _info, _flags, shell, *descriptors) = rest
        pipes, more = descriptors[:6], descriptors[6:]
        # restore_signals, gid, gids, uid, umask, start_new_session and, since 3.11, process_group
        usual = (True, None, None, None, -1, False, -1)
        if (
            preexec is not None
            or passed
            or shell
            or executable is not None
            or tuple(more) != usual[: len(more)]
            or not _is_ours(args, env)
        ):
            super()._execute_child(args, executable, *rest)  # type: ignore[misc]
            return
        child_in, _, _, child_out, _, child_err = pipes
        self._status = _zygote().fork(
            args[3:],
            dict(os.environ if env is None else env),
            str(Path.cwd()) if cwd is None else os.fspath(cwd),
            tuple(
                own if each == -1 else each
                for own, each in enumerate((child_in, child_out, child_err))
            ),
        )
        self.pid = int.from_bytes(os.read(self._status, PID_BYTES), "little")
        if not self.pid:
            raise ChildProcessError("the zygote of the tests could not fork")
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _internal_poll(self, *given: Any, **named: Any) -> int | None:  # noqa: ANN401
        if self._status is None:
            return super()._internal_poll(*given, **named)  # type: ignore[misc,no-any-return]
        if self.returncode is None:
            self._take_status(0.0)
        return self.returncode

    def _wait(self, timeout: float | None) -> int | None:
        if self._status is None:
            return super()._wait(timeout)  # type: ignore[misc,no-any-return]
        while self.returncode is None:
            self._take_status(timeout)
            if self.returncode is None and timeout is not None:
                raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode

    def _take_status(self, timeout: float | None) -> None:
        with self._waitpid_lock:  # type: ignore[attr-defined]
            status = self._status
            if self.returncode is not None or status is None:
                return
            if select.select([status], [], [], timeout)[0]:
                code = os.read(status, PID_BYTES)
                os.close(status)
                self.returncode = int.from_bytes(code, "little", signed=True)


def _is_ours(args: object, env: Mapping[str, str] | None) -> bool:
    """Return whether a fork of the zygote is the program that ``args`` and ``env`` describe."""
    if not isinstance(args, list) or args[:3] != [sys.executable, "-m", PROGRAM]:
        return False
    given = os.environ if env is None else env
    names = {name for name in {*given, *os.environ} if name.startswith(OF_THE_INTERPRETER)}
    return all(given.get(name) == os.environ.get(name) for name in names)


class _Zygote:
    """Starts the zygote of this process, and sends it requests."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = _FRESH_POPEN(
                [sys.executable, "-m", "tests.kit.zygote", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self._control = ours
        self._lock = threading.Lock()

    def fork(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str, streams: tuple[int, ...]
    ) -> int:
        """Let the zygote fork a program with these arguments, and return its status descriptor.

        ``streams`` are the descriptors of its standard input, output and error.
        """
        status, theirs = os.pipe()
        request = json.dumps({"argv": [*map(str, argv)], "env": env, "cwd": cwd}).encode()
        try:
            with self._lock:
                socket.send_fds(self._control, [request], [*streams, theirs])
        finally:
            os.close(theirs)
        return status


_FRESH_POPEN = subprocess.Popen
_the_zygote: list[_Zygote] = []
_starting = threading.Lock()


def _zygote() -> _Zygote:
    with _starting:
        if not _the_zygote:
            _the_zygote.append(_Zygote())
        return _the_zygote[0]


def install() -> None:
    """Replace :class:`subprocess.Popen` in this process by :class:`ForkingPopen`.

    With ``SRMP_SPARK_TESTS_FRESH`` in the environment nothing is replaced.
    """
    if not os.environ.get(FRESH):
        subprocess.Popen = ForkingPopen  # type: ignore[misc]


# --- the zygote itself ----------------------------------------------------------------------------


def _requests(control: socket.socket) -> dict[str, Any]:
    """Fork a child for each request on the socket ``control``; return the request there.

    Only the child returns from this function. The zygote itself exits when the tests end.
    """
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    statuses: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([control.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _reap(statuses)
        if control.fileno() not in ready:
            continue
        request, descriptors, _, _ = socket.recv_fds(control, REQUEST_MAX, 4)
        if not request:
            sys.exit(0)
        *streams, status = descriptors
        pid = _try_fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            os.closerange(
                3, max(*descriptors, *statuses.values(), woken, wake, control.fileno()) + 1
            )
            control.detach()
            return dict(json.loads(request))
        os.write(status, max(pid, 0).to_bytes(PID_BYTES, "little"))
        if pid > 0:
            statuses[pid] = status
        else:
            os.close(status)
        for stream in streams:
            os.close(stream)


def _try_fork() -> int:
    try:
        return os.fork()
    except OSError:
        return -1


def _reap(statuses: dict[int, int]) -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, code = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            status = statuses.pop(pid)
            # The test may have forgotten the program.
            with contextlib.suppress(BrokenPipeError):
                exit_code = os.waitstatus_to_exitcode(code)
                os.write(status, exit_code.to_bytes(PID_BYTES, "little", signed=True))
            os.close(status)


def main(control: int) -> NoReturn:
    """Run the zygote, or after a fork the program. ``control`` is the descriptor of its socket.

    The function ends with the process.
    """
    for module in PRELOADED:
        importlib.import_module(module)
    if threading.active_count() != 1:
        raise RuntimeError(f"a module started a thread: {threading.enumerate()}")
    gc.collect()
    gc.freeze()
    request = _requests(socket.socket(fileno=control))
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    os.chdir(request["cwd"])
    program = sys.modules[PROGRAM]
    sys.argv = [str(program.__file__), *request["argv"]]
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    program.main()
    raise AssertionError("the program ends by itself")


if __name__ == "__main__":
    main(int(sys.argv[1]))
