"""The embedded queue manager: started as a child of nobody when the first query needs it, else joined (INTERFACE.md section 4).

The child is detached (its own session, no pipe to us): it must outlive the process that Spark kills at the end of a query, and
it ends by itself :data:`UNUSED_SECONDS` after its last lease or reading call. A query calls whatever its trigger is
(:class:`KeptInUse`), so its queue manager lives as long as the query does. Whoever finds the data directory free starts one; if
two do so at once, one of the children finds the directory in use and ends, and both queries join the other.
"""

from __future__ import annotations

import json
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
from srmp_spark.errors import (
    ApiError,
    ApiUnreachableError,
    ConfigurationError,
    SrmpSparkError,
    StoreDamagedError,
)
from srmp_spark.holder import Holder
from srmp_spark.interface import ENDPOINT_FILE, Endpoint, ExitCode
from srmp_spark.private_files import FOLDER_MODE, append_private, refuse_wide
from srmp_spark.spark.options import SourceOptions

UNUSED_SECONDS = 60
"""How long an embedded queue manager outlives its last lease: a query that is restarted finds it still there."""
USE_SECONDS = 5.0
"""How often a query says that it is there: a query that peeks has no lease, and may call once in an hour."""
READY_SECONDS = 60.0
"""How long a start may take: recovery of a large log included."""
POLL_SECONDS = 0.05
UNAUTHORIZED = 401
"""The living queue manager wants a token that we do not have: nobody else will answer for its directory."""

LOG_FILE = "embedded.log"

_NEEDED = {
    "listen": ".option('listen', '127.0.0.1:0') (or the port that senders use)",
    "queue": ".option('queues', 'private$/orders')",
}
"""Flag of ``serve`` that a start needs → the option, with a value. Who joins needs neither."""

_log = logging.getLogger(__name__)


class Place(NamedTuple):
    """Where the queue managers of a query are."""

    urls: tuple[str, ...]
    host: str | None
    """The only host from which they can be reached, when embedded."""


class KeptInUse:
    """Keeps an embedded queue manager from ending while a query lives, in the process that lives as long as the query."""

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
        """Let it end. May be called more than once."""
        self._stopped.set()

    def _use_until_stopped(self) -> None:
        while not self._stopped.wait(USE_SECONDS):
            try:
                self._client.range(self._queue)
            except ApiError:  # noqa: PERF203  # a glob, or a queue that is not there: asking counts
                continue
            except (
                SrmpSparkError
            ) as error:  # the query's own calls tell, and wait as long as they may
                _log.info("embedded.not_reached reason=%s", error)


def locate(options: SourceOptions, *, needs_queues: bool = True) -> Place:
    """The API URLs that ``options`` name; starts the embedded queue manager if nobody holds its directory.

    ``needs_queues``: who starts one must say which queues it has.
    """
    if options.data_dir is None:
        return Place(options.queue_managers, None)
    url = start_or_join(
        Path(options.data_dir), options.serve_flags, options.token, needs_queues=needs_queues
    )
    return Place((url,), socket.gethostname())


def start_or_join(
    data_dir: Path,
    flags: tuple[tuple[str, str], ...],
    token: str | None = None,
    *,
    needs_queues: bool = True,
) -> str:
    """The API URL of the living queue manager of ``data_dir``. Raises a 401 :class:`ApiError` if it wants another ``token``."""
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
        if (
            code is not None and code != ExitCode.IN_USE
        ):  # else another query was faster: its queue manager is ready soon
            raise _why_it_ended(code, data_dir)
        time.sleep(POLL_SECONDS)
    raise SrmpSparkError(
        f"the embedded queue manager in {data_dir} was not ready within {READY_SECONDS:g} "
        f"s; see {data_dir / LOG_FILE}"
    )


def _living(data_dir: Path, token: str | None) -> str | None:
    """The API URL in the endpoint file, if the queue manager that wrote it is there and answers.

    A file that a kill left behind names a port that another program may have by now, perhaps another queue manager. So its
    process must live, it must stand in the directory that it was written for, and who answers must have its GUID.
    """
    try:
        endpoint: Endpoint = json.loads((data_dir / ENDPOINT_FILE).read_text(encoding="utf-8"))
        url, guid = endpoint["api"], endpoint["queue_manager"]
        found = data_dir.stat()
        if endpoint.get("directory", [found.st_dev, found.st_ino]) != [found.st_dev, found.st_ino]:
            return None  # the file was copied with the directory
        if "process" in endpoint and Holder.from_dict(endpoint["process"]).is_gone():
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
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
        return subprocess.Popen(  # noqa: S603  # our own program; values are arguments, never a shell's text
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
