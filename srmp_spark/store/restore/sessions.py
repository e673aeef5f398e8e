"""Restore incoming sequences of WS-ReliableMessaging as of the newest row of ``inbox``.

The table ``wsrm_sequences`` is written after ``inbox``. A queue manager that ended in between left
rows that the table does not count, so their numbers are taken from the rows. A sequence that is
only in rows had begun at that very moment. Its client begins again, as after any fault.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from srmp_spark.store.restore.known_queues import micros
from srmp_spark.store.tables import wsrm_sequences


class Sessions:
    """Collects incoming WS-ReliableMessaging sequences, then writes them to the database.

    Iterating yields the rows, as mappings, sorted by queue and identifier.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Read the rows of the table ``wsrm_sequences``."""
        self._sequences: dict[str, dict[str, Any]] = {row["identifier"]: dict(row) for row in rows}

    def __len__(self) -> int:
        return len(self._sequences)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(
            sorted(self._sequences.values(), key=lambda row: (row["queue"], row["identifier"]))
        )

    def take(self, rows: pa.RecordBatch) -> None:
        """Raise the number of accepted messages of each sequence by its ``rows`` in ``inbox``.

        A sequence that is not in the table is ignored.
        """
        column = rows.column(rows.schema.get_field_index("wsrm_sequence"))
        if column.null_count == len(column):
            return
        for identifier, number in zip(
            column.to_pylist(),
            rows.column(rows.schema.get_field_index("wsrm_number")).to_pylist(),
            strict=True,
        ):
            known = self._sequences.get(identifier)
            if known is not None:
                known["accepted"] = max(known["accepted"], number)

    def write(self, db: sqlite3.Connection, ids: Mapping[str, int]) -> None:
        """Write the sequences into the database, in the caller's transaction.

        ``ids`` has the id of each queue by name. A sequence of any other queue is left out.
        """
        db.execute(wsrm_sequences.DDL)
        for row in self:
            if row["queue"] in ids:
                db.execute(
                    "INSERT INTO wsrm_sequences VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
                    "?, ?, ?, ?, ?)",
                    (
                        row["identifier"],
                        ids[row["queue"]],
                        row["create_id"],
                        row["soap"],
                        row["addressing"],
                        row["rm"],
                        row["acks_to"],
                        row["state"],
                        row["accepted"],
                        row["last_number"],
                        micros(row["expires_at"]),
                        row["peer"],
                        row["sender_name"],
                        micros(row["created_at"]),
                        micros(row["changed_at"]),
                        row["returns"] or "",
                    ),
                )
