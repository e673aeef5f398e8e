"""The embedded queue manager: a query starts it, or joins one that runs (INTERFACE.md section 4).

The queue manager is a detached process with its own session and without a pipe to its parent. The
queue manager must outlive the process that Spark kills at the end of a query. The queue manager
ends by itself :data:`UNUSED_SECONDS` after its last lease or reading call. Whatever its trigger is,
a query calls the queue manager regularly (:class:`KeptInUse`). So the queue manager lives as long
as the query.

A query that finds the data directory unused starts a queue manager. If two queries start one at
once, one of the processes finds the directory in use and ends, and both queries join the other
process.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.client.endpoint_file import read_endpoint
from srmp_spark.errors import (
    ApiError,
    ApiUnreachableError,
    ConfigurationError,
    SrmpSparkError,
    StoreDamagedError,
)
from srmp_spark.interface import ExitCode
from srmp_spark.private_files import FOLDER_MODE, append_private, refuse_wide
from srmp_spark.spark.settings.options import SourceOptions

UNUSED_SECONDS = 60
"""How long, in seconds, an embedded queue manager lives after its last lease.

So a query that restarts soon finds it running.
"""
USE_SECONDS = 5.0
"""Seconds between two calls by which a query shows that it is alive.

A query that peeks has no lease, and its trigger may fire only once an hour.
"""
READY_SECONDS = 60.0
"""Longest time that a start may take, in seconds, including the recovery of a large log.

After that the query fails.
"""
POLL_SECONDS = 0.05
UNAUTHORIZED = 401
"""HTTP status: the running queue manager requires a token that the query does not have.

The query fails, because no other queue manager can run in the directory.
"""

LOG_FILE = "embedded.log"

_NEEDED = {
    "listen": ".option('listen', '127.0.0.1:0') (or the port that senders use)",
    "queue": ".option('queues', 'private$/orders')",
}
"""Flags of ``serve`` that a start needs, each with an example of its option.

