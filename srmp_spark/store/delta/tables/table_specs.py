"""The state tables as data: names, columns, properties (INTERFACE.md section 4, "State tables").

Every table carries ``queue_manager`` (the partition), ``position`` and ``written_at``. ``position``
is the number of the queue manager's commit up to which its log had been read when the row was
written. Once a publisher has reported position P, the tables hold everything that the queue manager
had committed by P. In the four tables of sending it counts the commits of the outbox, which is a
separate database (ADR 0010).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import pyarrow as pa

from srmp_spark.rows.columns import arrow_schema

FORMAT = 1
"""Value of ``srmp.format`` that this version writes.

A table with a higher value is refused (exit code 6).
"""
FORMAT_PROPERTY = "srmp.format"
PARTITION = "queue_manager"

TIME_TRAVEL_HOURS = 48
"""Hours for which old versions of a table can be read: long enough to look into yesterday's
incident. At the default interval of 5 s a busy table gains 17,280 commits a day, and every
reader has to list what is kept.
"""

QUEUE_KEPT_HOURS = 1
"""Hours for which old versions of ``outgoing_queue`` can be read.

Up to two files of 4 MB are replaced per interval and busy destination, 6 GB an hour.
"""

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_OWN = (("position", pa.int64()), ("written_at", _TIMESTAMP))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """The specification of one state table."""

    name: str
    schema: pa.Schema
    append_only: bool
    """Whether rows are only added (``delta.appendOnly``).

    Otherwise files are replaced: those of one queue manager as a whole, in ``outgoing_queue``
    single ones.
    """
    kept_hours: int = TIME_TRAVEL_HOURS
    """Hours for which old versions can be read."""
    statistics: tuple[str, ...]
    """Columns whose least and greatest values stand in the Delta log, for data skipping.

    Bodies would only swell the log.
    """

    @property
    def configuration(self) -> dict[str, str]:
        """Return the Delta table properties that the table gets when it is created."""
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
        """Return the columns inside a data file: all except the partition column.

        Delta keeps the partition column in the log.
        """
        return pa.schema([field for field in self.schema if field.name != PARTITION])


LAST_OF_FORMAT = "written_at"
"""The last column that every table had from the first version on.

