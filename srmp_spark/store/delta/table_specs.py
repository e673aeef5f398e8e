"""The state tables, as data: names, columns, properties (INTERFACE.md section 4, "State tables").

Every table carries ``queue_manager`` (the partition), ``position`` and ``written_at``. ``position`` is the number of the queue
manager's commit up to which its log had been read when the row was written: once a publisher has reported position P, the
tables hold all that the queue manager had committed by P. In the four tables of sending it counts the commits of the outbox,
which is a database of its own (ADR 0010).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import pyarrow as pa

from srmp_spark.rows.columns import arrow_schema

FORMAT = 1
"""``srmp.format`` of what this version writes; a table with a higher one is refused (exit code 6)."""
FORMAT_PROPERTY = "srmp.format"
PARTITION = "queue_manager"

TIME_TRAVEL_HOURS = 48
"""How long old versions of a table can be read: long enough to look into yesterday's incident. At the default interval of
5 s a busy table gains 17,280 commits a day, and every reader has to list what is kept."""

QUEUE_KEPT_HOURS = 1
"""The same for ``outgoing_queue``: up to two files of 4 MB are replaced per interval and busy destination, 6 GB an hour."""

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_OWN = (("position", pa.int64()), ("written_at", _TIMESTAMP))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """One state table."""

    name: str
    schema: pa.Schema
    append_only: bool
    """True: rows are only added (``delta.appendOnly``). False: the rows of one queue manager are replaced as a whole."""
    kept_hours: int = TIME_TRAVEL_HOURS
    """How long old versions can be read."""
    statistics: tuple[str, ...]
    """Columns whose least and greatest value stand in the Delta log, for data skipping; bodies would only swell the log."""

    @property
    def configuration(self) -> dict[str, str]:
        """The table properties at creation."""
        kept = f"interval {self.kept_hours} hours"
        return {
            FORMAT_PROPERTY: str(FORMAT),
            "delta.appendOnly": str(self.append_only).lower(),
            "delta.logRetentionDuration": kept,
            "delta.deletedFileRetentionDuration": kept,
            "delta.dataSkippingStatsColumns": ",".join(self.statistics),
        }

    @property
    def file_schema(self) -> pa.Schema:
        """The columns inside a data file: all but the partition column, which Delta keeps in the log."""
        return pa.schema([field for field in self.schema if field.name != PARTITION])


LAST_OF_FORMAT = "written_at"
"""The last column that every table had from the first version on; those after it came later."""


@cache
def inbox() -> TableSpec:
    """Every accepted message: the columns of the Spark source."""
    schema = pa.schema([*arrow_schema(), *_OWN])
    return TableSpec(
        name="inbox",
        schema=schema,
        append_only=True,
        statistics=("epoch", "queue", "sequence", "arrived_at", "position"),
    )


@cache
def message_id_history() -> TableSpec:
    """The identifiers seen, as closed runs per lineage ([MC-MQSRM] 3.1.1.1.5)."""
    columns = [
        (PARTITION, pa.string()),
        ("lineage", pa.string()),
        ("uniquifier_first", pa.int64()),
        ("uniquifier_last", pa.int64()),
        ("last_received_at", _TIMESTAMP),
        *_OWN,
    ]
    return TableSpec(
        name="message_id_history",
        schema=pa.schema(columns),
        append_only=False,
        statistics=("position",),
    )


@cache
def incoming_streams() -> TableSpec:
    """One row per queue and ``source_qm``, the GUID inside the stream identifier ([MC-MQSRM] 3.1.1.1.6)."""
    columns = [
        (PARTITION, pa.string()),
        ("queue", pa.string()),
        ("source_qm", pa.string()),
        ("stream_id", pa.string()),
        ("sequence_number", pa.int64()),
        ("last_acknowledged", pa.int64()),
        ("send_receipts_to", pa.string()),
        ("peer", pa.string()),
        ("reject_count", pa.int64()),
        ("started_at", _TIMESTAMP),
        ("last_access_at", _TIMESTAMP),
        *_OWN,
        ("sender_name", pa.string()),
    ]
    return TableSpec(
        name="incoming_streams",
        schema=pa.schema(columns),
        append_only=False,
        statistics=("position",),
    )


@cache
def queues() -> TableSpec:
    """One row per queue: what a lost disk takes along beside its rows. Lists are JSON, as in ``options`` of the store."""
    columns = [
        (PARTITION, pa.string()),
        ("queue", pa.string()),
        ("transactional", pa.bool_()),
        ("paused", pa.bool_()),
        ("options", pa.string()),
        ("trimmed_to", pa.int64()),
        ("deleted_at", _TIMESTAMP),
        ("epochs", pa.string()),  # [[epoch, first], …], oldest first
        ("holes", pa.string()),  # [[first, last, reason], …]
        (
            "consumers",
            pa.string(),
        ),  # [[name, received, [[first, last], …] or packed (store/marks.py)], …]
        *_OWN,
    ]
    return TableSpec(
        name="queues", schema=pa.schema(columns), append_only=False, statistics=("position",)
    )


@cache
def counters() -> TableSpec:
    """Numbers that must never be given out twice: up to ``ceiling`` they may be in use."""
    columns = [(PARTITION, pa.string()), ("name", pa.string()), ("ceiling", pa.int64()), *_OWN]
    return TableSpec(
        name="counters", schema=pa.schema(columns), append_only=False, statistics=("position",)
    )


@cache
def wsrm_sequences() -> TableSpec:
    """One row per sequence of WS-ReliableMessaging that comes in, terminated ones for ten minutes more."""
    columns = [
        (PARTITION, pa.string()),
        ("queue", pa.string()),
        ("identifier", pa.string()),
        ("create_id", pa.string()),  # MessageID of its CreateSequence
        ("soap", pa.string()),
        ("addressing", pa.string()),
        ("rm", pa.string()),
        ("acks_to", pa.string()),
        ("state", pa.string()),
        ("accepted", pa.int64()),  # its messages 1 to this are rows
        ("last_number", pa.int64()),
        ("expires_at", _TIMESTAMP),
        ("peer", pa.string()),
        ("sender_name", pa.string()),
        ("created_at", _TIMESTAMP),
        ("changed_at", _TIMESTAMP),
        ("returns", pa.string()),  # the sequence for replies that its client offered, empty: none
        *_OWN,
    ]
    return TableSpec(
        name="wsrm_sequences",
        schema=pa.schema(columns),
        append_only=False,
        statistics=("position",),
    )


@cache
def pgm_loss() -> TableSpec:
    """What is lost of multicast messages: packets that nobody repaired, and messages that were refused."""
    columns = [
        (PARTITION, pa.string()),
        ("epoch", pa.string()),
        ("number", pa.int64()),
        ("queue", pa.string()),
        ("address", pa.string()),
        ("source", pa.string()),
        ("tsi", pa.string()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("packets", pa.int64()),
        ("reason", pa.string()),
        ("detail", pa.string()),
        ("lost_at", _TIMESTAMP),
        *_OWN,
    ]
    statistics = ("queue", "number", "lost_at", "position")
    return TableSpec(
        name="pgm_loss", schema=pa.schema(columns), append_only=True, statistics=statistics
    )


# Sending

_MESSAGE = (
    (PARTITION, pa.string()),
    ("destination", pa.string()),
    ("message_id", pa.string()),
    ("application", pa.string()),
    ("key", pa.string()),
    ("state", pa.string()),
    ("stream_id", pa.string()),
    ("stream_sequence", pa.int64()),
    ("stream_previous", pa.int64()),
    ("attempts", pa.int32()),
    ("enqueued_at", _TIMESTAMP),
    ("first_sent_at", _TIMESTAMP),
    ("last_sent_at", _TIMESTAMP),
    ("last_status", pa.int32()),
    ("label", pa.string()),
    ("body", pa.binary()),
    ("body_type", pa.int64()),
    ("extension", pa.binary()),
    ("priority", pa.int32()),
    ("correlation_id", pa.binary()),
    ("app_specific", pa.int64()),
    ("response_queue", pa.string()),
    ("admin_queue", pa.string()),
    ("expires_at", _TIMESTAMP),
)
_TO_SEND_AGAIN = (
    ("serial", pa.int64()),
    ("delivery", pa.string()),
    ("journal", pa.bool_()),
    ("dead_letter", pa.bool_()),
    ("first_in_transaction", pa.bool_()),
    ("last_in_transaction", pa.bool_()),
    ("to", pa.string()),  # where it is spelled otherwise than the queue
    (
        "envelope",
        pa.binary(),
    ),  # of a message that is forwarded: what is sent, without body and extension
    ("via", pa.string()),
    ("destination_list", pa.string()),  # all destinations of a message to several
    ("soap_action", pa.string()),  # of a message of a reliable session
    ("wsrm_version", pa.string()),  # as the row said it; null: the default
    ("soap_version", pa.string()),
    ("wsa_version", pa.string()),
)
"""What a message that waits needs beside its content to be sent from a new data directory. These columns came later: they stand
at the end, where Delta adds them to a table that exists."""
_MOVED = (("reason", pa.string()), ("moved_at", _TIMESTAMP), ("target", pa.string()))


@cache
def outgoing_streams() -> TableSpec:
    """One row per destination: its live stream ([MC-MQSRM] 3.1.1.1.6), else its queue of other messages."""
    columns = [
        (PARTITION, pa.string()),
        ("destination", pa.string()),
        ("stream_id", pa.string()),
        ("sequence_number", pa.int64()),
        ("last_acknowledged", pa.int64()),
        ("unacknowledged", pa.int64()),
        ("unread", pa.int64()),
        ("resend_interval_index", pa.int32()),
        ("resend_at", _TIMESTAMP),
        ("last_acknowledged_at", _TIMESTAMP),
        ("state", pa.string()),
        *_OWN,
        ("wsrm_sequence", pa.string()),  # of a reliable session: its identifier, while there is one
        ("wsrm_number", pa.int64()),  # … the highest number that a message has in it
        ("buffer_remaining", pa.int64()),  # … the room that the service told last
    ]
    return TableSpec(
        name="outgoing_streams",
        schema=pa.schema(columns),
        append_only=False,
        statistics=("position",),
    )


@cache
def outgoing_queue() -> TableSpec:
    """One row per message that is not finished; whole files are replaced, see :mod:`.outgoing_layout`."""
    return TableSpec(
        name="outgoing_queue",
        schema=pa.schema([*_MESSAGE, *_OWN, *_TO_SEND_AGAIN]),
        append_only=False,
        kept_hours=QUEUE_KEPT_HOURS,
        statistics=("destination", "stream_sequence", "enqueued_at", "position"),
    )


@cache
def dead_letter_queue() -> TableSpec:
    """What will not arrive, with its content and why."""
    return _moved("dead_letter_queue")


@cache
def journal_queue() -> TableSpec:
    """What was finished and whose sender asked for a copy ([MC-MQSRM] 3.1.5.2.2)."""
    return _moved("journal_queue")


def _moved(name: str) -> TableSpec:
    return TableSpec(
        name=name,
        schema=pa.schema([*_MESSAGE, *_MOVED, *_OWN]),
        append_only=True,
        statistics=("destination", "moved_at", "position"),
    )
