"""Name every field of the log with its type.

A field has one type in the whole product. Elasticsearch and its like learn the type of a name from
the first line that has it, and refuse lines with another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

FIXED = ("time", "level", "event", "message", "process", "logger", "exception")
"""Names that a line of JSON has besides the fields of its event."""


def member_name(field: str) -> str:
    """Return the name of a field in JSON: with ``_`` at its end if the line has such a name."""
    return f"{field}_" if field in FIXED else field


class FieldType(Enum):
    """Type of a field in JSON. Any field may also be ``null``."""

    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"


_NAMES: Mapping[FieldType, str] = {
    FieldType.STRING: """
        action address after answer api application at batch because before by
        checkpoints_dropped commit consumer consumers destination dir do epoch event_ fault file
        files first folder for from held_by hint host how id interface key kind last listening live
        log message_id method mode name now of on on_key_conflict op other path peer query
        queue queue_manager ranges reason remedy send send_receipts_to sender_name sequence
        serials session shape source source_qm status step stream_id table tables to token
        tsi type uri url verdict version voided what who_and_why why writer
    """,
    FieldType.INTEGER: """
        accounts auth_type batches block bytes code conflicts connections count destinations
        end entries events free_bytes free_inside_bytes further in_doubt known last_ordinal
        least_bytes left limit messages new packets pending pid position promised_bytes
        question queues read_to received received_there rewritten row rows stored try
        unacknowledged undecided waiting wanted without_row
    """,
    FieldType.NUMBER: "pause_s restart_in seconds",
    FieldType.BOOLEAN: "fatal forced in out transactional",
}

FIELDS: Mapping[str, FieldType] = MappingProxyType(
    {name: kind for kind, names in _NAMES.items() for name in names.split()}
)
"""Name of each field of a log line → its type.

Names that mean a number in one event and a word in another are strings.
"""
