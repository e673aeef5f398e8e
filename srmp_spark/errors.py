"""Every error of the package: one tree, two blames.

A ``LocalProtocolError`` is our own bug or our caller's; a ``RemoteProtocolError`` is the peer's, and says with which HTTP
status to answer. Everything a user can meet carries the next step in its message.
"""

from __future__ import annotations


def with_hint(message: str, hint: str) -> str:
    """``message; hint``: what is wrong and what to do next as one line. The only place that puts something between the two.

    What ``message`` ends with makes way for the semicolon, but for a question or exclamation mark, which ends a sentence
    itself; a hint ends without a full stop, as the code follows it.
    """
    message, hint = " ".join(message.split()), " ".join(hint.split()).rstrip(" .,;:")
    if message.endswith(("?", "!")):
        return f"{message} {hint}".rstrip()
    return f"{message.rstrip(' .,;:')}; {hint}" if hint else message


class SrmpSparkError(Exception):
    """The root: catch this to catch whatever the package raises on purpose."""


class ProtocolError(SrmpSparkError):
    """A rule of a protocol was broken; raised only as one of its two children, which say by whom."""


class LocalProtocolError(ProtocolError):
    """We, or the code that calls us, asked for something that the protocol does not allow."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something that can never succeed.

    ``status_hint`` is the HTTP status to answer with, ``section`` the sentence of the specification that was broken
    (``"[MC-MQSRM] 2.2.5.3.2"``).
    """

    def __init__(
        self, message: str, *, status_hint: int = 400, section: str = "[MC-MQSRM] 2.2"
    ) -> None:
        super().__init__(message)
        self.status_hint = status_hint
        self.section = section


class LimitExceededError(RemoteProtocolError):
    """A named limit was passed: ``name`` is the constant, ``limit`` its value, ``got`` what arrived."""

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
    """An option, flag, key or argument is wrong (exit code 2)."""


class RowError(SrmpSparkError):
    """A row of a DataFrame cannot become a message; names column, row and partition."""


class StoreError(SrmpSparkError):
    """The data directory could not be used."""


class StoreInUseError(StoreError):
    """Another queue manager owns the data directory (exit code 5)."""

    def __init__(self, directory: str, pid: int, host: str) -> None:
        super().__init__(
            f"data directory {directory} is in use by process {pid} on {host}; stop it, "
            "or give --data-dir another folder"
        )
        self.directory = directory
        self.pid = pid
        self.host = host


class StoreDamagedError(StoreError):
    """The data directory is damaged or was written by a newer version (exit code 6)."""


class ProcessMustEndError(StoreError):
    """What memory believes may differ from the disk: nothing more is answered, and the next start reads what is true.

    Raised only as one of its two children, which say whose fault it was. A fault of ours inside one request is neither: it is
    answered 503, and the process goes on.
    """


class StoreSyncError(ProcessMustEndError):
    """A write or sync failed: after a failed fsync the page cache lies (Rebello et al., ATC 2020)."""


class MemoryAheadError(ProcessMustEndError):
    """An engine counts on something that was not handed to the disk. A bug of ours; the disk did nothing wrong."""


class ApiError(SrmpSparkError):
    """The queue manager refused an API call: ``{"error": {code, message, hint, section}}`` (INTERFACE.md section 3)."""

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
    """No queue manager answers at the API URL (exit code 3)."""


class RemoteQueueError(SrmpSparkError):
    """A queue of another queue manager cannot be read."""


class RemoteReadError(RemoteQueueError):
    """The other queue manager refuses a call; ``status`` is its HRESULT or fault."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message, status)
        self.message = message
        self.status = status

    def __str__(self) -> str:
        return self.message


class RemoteLostError(RemoteQueueError):
    """The machine cannot be reached, or the connection ended: whether the last call was carried out is not known."""


class DataLossError(SrmpSparkError):
    """Rows that a query planned to read are gone, or the log is not the one it knew (option ``failOnDataLoss``)."""


class TakenOverError(SrmpSparkError):
    """Another job writes the same queues into the same table (exit code 5)."""
