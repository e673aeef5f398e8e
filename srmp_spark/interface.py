"""What two processes must agree on letter for letter (docs/INTERFACE.md), each thing once.

The queue manager writes or answers it; clients, Spark and the jobs read it. They share no memory and may be of different
versions, so nothing here is changed, only added to. What only one side decides (limits, pauses) lies with that side.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, TypedDict

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
"""Where ``serve`` opens its API, and commands ask for it, unless a flag or ``SRMP_SPARK_API`` says otherwise."""
ARROW_STREAM = "application/vnd.apache.arrow.stream"
"""``GET rows`` for everybody: an Arrow IPC stream."""
DENSE_STREAM = "application/vnd.srmp-spark.log"
"""``GET rows`` for Spark, by ``Accept``: segments and groups as they are stored (:mod:`srmp_spark.rows.dense`)."""

SHARING_VIOLATION = "C00E0009"
"""MQ_ERROR_SHARING_VIOLATION, code of a 409: another receiver holds the queue."""
UNKNOWN_QUEUE = "unknown-queue"
"""Code of a 404: there is no such queue."""
UNKNOWN_EPOCH = "unknown-epoch"
"""Code of a 409: the data directory is not the one that was read before."""
PAST_THE_END = "past-the-end"
"""Code of a 409: the reader knows more than the log holds."""
TRIMMED = "trimmed"
"""Code of a 410: retention has deleted rows that were asked for."""
TOO_MANY_SUBQUEUES = "too-many-subqueues"
"""Code of a 503: no further subqueue is made for a remote reader."""
ANOTHER_QUEUE_MANAGER = "another-queue-manager"
"""Code of a 409: the rows that were asked for are those of another queue manager than the one that answers."""

IDENTIFIERS_USED_UP = "identifiers-used-up"
"""Code of a 503: the 32 bits of message identifiers are at their end, for good."""

DEFAULT_CONSUMER = "default"
"""The consumer that decides a message's fate (INTERFACE.md section 1)."""

ENDPOINT_FILE = "endpoint.json"
"""In the data directory while a queue manager serves it: an :class:`Endpoint`, for Spark queries on the same host."""


CLIENT_HEADER = "srmp-client"
"""A header that our client sends with every call: a web page cannot send it to another origin without asking."""


QUEUE_MANAGER_HEADER = "srmp-queue-manager"
"""A header of an answer with rows: the GUID of the queue manager that has them."""


class _AlwaysReady(TypedDict):
    """What each ready line has."""

    listening: str
    """URL of the SRMP port."""
    api: str
    """URL of the API."""
    queue_manager: str
    epoch: str
    pid: int


class ReadyLine(_AlwaysReady, total=False):
    """What ``serve`` prints when it is ready."""

    https: str
    """URL of the SRMP port over TLS, if there is one."""
    rpc: str
    """``HOST:PORT`` of remote read, if it is served."""
    wsrm: str
    """URL of the port of WS-ReliableMessaging, if there is one."""


class Endpoint(ReadyLine, total=False):
    """What :data:`ENDPOINT_FILE` holds: the ready line, and by what to see that nobody else's file or port is meant."""

    process: dict[str, Any]
    """:meth:`srmp_spark.holder.Holder.as_dict` of the queue manager."""
    directory: list[int]
    """Device and inode of the data directory: a copy of it has others."""


class ExitCode(IntEnum):
    """How commands and jobs end (INTERFACE.md section 2)."""

    DONE = 0
    CHECK_FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    REFUSED = 4
    IN_USE = 5
    DAMAGED = 6


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
"""The first that fits; any other error is a failed check."""


def exit_code_of(kind: type[BaseException]) -> ExitCode:
    """The exit code of a command or job that an error of this class ended."""
    return next(
        (code for base, code in _EXIT_CODES if issubclass(kind, base)), ExitCode.CHECK_FAILED
    )


RELIABLE_VERSIONS = {
    "wsrm_version": ("1.0", "1.1", "1.2"),
    "soap_version": ("1.1", "1.2"),
    "wsa_version": ("2004/08", "2005/08"),
}
"""In which versions a message for ``wsrm:URL`` may leave (section 4, Sink)."""
