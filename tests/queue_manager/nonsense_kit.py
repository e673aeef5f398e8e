"""A row that can be read for each table of ``store.db`` and ``outbox.db``, to be made unreadable column by column."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

GUID = "caf195ea-615c-4264-ae08-11a4e60194c0"
NOW = 1_795_641_912_733_786
URL = "http://127.0.0.1:9/msmq/q"
STORE: dict[str, dict[str, Any]] = {
    "queue_epochs": {"queue_id": 2, "epoch_id": 1, "first": 1},
    "holes": {"queue_id": 2, "first": 100, "last": 100, "reason": "purged"},
    "garbage": {"id": 5, "queue_id": 2, "first": 100, "last": 100},
    "streams": {
        "queue": "private$/t", "guid": GUID, "stream_ordinal": "7", "sequence_number": 1, "last_acknowledged": 1,
        "send_receipts_to": URL, "peer": "127.0.0.1:1", "source_qm": None, "reject_count": 0, "started_at": NOW,
        "last_access_at": NOW, "sender_name": None,
    },
    "history": {"lineage": GUID, "first": 1, "last": 2, "last_received_at": NOW},
    "consumers": {
        "queue_id": 2, "name": "c", "received": 0, "ahead": "[]", "planned": None, "holder": None, "lease_until": None,
    },
    "owed_receipts": {"id": 3, "kind": "delivery", "url": URL, "peer": "127.0.0.1:1", "payload": "{}", "created_at": NOW},
    "undecided": {
        "queue_id": 2, "sequence": 2, "lineage": GUID, "uniquifier": 5, "action": "MSMQ:a", "peer": "127.0.0.1",
        "sender_name": None, "commitment_to": URL, "positive": 1, "negative": 1, "final_to": None, "stream_guid": None,
        "stream_ordinal": None, "position": 0, "stream_name": None,
    },
    "decisions": {
        "id": 1, "queue_id": 2, "queue": "private$/orders", "first": 1, "last": 30, "reason": 0x4000, "decided_at": NOW,
    },
    "decided_receipts": {
        "id": 1, "number": None, "kind": "commitment", "url": URL, "queue": "private$/orders", "lineage": GUID,
        "uniquifier": 5, "action": "MSMQ:a", "peer": "127.0.0.1", "sender_name": "", "reason": 0x4000, "decided_at": NOW,
        "stream_guid": "", "stream_ordinal": None, "position": 0, "stream_name": None,
    },
    "told": {"lineage": GUID, "first": 1, "last": 1, "reason": 0x4000, "decided_at": NOW},
    "accepted_gaps": {
        "queue": "private$/t", "guid": GUID, "stream_ordinal": "7", "started_at": NOW, "after": 1, "next_position": None,
    },
    "pulled": {"subscription": "s", "lookup_id": 1, "message_id": f"{GUID}\\1", "pulled_at": NOW, "packet": b"x"},
    "copied": {"subscription": "s", "lookup_id": 1, "message_id": f"{GUID}\\1"},
    "subscriptions": {"name": "s", "entry": "{}", "removing": 0},
    "pgm_loss": {
        "number": 1, "epoch_id": 1, "position": 1, "queue": "private$/orders", "address": "239.1.1.1:9",
        "source": "127.0.0.1", "tsi": "x", "first": 1, "last": 1, "packets": 1, "reason": "lost", "detail": None,
        "lost_at": NOW,
    },
    "moves": {"queue_id": 2, "sequence": 1, "counter": 1, "last_moved_at": NOW},
    "wsrm_sequences": {
        "identifier": "urn:uuid:1", "queue_id": 2, "create_id": "urn:1", "soap": "V1_2", "addressing": "V2005_08",
        "rm": "V1_1", "acks_to": URL, "state": "OPEN", "accepted": 1, "last_number": None, "expires_at": None,
        "peer": "127.0.0.1:1", "sender_name": None, "created_at": NOW, "changed_at": NOW, "returns": "",
    },
}  # fmt: skip
OUTBOX: dict[str, dict[str, Any]] = {
    "meta": {"key": "retention_clock", "value": "1"},
    "queues": {
        "id": 5, "destination": URL, "kind": "stream", "stream_ordinal": "7", "base": 0, "end": 0, "acknowledged_to": 0,
        "released_to": 0, "receipts_url": "http://127.0.0.1/", "resend_interval_index": 0, "paused": 0, "started_at": NOW,
        "last_acknowledged_at": 0, "earlier": "[]", "earlier_receipts": "[]",
    },
    "batches": {
        "no": 3, "application": "a", "batch": "b", "stages": b"", "new": 1, "known": 0, "at": NOW, "committed": 1,
    },
    "parts": {
        "id": 4, "batch_no": 3, "rows": 0, "final": 0, "journal": 0, "queue_id": None, "first": None, "last": None,
        "ids_first": None, "application": None, "batch": None, "enqueued_at": None, "dead_letter_queue": None,
    },
    "stages": {
        "id": "s", "application": "a", "batch": "b", "partition": 0, "attempt": "1", "file": "f", "rows": 1, "bytes": 1,
        "order_by": "[]", "dead_letter": 0, "staged_at": NOW,
    },
    "scopes": {"id": 1, "application": "a", "destination": "d", "batch": "b", "batch_no": 3},
    "identity_log": {"id": 1, "batch_no": 3, "scope_id": 1, "hashes": b"x" * 16},
    "sources": {"id": 1, "queue_manager": GUID, "epoch": "c23683dce6551799", "queue": "q"},
    "positions": {"scope_id": 1, "source_id": 1, "block": 0, "known": b"x", "at": NOW},
    "position_contents": {"scope_id": 1, "source_id": 1, "block": 0, "batch_no": 3, "known": b"x", "contents": b"x"},
    "batch_conflicts": {"batch_no": 3, "conflicts": 1},
    "batch_bad_rows": {"batch_no": 3, "rows": 1, "first": "x"},
    "moved": {
        "id": 1, "fate": "dead", "destination": URL, "kind": "stream", "stream_ordinal": "7", "base": 0,
        "serials": b"\1\0\0\0\0\0\0\0", "ids_base": 0, "application": "a", "batch": "b", "enqueued_at": NOW, "reason": "x",
        "status": None, "message_class": None, "in_doubt": 0, "moved_at": NOW, "target": "", "rows": 1, "bytes": 1,
        "position": 1, "data_id": 1, "sent": None,
    },
    "reliable_sessions": {
        "queue_id": 5, "create_id": "c", "identifier": "i", "versions": "x", "assigned": 0, "numbers": "[]",
        "buffer_remaining": 1, "ending": 0, "lost": "", "begun_at": NOW,
    },
}  # fmt: skip
KEYS = {
    "history": "lineage", "consumers": "name", "undecided": "sequence", "told": "first", "streams": "guid",
    "accepted_gaps": "guid", "pulled": "lookup_id", "copied": "lookup_id", "subscriptions": "name", "pgm_loss": "number",
    "moves": "sequence", "wsrm_sequences": "identifier", "holes": "first", "queue_epochs": "epoch_id", "batches": "no",
    "positions": "block", "position_contents": "block", "batch_conflicts": "batch_no", "batch_bad_rows": "batch_no", "meta": "key",
    "reliable_sessions": "queue_id",
}  # fmt: skip
"""The column that is another one in each row of a table that has no ``id``."""


class Text(bytes):
    """Bytes that are stored as a text, whatever they are."""


NONSENSE = {
    "text": "nonsense", "blob": b"\xff\xfe", "long": "é" * 1_000, "negative": -5, "no UTF-8": Text(b"\xff\xfe"),
    "no UTF-8 behind a NUL": Text(b"a\0\xff"), "deep": "[" * 2_000,
}  # fmt: skip


def put(database: Path, table: str, row: dict[str, Any], columns: list[str], value: object) -> int:
    """Put a row into ``table`` for each of ``columns``, with ``value`` in that column; return how many SQLite took."""
    taken = 0
    key = KEYS.get(table, "id")
    connection = sqlite3.connect(database, isolation_level=None)
    try:
        for n, column in enumerate(columns):
            values = dict(row)
            was = values[key]
            if table != "meta":
                values[key] = was + n if isinstance(was, int) else f"{was[:-1]}{chr(ord('a') + n)}"
            values[column] = value
            names = ", ".join(f'"{name}"' for name in values)
            marks = ", ".join(
                "CAST(? AS TEXT)" if isinstance(each, Text) else "?" for each in values.values()
            )
            try:
                connection.execute(
                    f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({marks})", [*values.values()]
                )
            except sqlite3.IntegrityError:  # a rowid takes integers alone
                continue
            taken += 1
    finally:
        connection.close()
    return taken
