"""A real ``srmp-spark serve`` as a child process, to be killed, restarted and stopped by tests.

    with RunningQueueManager(directory, queues=["private$/orders", "private$/payments:transactional"]) as running:
        ...  # running.endpoint, running.api; running.kill9(); running.restart()

Ports are picked before the first start and kept over restarts, so that senders find it again.
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

from srmp_spark.interface import ReadyLine
from srmp_spark.testing.foreign.ports import KeptPort

READY_SECONDS = 30.0
"""From the start of the process to its ready line, on a busy machine."""
STOP_SECONDS = 60.0
"""From SIGTERM to the end."""


_PORTS = frozenset({"listen_https", "listen_wsrm", "rpc", "rpc_endpoint_mapper"})
"""Options that are an address to listen on."""


class ServeFailedError(RuntimeError):
    """``serve`` ended, or did not become ready; carries the exit code and what it wrote to stderr."""

    def __init__(self, code: int | None, stderr: str) -> None:
        super().__init__(f"serve ended with {code}:\n{stderr[-3000:]}")
        self.code = code
        self.stderr = stderr


class RunningQueueManager:
    """A queue manager process; ``options`` are any flags of ``serve`` in snake case."""

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
        """``prefix`` goes before the interpreter: ``["taskset", "-c", "0"]``, ``["strace", …]``. Port 0 is one of our own."""
        self.data_dir = Path(data_dir)
        self.log = self.data_dir.with_name(self.data_dir.name + ".log")
        """Its standard error, over all restarts."""
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
        """The ready line."""

    def _with_port(self, address: str) -> str:
        host, _, port = address.rpartition(":")
        if port != "0":
            return address
        self._ports.append(KeptPort(host.rpartition("/")[2].strip("[]")))
        return f"{host}:{self._ports[-1].number}"

    # --- life -------------------------------------------------------------------------------------------------------------

    def command(self) -> list[str]:
        """The command line."""
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
        """Start it and wait for its ready line. Raises :class:`ServeFailedError`."""
        assert self.process is None or self.process.poll() is not None, "it runs already"
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith("SRMP_SPARK_")
        }
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("a") as log:
            self.process = subprocess.Popen(  # noqa: S603  # our own interpreter and module
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
        """SIGKILL, and wait until it is gone."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self._close_pipe()

    def stop(self) -> int:
        """SIGTERM, and wait; its exit code."""
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
        """Start again on the same directory and ports."""
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

    # --- where it is --------------------------------------------------------------------------------------------------------

    @property
    def endpoint(self) -> tuple[str, int]:
        """Host and port of the SRMP port."""
        host, _, port = self.ready["listening"].partition("://")[2].rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def wsrm(self) -> tuple[str, int]:
        """Host and port of WS-ReliableMessaging."""
        host, _, port = self.ready["wsrm"].partition("://")[2].rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def listening(self) -> str:
        """URL of the SRMP port."""
        return self.ready["listening"]

    @property
    def api(self) -> str:
        """URL of the API."""
        return self.ready["api"]

    @property
    def guid(self) -> str:
        """Identity of the queue manager."""
        return str(self.ready["queue_manager"])

    @property
    def epoch(self) -> str:
        """Epoch of its data directory."""
        return self.ready["epoch"]

    @property
    def pid(self) -> int:
        """Process id."""
        return self.ready["pid"]

    def stderr(self) -> str:
        """What it logged so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""
