"""All errors of the package, as one tree that says who caused an error.

A ``LocalProtocolError`` is a mistake of this package or of its caller. A ``RemoteProtocolError`` is
a mistake of the peer and names the HTTP status to answer with. The message of every error that a
user can meet names the next step.
"""

from __future__ import annotations


def with_hint(message: str, hint: str) -> str:
    """Return ``message; hint`` as one line: what is wrong, and what to do next.

    Every error of the package joins its message and hint with this function. Punctuation at the end
    of ``message`` is replaced by the semicolon. A question mark or exclamation mark stays and no
    semicolon follows, because either mark ends the sentence. Punctuation at the end of the hint is
    removed, because the error code follows the hint.
    """
    message, hint = " ".join(message.split()), " ".join(hint.split()).rstrip(" .,;:")
    if message.endswith(("?", "!")):
        return f"{message} {hint}".rstrip()
    return f"{message.rstrip(' .,;:')}; {hint}" if hint else message


class SrmpSparkError(Exception):
    """Is the base class of every error that the package raises on purpose.

    Catch this class to catch all of these errors.
    """


class ProtocolError(SrmpSparkError):
    """Reports that a rule of a protocol was broken.

    Only its two subclasses are raised. Each of the two says who broke the rule.
    """


class LocalProtocolError(ProtocolError):
    """Reports that this package, or the code that calls it, broke a rule of the protocol."""


class RemoteProtocolError(ProtocolError):
    """Reports that the peer sent something that can never succeed, however often it is sent.

    ``status_hint`` is the HTTP status to answer with. ``section`` names the sentence of the
    specification that was broken (``"[MC-MQSRM] 2.2.5.3.2"``).
    """

    def __init__(
        self, message: str, *, status_hint: int = 400, section: str = "[MC-MQSRM] 2.2"
    ) -> None:
        super().__init__(message)
        self.status_hint = status_hint
        self.section = section


class LimitExceededError(RemoteProtocolError):
    """Reports that input of a peer exceeds a named limit.

    ``name`` is the name of the limit's constant, ``limit`` its value, and ``got`` the number that
    was received.
    """

    def __init__(
        self,
        name: str,
        limit: int,
        got: int,
        *,
        status_hint: int = 400,
        section: str = "[MC-MQSRM] 2.2",
    ) -> None:
        super().__init__(f"{name} is {limit}, got {got}", status_hint=status_hint, section=section)
        self.name = name
        self.limit = limit
        self.got = got


class ConfigurationError(SrmpSparkError):
    """Reports that an option, flag, key or argument is wrong (exit code 2)."""


class RowError(SrmpSparkError):
    """Reports that a row of a DataFrame cannot become a message.

    The error names the column, the row and the partition.
    """


class StoreError(SrmpSparkError):
    """Reports that the data directory could not be used."""


class StoreInUseError(StoreError):
    """Reports that another queue manager uses the data directory (exit code 5)."""

    def __init__(self, directory: str, pid: int, host: str) -> None:
        super().__init__(
            f"data directory {directory} is in use by process {pid} on {host}; stop it, "
            "or give --data-dir another folder"
        )
        self.directory = directory
        self.pid = pid
        self.host = host


class StoreDamagedError(StoreError):
    """Reports that the data directory is damaged or has a newer version's format (exit code 6)."""


class ProcessMustEndError(StoreError):
    """Reports that the state in memory may differ from the state on disk, so the process must end.

    The process answers no further request. The next start reads the true state from the disk. Only
    the two subclasses are raised, and each says what failed. A bug of this package that affects a
    single request is neither of the two: the request is answered with 503, and the process
    continues.
    """


class StoreSyncError(ProcessMustEndError):
    """Reports that a write or sync of the disk failed.

    After a failed fsync the page cache may show data that the disk does not hold (Rebello et al.,
    ATC 2020).
    """


class MemoryAheadError(ProcessMustEndError):
    """Reports that an engine relies on a change in memory that was never written to the disk.

    This error is a bug of this package; the disk works.
    """


class ApiError(SrmpSparkError):
    """Reports that the queue manager refused a call of its API.

    The attributes are the fields of the answer ``{"error": {code, message, hint, section}}`` and
    its HTTP status (INTERFACE.md section 3).
    """

    def __init__(
        self, status: int, code: str, message: str, hint: str = "", section: str = ""
    ) -> None:
        super().__init__(f"{with_hint(message, hint)} [{code}]")
        self.status = status
        self.code = code
        self.message = message
        self.hint = hint
        self.section = section


class ApiUnreachableError(SrmpSparkError):
    """Reports that no queue manager answers at the API URL (exit code 3)."""


class RemoteQueueError(SrmpSparkError):
    """Reports that a queue of another queue manager cannot be read."""


class RemoteReadError(RemoteQueueError):
    """Reports that the other queue manager refused a call.

    ``status`` is its HRESULT or fault status. ``perhaps_done`` states that the other queue manager
    may have carried out the call all the same.
    """

    def __init__(self, message: str, status: int, *, perhaps_done: bool = False) -> None:
        super().__init__(message, status)
        self.message = message
        self.status = status
        self.perhaps_done = perhaps_done

    def __str__(self) -> str:
        return self.message


class RemoteLostError(RemoteQueueError):
    """Reports that the other machine cannot be reached, or that the connection to it ended.

    The caller cannot know whether the other machine carried out the last call.
    """


class DataLossError(SrmpSparkError):
    """Reports that rows which a query planned to read are lost (option ``failOnDataLoss``).

    Either the rows were deleted, or the log is not the log that the query read before.
    """


class TakenOverError(SrmpSparkError):
    """Reports that another job writes the same queues into the same table (exit code 5)."""
