"""Names and values that two processes must agree on exactly (docs/INTERFACE.md), each defined once.

The queue manager writes or answers them; clients, Spark and the jobs read them. These processes
share no memory and may have different versions. Values in this module are therefore only added and
never changed. Values that only one side decides (limits, pauses) are defined on that side.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypedDict

from srmp_spark.errors import (
    ApiError,
    ApiUnreachableError,
    ConfigurationError,
    ProcessMustEndError,
    StoreDamagedError,
    StoreError,
    StoreInUseError,
    TakenOverError,
)

DEFAULT_API = "127.0.0.1:8081"
"""Address at which ``serve`` opens its API and at which commands call the API.

A flag or ``SRMP_SPARK_API`` replaces it.
"""
ARROW_STREAM = "application/vnd.apache.arrow.stream"
"""Media type of ``GET rows`` for every client: an Arrow IPC stream."""
DENSE_STREAM = "application/vnd.srmp-spark.log"
"""Media type of ``GET rows`` for Spark, which asks for it with ``Accept``: segments and groups in
their stored form (:mod:`srmp_spark.rows.dense`).
"""

SHARING_VIOLATION = "C00E0009"
"""Error code of a 409, MQ_ERROR_SHARING_VIOLATION: another receiver holds the queue."""
UNKNOWN_QUEUE = "unknown-queue"
"""Error code of a 404: the queue does not exist."""
UNKNOWN_EPOCH = "unknown-epoch"
"""Error code of a 409: the log has no such epoch; it is not the log that the client read before."""
PAST_THE_END = "past-the-end"
"""Error code of a 409: the reader asks for a position after the end of the log."""
TRIMMED = "trimmed"
"""Error code of a 410: retention has deleted rows that the client asked for."""
TOO_MANY_SUBQUEUES = "too-many-subqueues"
"""Error code of a 503: the queue manager creates no further subqueue for a remote reader."""
ANOTHER_QUEUE_MANAGER = "another-queue-manager"
"""Error code of a 409: the client asked for rows of another queue manager than the one that
answers.
"""

IDENTIFIERS_USED_UP = "identifiers-used-up"
"""Error code of a 503: all 32-bit message identifiers are used up, permanently."""

DEFAULT_CONSUMER = "default"
"""Name of the consumer that decides whether a message counts as received (INTERFACE.md section 1).
"""

ENDPOINT_FILE = "endpoint.json"
"""Name of a file in the data directory that exists while a queue manager serves the directory.

The file holds an :class:`EndpointFile`, for Spark queries on the same host.
"""


CLIENT_HEADER = "srmp-client"
"""Header that the client of this package sends with every call.

