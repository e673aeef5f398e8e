"""List the columns of a row (INTERFACE.md section 4) once.

The schemas of Spark, Arrow and Delta are made from this list.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa


class Column(NamedTuple):
    """One column of a row. ``make docs-reference`` makes the page of all columns of these."""

    name: str
    kind: str
    """Spark SQL type."""
    section: str
    """What the column is about: a heading of the reference."""
    meaning: str
    origin: str = ""
    """Sentence of the specification that defines the value."""


COLUMNS: tuple[Column, ...] = (
    Column(
        "queue_manager",
        "string",
        "place in the log",
        'GUID of the queue manager that holds the row; null in a batch of `format("mqrr")`.',
    ),
    Column(
        "epoch",
        "string",
        "place in the log",
        "Random name that changes whenever a queue manager starts from anything other than its "
        'own directory; null in a batch of `format("mqrr")`.',
    ),
    Column(
        "sequence",
        "long",
        "place in the log",
        "Number of the row in its queue, from 1, ascending in the order of arrival.",
    ),
    Column(
        "queue",
        "string",
        "place in the log",
        "Canonical name of the queue, such as `private$/orders`.",
    ),
    Column(
        "arrived_at",
        "timestamp",
        "arrival",
        "When the message was accepted, by the clock of the queue manager.",
    ),
    Column(
        "transport",
        "string",
        "arrival",
        "How the message arrived: `http`, `https`, `pgm`, `wsrm`, `mqrr` or `api`.",
    ),
    Column(
        "peer",
        "string",
        "arrival",
        "Address and port that the message came from; of a subscription, its `host`.",
    ),
    Column(
        "sender_name",
        "string",
        "arrival",
        "Who sent it, if that was proved: the subject of the client certificate, or the account "
        "of a call.",
    ),
    Column(
        "message_id",
        "string",
        "identity",
        "MSMQ's identifier, `{guid}\\number`. Null for a message of WS-ReliableMessaging.",
        "[MC-MQSRM] 2.2.4.3",
    ),
    Column(
        "lineage",
        "string",
        "identity",
        "GUID in `message_id`: the queue manager that made the message.",
        "[MC-MQSRM] 2.2.4.3",
    ),
    Column(
        "uniquifier",
        "long",
        "identity",
        "Number in `message_id`. Numbers from 2^63 are shown as negative numbers.",
        "[MC-MQSRM] 2.2.4.3",
    ),
    Column(
        "class",
        "int",
        "properties",
        "Message class; 0 is a normal message. Numbers from 2^31 are shown as negative numbers.",
        "[MC-MQSRM] 2.2.6.1",
    ),
    Column(
        "priority",
        "int",
        "properties",
        "0 to 7; 3 is MSMQ's default, 0 that of a transactional message.",
        "[MC-MQSRM] 2.2.6.2",
    ),
    Column(
        "delivery",
        "string",
        "properties",
        "`transactional`, `recoverable` or `express`.",
        "[MC-MQSRM] 2.2.5.2.1, 2.2.5.3",
    ),
    Column(
        "label",
        "string",
        "properties",
        "Label of the message; null if the action has none.",
        "[MC-MQSRM] 2.2.4.1",
    ),
    Column(
        "body",
        "binary",
        "content",
        "Bytes of the body. Of WS-ReliableMessaging: the content of the SOAP Body.",
        "[MC-MQSRM] 2.2.2",
    ),
    Column(
        "body_type",
        "long",
        "content",
        "What the sender says that the body is, as a VARIANT type: 0 unknown, 8 and 31 text in "
        "UTF-16.",
        "[MC-MQSRM] 2.2.6.9",
    ),
    Column(
        "body_text",
        "string",
        "content",
        "The body as text, by `body_type`; null if it is no text. Of type 0: as its byte order "
        "mark says (UTF-16), else its XML declaration (ISO-8859-1), else UTF-8.",
    ),
    Column(
        "soap_action",
        "string",
        "content",
        "The header `SOAPAction`; of WS-ReliableMessaging `wsa:Action`.",
    ),
    Column(
        "soap_body",
        "string",
        "content",
        "XML in the SOAP Body of an SRMP message, which is empty in messages of Windows.",
        "[MC-MQSRM] 2.2.2",
    ),
    Column(
        "extension",
        "binary",
        "content",
        "Second body for programs: the headers of NServiceBus and Rebus.",
        "[MC-MQSRM] 2.2.2",
    ),
    Column(
        "correlation_id",
        "binary",
        "properties",
        "20 bytes that the application set, often the identifier of a request.",
        "[MC-MQSRM] 2.2.6.5",
    ),
    Column(
        "app_specific",
        "long",
        "properties",
        "Number that the application set.",
        "[MC-MQSRM] 2.2.6.8",
    ),
    Column(
        "sent_at",
        "timestamp",
        "times",
        "When the message was sent, by the clock of the sender.",
        "[MC-MQSRM] 2.2.5.1.2",
    ),
    Column(
        "expires_at",
        "timestamp",
        "times",
        "When the message is of no use any more, as its sender says.",
        "[MC-MQSRM] 2.2.5.1.1",
    ),
    Column(
        "expired",
        "boolean",
        "times",
        "True if the message arrived after `time_to_reach_queue`, or, without one, after "
        "`expires_at`.",
        "[MC-MQSRM] 3.1.5.1.4",
    ),
    Column(
        "time_to_reach_queue",
        "timestamp",
        "times",
        "When the message should have reached its queue.",
        "[MC-MQSRM] 2.2.6.17",
    ),
    Column(
        "destination",
        "string",
        "addresses",
        "Where the sender sent it, as a format name, with its case.",
        "[MC-MQSRM] 2.2.4.2",
    ),
    Column(
        "destination_list",
        "array<string>",
        "addresses",
        "All destinations of a message to several queues.",
        "[MC-MQSRM] 2.2.6.14",
    ),
    Column(
        "response_queue",
        "string",
        "addresses",
        "Format name of the queue for replies.",
        "[MC-MQSRM] 2.2.4.4",
    ),
    Column(
        "response_list",
        "array<string>",
        "addresses",
        "All queues for replies, if the sender names several.",
        "[MC-MQSRM] 2.2.6.16",
    ),
    Column(
        "admin_queue",
        "string",
        "addresses",
        "Format name of the queue for the receipts that the application requests.",
        "[MC-MQSRM] 2.2.5.2.2, 2.2.5.2.3",
    ),
    Column(
        "admin_list",
        "array<string>",
        "addresses",
        "All queues for receipts, if the sender names several.",
        "[MC-MQSRM] 2.2.6.15",
    ),
    Column(
        "source_qm",
        "string",
        "identity",
        "GUID of the queue manager that sent the message.",
        "[MC-MQSRM] 2.2.6.13",
    ),
    Column(
        "stream_id",
        "string",
        "stream",
        "Identifier of the sender's stream, `uid:guid\\number`; null outside of a stream.",
        "[MC-MQSRM] 2.2.5.3.1",
    ),
    Column(
        "stream_sequence",
        "long",
        "stream",
        "Position of the message in its stream.",
        "[MC-MQSRM] 2.2.5.3.2",
    ),
    Column(
        "stream_previous",
        "long",
        "stream",
        "Position of the message before it in the stream; 0 for the first one.",
        "[MC-MQSRM] 2.2.5.3.3",
    ),
    Column(
        "first_in_transaction",
        "boolean",
        "stream",
        "True for the first message of an MSMQ transaction.",
        "[MC-MQSRM] 2.2.6.11",
    ),
    Column(
        "last_in_transaction",
        "boolean",
        "stream",
        "True for the last message of an MSMQ transaction.",
        "[MC-MQSRM] 2.2.6.11",
    ),
    Column(
        "journal",
        "boolean",
        "requests of the sender",
        "True if the sender keeps a copy of the message.",
        "[MC-MQSRM] 2.2.6.3",
    ),
    Column(
        "dead_letter",
        "boolean",
        "requests of the sender",
        "True if the sender keeps the message when it cannot be delivered.",
        "[MC-MQSRM] 2.2.6.4",
    ),
    Column(
        "trace",
        "boolean",
        "requests of the sender",
        "True if the sender asks for reports about the way of the message.",
        "[MC-MQSRM] 2.2.6.6",
    ),
    Column(
        "receipts_requested",
        "array<string>",
        "requests of the sender",
        "Receipts that the application requests: `delivery`, `commitment_positive`, "
        "`commitment_negative`.",
        "[MC-MQSRM] 2.2.5.2",
    ),
    Column(
        "receipt_kind",
        "string",
        "receipts",
        "Kind of receipt that this row is; null for any other message.",
        "[MC-MQSRM] 2.2.5.4 to 2.2.5.6",
    ),
    Column(
        "receipt_for",
        "string",
        "receipts",
        "`message_id` of the message that the receipt is about.",
        "[MC-MQSRM] 2.2.5.4, 2.2.5.5",
    ),
    Column(
        "receipt_decision",
        "string",
        "receipts",
        "`positive` or `negative`, of a commitment receipt.",
        "[MC-MQSRM] 2.2.5.5",
    ),
    Column(
        "receipt_at",
        "timestamp",
        "receipts",
        "When the event happened that the receipt is about.",
        "[MC-MQSRM] 2.2.5.4, 2.2.5.5",
    ),
    Column(
        "receipt_stream_id",
        "string",
        "receipts",
        "Stream that a stream receipt is about.",
        "[MC-MQSRM] 2.2.5.6",
    ),
    Column(
        "receipt_last_ordinal",
        "long",
        "receipts",
        "Last position of the stream that the receipt covers.",
        "[MC-MQSRM] 2.2.5.6",
    ),
    Column(
        "connector_type",
        "string",
        "signature and provider",
        "GUID of a connector's kind of message.",
        "[MC-MQSRM] 2.2.6.7",
    ),
    Column(
        "connector_qm",
        "string",
        "stream",
        "GUID of the connector's queue manager.",
        "[MC-MQSRM] 2.2.6.11",
    ),
    Column(
        "provider_name",
        "string",
        "signature and provider",
        "Name of the cryptographic provider of the signature.",
        "[MC-MQSRM] 2.2.6.12",
    ),
    Column(
        "provider_type",
        "long",
        "signature and provider",
        "Type of the cryptographic provider.",
        "[MC-MQSRM] 2.2.6.12",
    ),
    Column(
        "hash_algorithm",
        "long",
        "signature and provider",
        "Hash algorithm of the signature, as a number of Windows.",
        "[MC-MQSRM] 2.2.6.10",
    ),
    Column(
        "signature_status",
        "string",
        "signature and provider",
        "`none`, `valid`, `invalid` or `unverified`; it is found once, when the message is "
        "accepted.",
        "[MC-MQSRM] 2.2.7",
    ),
    Column(
        "lookup_id",
        "decimal(20,0)",
        "other transports",
        "Lookup identifier of a message that came by remote read.",
    ),
    Column(
        "wsrm_sequence",
        "string",
        "other transports",
        "Identifier of the sequence, of a message of WS-ReliableMessaging.",
    ),
    Column(
        "wsrm_number",
        "long",
        "other transports",
        "Number of the message in its sequence.",
    ),
    Column(
        "envelope",
        "string",
        "content",
        "The envelope as it arrived; null unless the reader asks for it (`includeEnvelope`, or "
        "chosen in `columns`).",
    ),
)
"""Each column, in the order of the rows.