A query that joins a running queue manager needs none of them.
"""

_log = logging.getLogger(__name__)


class QueueManagerPlace(NamedTuple):
    """The API URLs of the queue managers of a query, and from where they can be reached."""

    urls: tuple[str, ...]
    host: str | None
    """The only host from which they can be reached, if embedded; else ``None``."""


class KeptInUse:
    """Keeps an embedded queue manager from ending while a query runs.

    The object lives in the process that lives as long as the query, and calls the queue manager
    regularly.
    """

    def __init__(self, url: str, options: SourceOptions) -> None:
        self._client = QueueManagerClient(
            url, options.token, retry_seconds=0.0, allow_plain_token=options.allow_plain_token
        )
        self._queue = options.queues[0]
        self._stopped = threading.Event()
        threading.Thread(target=self._use_until_stopped, name="srmp-embedded", daemon=True).start()

    def __repr__(self) -> str:
        return f"<KeptInUse {self._client.url} stopped={self._stopped.is_set()}>"

    def stop(self) -> None:
        """Stop the calls, so that the queue manager ends when no other query uses it.

        This method may be called more than once.
        """
        self._stopped.set()

    def _use_until_stopped(self) -> None:
        while not self._stopped.wait(USE_SECONDS):
            try:
                self._client.range(self._queue)
            except ApiError:  # noqa: PERF203  # the call itself counts as use
                continue
            except SrmpSparkError as error:
                # The query's own calls report the error, and wait for as long as they may.
                _log.info("embedded.not_reached reason=%s", error)


def locate(options: SourceOptions, *, needs_queues: bool = True) -> QueueManagerPlace:
    """Return the API URLs that ``options`` name; start an embedded queue manager if necessary.

    A queue manager is started if the options name a data directory that no queue manager uses.
    ``needs_queues`` and the errors are those of :func:`start_or_join`.
    """
    if options.data_dir is None:
        return QueueManagerPlace(options.queue_managers, None)
    url = start_or_join(
        Path(options.data_dir), options.serve_flags, options.token, needs_queues=needs_queues
    )
    return QueueManagerPlace((url,), socket.gethostname())


def start_or_join(
    data_dir: Path,
    flags: tuple[tuple[str, str], ...],
    token: str | None = None,
    *,
    needs_queues: bool = True,
) -> str:
    """Return the API URL of the queue manager of ``data_dir``, after starting one if none runs.

    ``flags`` are those of ``serve`` for a start. With ``needs_queues`` a start also needs a flag
    for queues; a stream of ``format("mqrr")`` needs none, because its subscription creates the
    queue. Raises :class:`ConfigurationError` if a start needs more options or if other users have a
    right to the directory, and :class:`ApiError` (401) if the running queue manager requires
    another ``token``. Raises :class:`SrmpSparkError` if the start fails or takes longer than
    READY_SECONDS, and :class:`OSError` if the directory cannot be created.
    """
    url = _living(data_dir, token)
    if url is not None:
        _log.info("embedded.joined dir=%s api=%s", data_dir, url)
        return url
    needed = {flag: example for flag, example in _NEEDED.items() if needs_queues or flag != "queue"}
    missing = [example for flag, example in needed.items() if flag not in dict(flags)]
    if missing:
        raise ConfigurationError(
            f"no queue manager runs in dataDir {data_dir}: to start one also give "
            f"{' and '.join(missing)}; "
            "to join one, start it first"
        )
    refuse_wide(data_dir)
    data_dir.parent.mkdir(parents=True, exist_ok=True)
    data_dir.mkdir(mode=FOLDER_MODE, exist_ok=True)
    child = _start(data_dir, flags)
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        url = _living(data_dir, token)
        if url is not None:
            return url
        code = child.poll()
        # With IN_USE another query was faster, and its queue manager will be ready soon.
        if code is not None and code != ExitCode.IN_USE:
            raise _why_it_ended(code, data_dir)
        time.sleep(POLL_SECONDS)
    raise SrmpSparkError(
        f"the embedded queue manager in {data_dir} was not ready within {READY_SECONDS:g} "
        f"s; see {data_dir / LOG_FILE}"
    )


def _living(data_dir: Path, token: str | None) -> str | None:
    """Return the API URL in the endpoint file, if the queue manager that wrote the file answers.

    Otherwise return ``None``. Another queue manager may have the port of the file by now, so the
    GUID in the answer must be that of the file. Raises :class:`ApiError` (401) if the queue manager
    requires another token.
    """
    endpoint = read_endpoint(data_dir)
    if endpoint is None:
        return None
    url, guid = endpoint["api"], endpoint["queue_manager"]
    client = QueueManagerClient(url, token, retry_seconds=0.0)
    try:
        return url if client.is_ready() and client.status()["queue_manager"] == guid else None
    except ApiUnreachableError:
        return None
    except ApiError as error:
        if error.status == UNAUTHORIZED:
            raise
        return None


def _start(data_dir: Path, flags: tuple[tuple[str, str], ...]) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "srmp_spark.cli",
        "serve",
        "--data-dir",
        str(data_dir),
        "--exit-when-unused",
        str(UNUSED_SECONDS),
    ]
    if not any(flag == "api" for flag, _ in flags):
        command += ["--api", "127.0.0.1:0"]
    for flag, value in flags:
        command += [f"--{flag}", value]
    _log.info("embedded.started dir=%s", data_dir)
    with os.fdopen(append_private(data_dir / LOG_FILE), "ab") as log:
        return subprocess.Popen(  # noqa: S603  # our own program, without a shell
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )


def _why_it_ended(code: int, data_dir: Path) -> SrmpSparkError:
    try:
        lines = (
            (data_dir / LOG_FILE).read_text(encoding="utf-8", errors="replace").splitlines()[-5:]
        )
    except OSError:
        lines = []
    text = (
        f"the embedded queue manager in {data_dir} ended with code {code}: "
        f"{' | '.join(lines) or 'it wrote nothing'}"
    )
    kinds: dict[int, type[SrmpSparkError]] = {
        ExitCode.USAGE: ConfigurationError,
        ExitCode.DAMAGED: StoreDamagedError,
    }
    return kinds.get(code, SrmpSparkError)(text)
