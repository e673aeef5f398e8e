"""Cuts the rows of a batch, in the order of sending, into groups under the number of their part.

The rows of one outgoing queue are a part and begin at offset 0. A group has up to 256 rows and
about a megabyte of bodies. The sending engine reads that much at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from srmp_spark.store.outbox.address_lists import DESTINATION_LIST
from srmp_spark.store.outbox.columns import ARROW, KINDS, CanonicalDestinations
from srmp_spark.store.outbox.limits import GROUP_BYTES, GROUP_ROWS
from srmp_spark.store.outbox.messages.packed_group import STORED, BatchPart, Packed, pack_group
from srmp_spark.store.outbox.preparing.row_numbers import blocks, zeros
from srmp_spark.store.outbox.preparing.scan import StageSlice

_TYPES = {name: ARROW[KINDS[name]] if name in KINDS else pa.bool_() for name in STORED} | {
    DESTINATION_LIST: pa.string()
}
STORED_SCHEMA = pa.schema(list(_TYPES.items()))


class Group(NamedTuple):
    """Consecutive rows of one part, packed to be stored together.

    ``first`` and ``last`` are their offsets in the part, both included.
    """

    part: int
    first: int
    last: int
    size: int
    """Size of the bodies, in bytes."""
    packed: Packed


class TransactionMasks:
    """Masks of the rows of a batch at which MSMQ transactions begin and end.

    Consecutive rows with one value and one queue, in the order of sending, are one transaction.

    The masks are ``first`` and ``last``, by row number.
    """

    def __init__(
        self,
        rows: np.ndarray,
        queue: np.ndarray,
        value: np.ndarray,
        is_stream: Sequence[bool],
        folder: Path,
    ) -> None:
        """Compute the masks of the first and the last row of each transaction.

        ``rows`` has the numbers of the rows in the order of sending. ``queue`` and ``value`` have
        the queue and the transaction of each row, by row number; 0 is no transaction. ``folder`` is
        for the files of a large batch (:mod:`.row_numbers`).
        """
        self.first, self.last = zeros(len(value), bool, folder), zeros(len(value), bool, folder)
        streams = np.array(is_stream, bool)
        for span in blocks(len(rows)):
            begin = max(span.start - 1, 0)
            mine = rows[span]
            # The span is extended by the row before it and the row after it.
            beside = rows[begin : span.stop + 1]
            of, in_queue = value[beside], queue[beside]
            joined = np.zeros(len(beside) + 1, bool)
            joined[1:-1] = (of[1:] == of[:-1]) & (in_queue[1:] == in_queue[:-1]) & (of[1:] != 0)
            joined = joined[span.start - begin :][: len(mine) + 1]
            stream = streams[queue[mine]]
            self.first[mine] = ~joined[:-1] & stream
            self.last[mine] = ~joined[1:] & stream


def stored_rows(
    piece: StageSlice,
    new: np.ndarray,
    addresses: CanonicalDestinations,
    transactions: TransactionMasks | None,
) -> pa.RecordBatch:
    """Return the rows of ``piece`` that the mask ``new`` selects, in the form of a group.

    The columns are those of :data:`.STORED`. ``new`` has one value for each row of the piece.
    ``transactions`` fills the columns ``first`` and ``last``; without it they are null.
    """
    columns, rows = piece.slice.columns, piece.slice.rows
    arrays: dict[str, pa.Array] = {
        name: columns[name] for name in STORED if name in columns and name != "destination"
    }
    spelled = columns["destination"].dictionary_encode()
    names = spelled.dictionary.to_pylist()
    other = [None if _bare(name) == addresses.canonical(name) else _bare(name) for name in names]
    if any(other):
        arrays["destination"] = pa.array(other, pa.string()).take(spelled.indices)
    if transactions is not None:
        span = slice(piece.first, piece.first + rows)
        arrays["first"], arrays["last"] = (
            pa.array(transactions.first[span]),
            pa.array(transactions.last[span]),
        )
    full = [
        arrays[name] if name in arrays else pa.nulls(rows, type_) for name, type_ in _TYPES.items()
    ]
    batch = pa.RecordBatch.from_arrays(full, schema=STORED_SCHEMA)
    return batch if new.all() else batch.filter(pa.array(new))


def _bare(address: str) -> str:
    return address[7:] if address[:7].upper() == "DIRECT=" else address


class Packer:
    """Cuts the rows of a batch, given in the order of sending, into groups.

    ``parts`` are all parts of the rows, in the order of their queues in the batch.
    """

    def __init__(self, parts: Sequence[BatchPart]) -> None:
        self._ends = np.cumsum([part.rows for part in parts])
        self._parts = parts
        self._at = 0

    def pack(self, batch: pa.RecordBatch) -> list[Group]:
        """Pack the next rows of the batch, and return their groups; nothing is written."""
        groups: list[Group] = []
        sizes = (
            pc.fill_null(pc.binary_length(batch.column("body")), 0)
            .to_numpy(zero_copy_only=False)
            .astype(np.int64)
        )
        ends = np.cumsum(sizes)
        start = 0
        while start < batch.num_rows:
            index = int(np.searchsorted(self._ends, self._at, side="right"))
            part = self._parts[index]
            offset = self._at - (int(self._ends[index]) - part.rows)
            before = int(ends[start - 1]) if start else 0
            fit = int(np.searchsorted(ends, before + GROUP_BYTES, side="right")) - start
            rows = max(1, min(fit, GROUP_ROWS, part.rows - offset, batch.num_rows - start))
            data = pack_group(batch.slice(start, rows))
            groups.append(
                Group(
                    part.number,
                    offset,
                    offset + rows - 1,
                    int(ends[start + rows - 1]) - before,
                    data,
                )
            )
            start += rows
            self._at += rows
        return groups