``envelope`` is null unless the reader requests it (option ``includeEnvelope``).
"""

NAMES: tuple[str, ...] = tuple(each.name for each in COLUMNS)
KINDS: dict[str, str] = {each.name: each.kind for each in COLUMNS}
"""Spark SQL type of each column, by name of the column."""

WIDE = ("soap_body", "extension", "body_text", "body", "envelope")
"""Columns whose values may be large.

A reader that needs none of these columns gets a segment without its wide part (rows/segment.py).
"""

LOG_COLUMNS = ("queue_manager", "epoch", "queue")
"""Columns that hold one value for a whole segment of one queue.

The reader adds these columns; no stored row has them.
"""


def with_sequence(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return ``names``, with ``sequence`` first if it is missing.

    ``sequence`` is always read, because rows are counted by sequence.
    """
    return names if "sequence" in names else ("sequence", *names)


@cache
def arrow_schema(names: tuple[str, ...] = NAMES) -> pa.Schema:
    """Return the Arrow schema of the columns ``names``.

    The types are those that PySpark 4.2 accepts (``timestamp[us, UTC]``, ``binary``).
    """
    import pyarrow as pa
    # Imported here because the accepting process of the queue manager never loads Arrow.

    types = {
        "string": pa.string(),
        "long": pa.int64(),
        "int": pa.int32(),
        "boolean": pa.bool_(),
        "binary": pa.binary(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "array<string>": pa.list_(pa.string()),
        "decimal(20,0)": pa.decimal128(20, 0),
    }
    return pa.schema([(name, types[KINDS[name]]) for name in names])


NOT_FOR_A_SINK = frozenset({"destination", "delivery", "time_to_reach_queue", "admin_queue"})
"""Columns of the source whose names have another meaning in a sink.

A sink that used these values would send the rows back to the queue that they came from, with the
time limit and the administration queue of the original sender.
"""


def comment_of(name: str) -> str | None:
    """Return the comment for a source column that a sink must ignore; ``None`` for others.

    The sink recognizes such a column by this comment. Spark keeps the comment through selections,
    filters and files. A computed column has no comment, and another column that gets the name has
    the comment of its own name.
    """
    return f"{name} of the message that came; a sink ignores it" if name in NOT_FOR_A_SINK else None


def spark_ddl(names: Iterable[str] = NAMES) -> str:
    """Return the columns ``names`` as DDL for ``DataSource.schema()``, with their comments."""
    commented = ((name, KINDS[name], comment_of(name)) for name in names)
    return ", ".join(
        f"`{name}` {kind}" + (f" COMMENT '{text}'" if text else "")
        for name, kind, text in commented
    )
