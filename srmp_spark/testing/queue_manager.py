"""Run a real ``srmp-spark serve`` that tests start, kill, restart and stop.

The queue manager is a child process::

    queues = ["private$/orders", "private$/payments:transactional"]
    with RunningQueueManager(directory, queues=queues) as running:
        ...  # running.api, running.listening; running.kill9(); running.restart()

Ports are picked before the first start and kept over restarts, so that senders find the queue
manager again.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from srmp_spark.interface import ReadyLine
from srmp_spark.testing.foreign.ports import KeptPort

if TYPE_CHECKING:
    from srmp_spark.testing.queue_handle import QueueHandle

READY_SECONDS = 30.0
"""Longest time from the start of the process to its ready line, in seconds.

The limit allows for a busy machine. At the limit the process is killed and
:class:`ServeFailedError` is raised.
"""
STOP_SECONDS = 60.0
"""Longest time from SIGTERM to the end of the process, in seconds.

At the limit the process is killed, and :class:`subprocess.TimeoutExpired` is raised.
"""


_PORTS = frozenset({"listen_https", "listen_wsrm", "rpc", "rpc_endpoint_mapper"})
"""Flags of ``serve`` whose value is an address to listen on."""


class ServeFailedError(RuntimeError):
    """Raised when ``serve`` ends before it is ready, or is not ready in time.

    ``code`` is the exit code of the process. ``stderr`` is the text of the log file, also of
    earlier starts. The message of the error has the last 3000 characters of the text.
    """

    def __init__(self, code: int | None, stderr: str) -> None:
        super().__init__(f"serve ended with {code}:\n{stderr[-3000:]}")
        self.code = code
        self.stderr = stderr


class RunningQueueManager:
    """Runs a queue manager as a child process, on this machine and with this Python.

    As a context manager it calls :meth:`start` at its beginning and :meth:`stop` at its end. The
    data directory stays. The addresses and identities (``endpoint`` to ``pid``) are known only
    after :meth:`start`; before it, they raise :class:`AttributeError`.
    """

    def __init__(
        self,
        data_dir: Path | str,
        *,
        queues: Sequence[str] = (),
        allow_url: Sequence[str] = (),
        listen: str = "127.0.0.1:0",
        api_listen: str = "127.0.0.1:0",
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        **options: object,
    ) -> None:
        """Prepare the process; :meth:`start` runs it.

        ``queues``, ``allow_url``, ``listen`` and ``api_listen`` are the flags ``--queue``,
        ``--allow-url``, ``--listen`` and ``--api`` of ``serve``. ``options`` are its other flags in
        snake case; a list gives a flag several times. In an address to listen on, port 0 means a
        free port that this object keeps. ``prefix`` goes before the interpreter in the command
        line, for example ``["taskset", "-c", "0"]``. The child process gets the environment
        variables of this process without those named ``SRMP_SPARK_…``, and then those of
        ``environment``.
        """
        self.data_dir = Path(data_dir)
        self.log = self.data_dir.with_name(self.data_dir.name + ".log")
        """File with the standard error of the process, over all restarts.

        The file has the name of the data directory and the suffix ``.log``, next to this directory.
        """
        self._queues = tuple(queues)
        self._allow_url = tuple(allow_url)
        self._ports: list[KeptPort] = []
        self._listen = self._with_port(listen)
        self._api_listen = self._with_port(api_listen)
        self._prefix = tuple(prefix)
        self._environment = dict(environment or {})
        self._options = {
            key: self._with_port(str(value)) if key in _PORTS else value
            for key, value in options.items()
        }
        self.process: subprocess.Popen[str] | None = None
        self.ready: ReadyLine
        """The line that ``serve`` printed when it was last ready. It is set by :meth:`start`."""

    def _with_port(self, address: str) -> str:
        host, _, port = address.rpartition(":")
        if port != "0":
            return address
        self._ports.append(KeptPort(host.rpartition("/")[2].strip("[]")))
        return f"{host}:{self._ports[-1].number}"

    # --- life -------------------------------------------------------------------------------------

    def command(self) -> list[str]:
        """Return the command line that starts the process, one list entry for each argument."""
        line = [*self._prefix, sys.executable, "-m", "srmp_spark.cli", "serve"]
        line += [
            "--data-dir",
            str(self.data_dir),
            "--listen",
            self._listen,
            "--api",
            self._api_listen,
        ]
        for name in self._queues:
            line += ["--queue", name]
        for pattern in self._allow_url:
            line += ["--allow-url", pattern]
        for key, value in self._options.items():
            for each in value if isinstance(value, list | tuple) else [value]:
                line += ["--" + key.replace("_", "-"), str(each)]
        return line

    def start(self) -> RunningQueueManager:
        """Start the process, wait until it is ready, and return this object.

        Raises :class:`ServeFailedError` if the process ends or is not ready after
        :data:`READY_SECONDS`. Raises :class:`RuntimeError` if the process runs already.
        """
        if self.process is not None and self.process.poll() is None:
            raise RuntimeError("the queue manager runs already: stop() or kill9() comes first")
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith("SRMP_SPARK_")
        }
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("a") as log:
            # The command runs this interpreter and a module of srmp-spark.
            self.process = subprocess.Popen(  # noqa: S603
                self.command(),
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL,
                text=True,
                env=environment | self._environment,
            )
        self.ready = self._wait_ready(time.monotonic() + READY_SECONDS)
        self._listen = self.ready["listening"].partition("://")[2]
        self._api_listen = self.ready["api"].partition("://")[2]
        return self

    def _wait_ready(self, deadline: float) -> ReadyLine:
        process = self.process
        assert process is not None
        assert process.stdout is not None
        while True:
            readable, _, _ = select.select(
                [process.stdout], [], [], max(0.0, deadline - time.monotonic())
            )
            line = process.stdout.readline() if readable else ""
            if line:
                ready: ReadyLine = json.loads(line)
                return ready
            if not readable:
                process.kill()
            code = process.wait()
            raise ServeFailedError(code, self.stderr())

    def kill9(self) -> None:
        """Kill the process (SIGKILL) and wait until it is gone.

        Raises :class:`AssertionError` if the process was never started.
        """
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self._close_pipe()

    def stop(self) -> int:
        """End the process (SIGTERM), wait for its end, and return its exit code.

        Return 0 if the process was never started, and the exit code if the process has ended
        already. Raises :class:`subprocess.TimeoutExpired` if the process does not end within
        :data:`STOP_SECONDS`; the process is then killed.
        """
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            self._close_pipe()
        return code

    def restart(self) -> None:
        """Start the process again after :meth:`stop` or :meth:`kill9`, on the same data and ports.

        The call ends no running process. It raises the same errors as :meth:`start`.
        """
        self.start()

    def _close_pipe(self) -> None:
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()

    def __enter__(self) -> RunningQueueManager:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # --- queues -----------------------------------------------------------------------------------

    def queue(self, name: str, *, transactional: bool = False) -> QueueHandle:
        """Return a handle of the queue ``name``, and make the queue if there is none.

        Raises :class:`~srmp_spark.errors.ApiError` if the queue exists and ``transactional`` is not
        its kind, or if the name is no valid queue name.
        """
        from srmp_spark.client.api import QueueManagerClient
        from srmp_spark.testing.queue_handle import QueueHandle

        client = QueueManagerClient(self.api)
        made = client.put_queue(name, transactional=transactional)
        return QueueHandle(made["name"], self.listening, client)

    # --- addresses and identity -------------------------------------------------------------------

    @property
    def endpoint(self) -> tuple[str, int]:
        """Return the host and the port number on which the queue manager receives SRMP."""
        host, _, port = self.ready["listening"].partition("://")[2].rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def wsrm(self) -> tuple[str, int]:
        """Return the host and the port number for WS-ReliableMessaging.

        Raises :class:`KeyError` without the option ``listen_wsrm``.
        """
        host, _, port = self.ready["wsrm"].partition("://")[2].rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def listening(self) -> str:
        """Return the URL of the SRMP port, ``http://HOST:PORT``, to which senders post."""
        return self.ready["listening"]

    @property
    def api(self) -> str:
        """Return the URL ``http://HOST:PORT`` of the API: option ``queueManager`` of Spark."""
        return self.ready["api"]

    @property
    def guid(self) -> str:
        """Return the GUID of the queue manager, as column ``queue_manager`` has it."""
        return str(self.ready["queue_manager"])

    @property
    def epoch(self) -> str:
        """Return the epoch of the data directory, as column ``epoch`` has it.

        The epoch is a random text. It changes when a queue manager starts from another directory or
        a copy.
        """
        return self.ready["epoch"]

    @property
    def pid(self) -> int:
        """Return the process id of the running queue manager, as its ready line states it."""
        return self.ready["pid"]

    def stderr(self) -> str:
        """Return the text that the process has logged so far, over all restarts.

        The text is empty before the first start.
        """
        return self.log.read_text(errors="replace") if self.log.exists() else ""
