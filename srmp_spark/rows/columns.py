"""List the columns of a row (INTERFACE.md section 4) once.

The schemas of Spark, Arrow and Delta are made from this list.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: tuple[tuple[str, str], ...] = (
    ("queue_manager", "string"),
    ("epoch", "string"),
    ("sequence", "long"),
    ("queue", "string"),
    ("arrived_at", "timestamp"),
    ("transport", "string"),
    ("peer", "string"),
    ("sender_name", "string"),
    ("message_id", "string"),
    ("lineage", "string"),
    ("uniquifier", "long"),
    ("class", "int"),
    ("priority", "int"),
    ("delivery", "string"),
    ("label", "string"),
    ("body", "binary"),
    ("body_type", "long"),
    ("body_text", "string"),
    ("soap_action", "string"),
    ("soap_body", "string"),
    ("extension", "binary"),
    ("correlation_id", "binary"),
    ("app_specific", "long"),
    ("sent_at", "timestamp"),
    ("expires_at", "timestamp"),
    ("expired", "boolean"),
    ("time_to_reach_queue", "timestamp"),
    ("destination", "string"),
    ("destination_list", "array<string>"),
    ("response_queue", "string"),
    ("response_list", "array<string>"),
    ("admin_queue", "string"),
    ("admin_list", "array<string>"),
    ("source_qm", "string"),
    ("stream_id", "string"),
    ("stream_sequence", "long"),
    ("stream_previous", "long"),
    ("first_in_transaction", "boolean"),
    ("last_in_transaction", "boolean"),
    ("journal", "boolean"),
    ("dead_letter", "boolean"),
    ("trace", "boolean"),
    ("receipts_requested", "array<string>"),
    ("receipt_kind", "string"),
    ("receipt_for", "string"),
    ("receipt_decision", "string"),
    ("receipt_at", "timestamp"),
    ("receipt_stream_id", "string"),
    ("receipt_last_ordinal", "long"),
    ("connector_type", "string"),
    ("connector_qm", "string"),
    ("provider_name", "string"),
    ("provider_type", "long"),
    ("hash_algorithm", "long"),
    ("signature_status", "string"),
    ("lookup_id", "decimal(20,0)"),
    ("wsrm_sequence", "string"),
    ("wsrm_number", "long"),
    ("envelope", "string"),
)
"""Name and Spark SQL type of each column, in the order of the rows.

``envelope`` is null unless the reader requests it (option ``includeEnvelope``).
"""

NAMES: tuple[str, ...] = tuple(name for name, _ in COLUMNS)
KINDS: dict[str, str] = dict(COLUMNS)
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