The columns after it were added later.
"""


@cache
def inbox() -> TableSpec:
    """Return the specification of ``inbox``, the table of every accepted message.

    The table has the columns of the Spark source.
    """
    schema = pa.schema([*arrow_schema(), *_OWN])
    return TableSpec(
        name="inbox",
        schema=schema,
        append_only=True,
        statistics=("epoch", "queue", "sequence", "arrived_at", "position"),
    )


@cache
def message_id_history() -> TableSpec:
    """Return the specification of the table of known message identifiers.

    Its rows are closed runs of identifiers per lineage.

    See [MC-MQSRM] 3.1.1.1.5.
    """
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
    """Return the specification of the table of incoming streams.

    The table has one row per queue and ``source_qm``.

    ``source_qm`` is the GUID inside the stream identifier ([MC-MQSRM] 3.1.1.1.6).
    """
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
    """Return the specification of the table of queues.

    The table has one row per queue. The table holds what a lost disk destroys besides the rows of
    messages. Lists are JSON, as in ``options`` of the store.
    """
    columns = [
        (PARTITION, pa.string()),
        ("queue", pa.string()),
        ("transactional", pa.bool_()),
        ("paused", pa.bool_()),
        ("options", pa.string()),
        ("trimmed_to", pa.int64()),
        ("deleted_at", _TIMESTAMP),
        # JSON: [[epoch, first], …], oldest first.
        ("epochs", pa.string()),
        # JSON: [[first, last, reason], …].
        ("holes", pa.string()),
        # JSON: [[name, received, [[first, last], …] or packed (store/tables/marks.py)], …].
        ("consumers", pa.string()),
        *_OWN,
    ]
    return TableSpec(
        name="queues", schema=pa.schema(columns), append_only=False, statistics=("position",)
    )


@cache
def counters() -> TableSpec:
    """Return the specification of the table of numbers that must never be issued twice.

    Numbers up to ``ceiling`` may be in use.
    """
    columns = [(PARTITION, pa.string()), ("name", pa.string()), ("ceiling", pa.int64()), *_OWN]
    return TableSpec(
        name="counters", schema=pa.schema(columns), append_only=False, statistics=("position",)
    )


@cache
def wsrm_sequences() -> TableSpec:
    """Return the specification of the table of incoming WS-ReliableMessaging sequences.

    The table has one row per sequence.

    Terminated sequences are kept for ten minutes more.
    """
    columns = [
        (PARTITION, pa.string()),
        ("queue", pa.string()),
        ("identifier", pa.string()),
        # MessageID of the CreateSequence message.
        ("create_id", pa.string()),
        ("soap", pa.string()),
        ("addressing", pa.string()),
        ("rm", pa.string()),
        ("acks_to", pa.string()),
        ("state", pa.string()),
        # Messages 1 to this number are rows.
        ("accepted", pa.int64()),
        ("last_number", pa.int64()),
        ("expires_at", _TIMESTAMP),
        ("peer", pa.string()),
        ("sender_name", pa.string()),
        ("created_at", _TIMESTAMP),
        ("changed_at", _TIMESTAMP),
        # The sequence for replies that the client offered; empty if it offered none.
        ("returns", pa.string()),
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
    """Return the specification of the table of lost multicast messages.

    The rows are packets that were not repaired, and messages that were refused.
    """
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
    # Destination as the message spells it, if that differs from the queue.
    ("to", pa.string()),
    # What is sent of a forwarded message, without body and extension.
    ("envelope", pa.binary()),
    ("via", pa.string()),
    # All destinations of a message to several queues.
    ("destination_list", pa.string()),
    # SOAP action of a message of a reliable session.
    ("soap_action", pa.string()),
    # Version as the row stated it; null means the default.
    ("wsrm_version", pa.string()),
    ("soap_version", pa.string()),
    ("wsa_version", pa.string()),
)
"""Columns that a waiting message needs besides its content to be sent from a new data directory.

These columns were added later: they stand at the end, where Delta adds them to an existing table.
"""
_MOVED = (("reason", pa.string()), ("moved_at", _TIMESTAMP), ("target", pa.string()))


@cache
def outgoing_streams() -> TableSpec:
    """Return the specification of the table of outgoing streams.

    The table has one row per destination. The row shows the live stream ([MC-MQSRM] 3.1.1.1.6),
    else the queue of other messages.
    """
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
        # Identifier of the sequence of a reliable session, while there is one.
        ("wsrm_sequence", pa.string()),
        # Highest number that a message has in this sequence.
        ("wsrm_number", pa.int64()),
        # Room that the service reported last.
        ("buffer_remaining", pa.int64()),
    ]
    return TableSpec(
        name="outgoing_streams",
        schema=pa.schema(columns),
        append_only=False,
        statistics=("position",),
    )


@cache
def outgoing_queue() -> TableSpec:
    """Return the specification of the table of messages that are not finished.

    The table has one row per message.

    Whole files are replaced, see :mod:`.outgoing_layout`.
    """
    return TableSpec(
        name="outgoing_queue",
        schema=pa.schema([*_MESSAGE, *_OWN, *_TO_SEND_AGAIN]),
        append_only=False,
        kept_hours=QUEUE_KEPT_HOURS,
        statistics=("destination", "stream_sequence", "enqueued_at", "position"),
    )


@cache
def dead_letter_queue() -> TableSpec:
    """Return the specification of the table of messages that will not arrive.

    The rows have the content of the messages and the reason.
    """
    return _moved("dead_letter_queue")


@cache
def journal_queue() -> TableSpec:
    """Return the specification of the table of journal copies.

    The rows are finished messages whose sender requested a copy ([MC-MQSRM] 3.1.5.2.2).
    """
    return _moved("journal_queue")


def _moved(name: str) -> TableSpec:
    return TableSpec(
        name=name,
        schema=pa.schema([*_MESSAGE, *_MOVED, *_OWN]),
        append_only=True,
        statistics=("destination", "moved_at", "position"),
    )
