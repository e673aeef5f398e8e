"""Define the commands, answers, events and settings between main process and reader process.

In all commands ``queue`` is the name of a queue in the log. A range (``after``, ``to``] excludes
``after`` and includes ``to``. Times are in microseconds since 1970. ``caller`` is the name of the
API token for which the command is sent, or ``None``; each caller has a share of the threads.
"""

from __future__ import annotations

from dataclasses import dataclass

from srmp_spark.queue_manager.child.encoding import Encoding
from srmp_spark.store.delta.tables.events import (
    PublisherFailed,
    PublisherRecovered,
    RowsGone,
    StateCompared,
    StateEvent,
    StatePublished,
)
from srmp_spark.store.stored_rows.retention import RetentionLimits


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """The settings of a reader process."""

    data_dir: str
    queue_manager: str
    state: str | None
    """Where the Delta state is published, or ``None``."""
    state_interval: float
    """Seconds between two publications."""


# --- commands for reading -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadRows:
    """Requests the rows of a range, as an Arrow stream or a dense stream. The answer is data."""

    caller: str | None
    queue: str
    shown: str
    """The queue's name, as the rows show it."""
    epoch: str
    after: int
    to: int
    envelope: bool
    columns: tuple[str, ...]
    dense: bool
    """Whether the stored pieces are sent unchanged (rows/dense.py)."""
    direct: bool
    """Whether the data is written into the caller's own connection. It is dense then."""


@dataclass(frozen=True, slots=True)
class FindBatchEnd:
    """Requests the last sequence of a batch of the rows in a range.

    The posts of the batch have at most ``max_bytes`` together, but a batch has at least one row.
    """

    caller: str | None
    queue: str
    epoch: str
    after: int
    to: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class BatchEnd:
    """Answers :class:`FindBatchEnd`."""

    last: int


@dataclass(frozen=True, slots=True)
class CountHoles:
    """Requests the number of sequences in a range that have no row."""

    caller: str | None
    queue: str
    after: int
    to: int


@dataclass(frozen=True, slots=True)
class HoleCount:
    """Answers :class:`CountHoles`."""

    count: int


@dataclass(frozen=True, slots=True)
class FindFirstSince:
    """Requests the first row after ``after`` that arrived at or after the time ``since``."""

    caller: str | None
    queue: str
    epoch: str
    after: int
    since: int


@dataclass(frozen=True, slots=True)
class FirstRowSince:
    """Answers :class:`FindFirstSince`. :class:`.arrivals.FirstSince` describes the fields."""

    sequence: int | None
    looked_to: int
    end: int


@dataclass(frozen=True, slots=True)
class ReadPackets:
    """Requests rows of a range as message packets for remote readers. The answer is data.

    The data consists of frames (:mod:`.frames`), of about ``max_bytes`` together.
    """

    queue: str
    epoch: str
    after: int
    to: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class ReadPriorities:
    """Requests the runs of rows of equal priority in a range. The answer is data."""

    queue: str
    epoch: str
    after: int
    to: int


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """Requests one row in its stored form. The answer is data, and empty without such a row."""

    queue: str
    epoch: str
    sequence: int


# --- commands for the upkeep of the log -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FindQueuesToSeal:
    """Requests the names of the queues that may have rows to seal at the time ``now``."""

    now: int


@dataclass(frozen=True, slots=True)
class FindQueuesToTrim:
    """Requests the names of the queues of which retention may delete rows.

    The rows arrived before the time ``before``. ``None`` stands for any time.
    """

    before: int | None


@dataclass(frozen=True, slots=True)
class DueQueues:
    """Answers :class:`FindQueuesToSeal` and :class:`FindQueuesToTrim`."""

    queues: list[str]


@dataclass(frozen=True, slots=True)
class SealRows:
    """Requests to write the files of the next segment of ``queue``, if it has enough rows."""

    queue: str
    now: int


@dataclass(frozen=True, slots=True)
class SealAnswer:
    """Answers :class:`SealRows`."""

    sealed: str | None
    """The segment (:class:`.sealing.Sealed`) as JSON text, which the main process then commits.

    ``None`` if there was nothing to seal, or no room.
    """
    later: bool
    """Whether the disk has no room for the files."""


@dataclass(frozen=True, slots=True)
class PlanTrim:
    """Requests the sequence up to which retention may delete rows of ``queue``.

    Nothing is deleted by this command.
    """

    queue: str
    limits: RetentionLimits


@dataclass(frozen=True, slots=True)
class TrimPlan:
    """Answers :class:`PlanTrim`: the last sequence to delete, or ``None`` for nothing."""

    to: int | None


@dataclass(frozen=True, slots=True)
class StartPublishing:
    """Requests to publish the Delta state, because the data directory was activated."""

    state: str
    """Where the Delta state is published."""


@dataclass(frozen=True, slots=True)
class PublishingStarted:
    """Answers :class:`StartPublishing`, also if the publishers run already."""


ReaderCommand = (
    ReadRows
    | FindBatchEnd
    | CountHoles
    | FindFirstSince
    | ReadPackets
    | ReadPriorities
    | ReadRecord
    | FindQueuesToSeal
    | FindQueuesToTrim
    | SealRows
    | PlanTrim
    | StartPublishing
)

READER_COMMANDS: Encoding[ReaderCommand] = Encoding(
    {
        "rows": ReadRows,
        "end": FindBatchEnd,
        "holes": CountHoles,
        "first-since": FindFirstSince,
        "packets": ReadPackets,
        "priorities": ReadPriorities,
        "record": ReadRecord,
        "to-seal": FindQueuesToSeal,
        "to-trim": FindQueuesToTrim,
        "seal": SealRows,
        "trim": PlanTrim,
        "publish": StartPublishing,
    }
)


# --- events ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PositionsSynced:
    """A part of the positions of a :class:`.events.StatePublished` that has more packets."""

    sequences: dict[str, dict[str, int]]


ReaderEvent = StateEvent | PositionsSynced

READER_EVENTS: Encoding[ReaderEvent] = Encoding(
    {
        "compared": StateCompared,
        "synced": PositionsSynced,
        "published": StatePublished,
        "rows_gone": RowsGone,
        "failed": PublisherFailed,
        "recovered": PublisherRecovered,
    }
)