A web page cannot send this header to another origin without permission of that origin.
"""


QUEUE_MANAGER_HEADER = "srmp-queue-manager"
"""Header of an answer with rows: the GUID of the queue manager that holds these rows."""


class _AlwaysReady(TypedDict):
    """The fields that every ready line has."""

    listening: str
    """URL of the SRMP port."""
    api: str
    """URL of the API port."""
    queue_manager: str
    epoch: str
    pid: int


class ReadyLine(_AlwaysReady, total=False):
    """The JSON line that ``serve`` prints when the queue manager is ready."""

    https: str
    """URL of the SRMP port over TLS, if this port is open."""
    rpc: str
    """``HOST:PORT`` of the port for remote read, if this port is open."""
    wsrm: str
    """URL of the port for WS-ReliableMessaging, if this port is open."""


class EndpointFile(ReadyLine, total=False):
    """The content of :data:`ENDPOINT_FILE`: the ready line and two fields to check it.

    By these two fields a client notices that the file was copied, or that another process uses the
    port now.
    """

    process: dict[str, object]
    """The process of the queue manager, as :meth:`srmp_spark.holder.Holder.as_dict` returns it."""
    directory: list[int]
    """Device and inode of the data directory. A copy of the directory has other numbers."""
    rpc_endpoint_mapper: str
    """URL of the port of the endpoint mapper as it was configured; empty without this port."""


class SubscriptionEntry(TypedDict):
    """One entry of ``status.subscriptions`` and of ``GET subscriptions`` (section 3).

    A subscription that cannot be read has neither ``mode`` nor ``to``.
    """

    host: str
    queue: str
    mode: str | None
    to: str | None
    pulled: int
    pending: int
    doubtful: int
    taken_in_doubt: int
    unreadable: int
    lag_seconds: float | None
    last_error: str | None
    failed_seconds: float | None
    configured: bool
    removing: bool
    held: bool
    received_there: int
    """Number of copied messages that other readers received in the remote queue."""
    undecided: int
    """Number of copied messages that a cut-over in progress has not decided yet."""


class CutoverFinding(TypedDict):
    """One finding of ``GET subscriptions/cutover``. One that ``blocks`` makes it unsafe."""

    code: str
    count: int
    blocks: bool
    text: str


class CutoverEntry(TypedDict):
    """The answer of ``GET subscriptions/cutover``, which compares a remote queue and its copy."""

    host: str
    queue: str
    to: str
    phase: str
    """``copying``, ``settling``, ``moved`` or ``moving``."""
    consumers: list[str]
    safe: bool
    still_there: int
    received_there: int
    moved: int
    not_here: int
    locked_there: int
    received_here: int
    in_doubt: int
    compared: bool
    """Whether a walk that began after the question has reached the end of the remote queue."""
    walk: int
    """Number of the walk that the question waits for; the next call names it as ``walk``."""
    settled_at: str | None
    """Time at which the last cut-over was settled, RFC 3339 UTC."""
    findings: list[CutoverFinding]


class ReceivedThere(TypedDict):
    """One message that was copied, and that another reader received in the remote queue."""

    sequence: int | None
    """Sequence of the row here, or ``None`` if it is not known."""
    message_id: str
    lookup_id: int
    gone_at: str
    """Time at which this queue manager found that the message was gone, RFC 3339 UTC."""


class ExitCode(IntEnum):
    """The exit codes of commands and jobs (INTERFACE.md section 2)."""

    DONE = 0
    """The command or job has done what it was asked to do."""
    CHECK_FAILED = 1
    """A check failed, or the process met an error that no other code names."""
    USAGE = 2
    """A flag, option, key, variable or file is wrong, or the data directory cannot be used."""
    UNREACHABLE = 3
    """No queue manager answers at the URL of the API."""
    REFUSED = 4
    """The queue manager refused the call, or `--wait` ended before every message arrived."""
    IN_USE = 5
    """Another process holds the data directory, the queues, or the table."""
    DAMAGED = 6
    """The data directory is damaged, an older copy, or of a newer version."""


_EXIT_CODES: tuple[tuple[type[BaseException], ExitCode], ...] = (
    (ConfigurationError, ExitCode.USAGE),
    (ApiUnreachableError, ExitCode.UNREACHABLE),
    (ApiError, ExitCode.REFUSED),
    (StoreInUseError, ExitCode.IN_USE),
    (TakenOverError, ExitCode.IN_USE),
    (StoreDamagedError, ExitCode.DAMAGED),
    (ProcessMustEndError, ExitCode.CHECK_FAILED),
    (StoreError, ExitCode.USAGE),
)
"""Exit codes by error class; the first class that matches counts.

Any other error has the exit code of a failed check.
"""


def exit_code_of(kind: type[BaseException]) -> ExitCode:
    """Return the exit code of a command or job that ended with an error of class ``kind``."""
    return next(
        (code for base, code in _EXIT_CODES if issubclass(kind, base)), ExitCode.CHECK_FAILED
    )


RELIABLE_VERSIONS = {
    "wsrm_version": ("1.0", "1.1", "1.2"),
    "soap_version": ("1.1", "1.2"),
    "wsa_version": ("2004/08", "2005/08"),
}
"""Versions of each protocol in which a message for ``wsrm:URL`` can be sent (INTERFACE.md section
4, Sink).
"""
