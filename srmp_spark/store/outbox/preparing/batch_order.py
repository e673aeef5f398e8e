"""The order of a scanned batch, worked out in memory, or by sorted files if the batch is large.

:mod:`.sorted_runs` writes and merges the sorted files.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing

import numpy as np
import pyarrow as pa

from srmp_spark.store.outbox.preparing.ordering import places
from srmp_spark.store.outbox.preparing.row_numbers import blocks, is_large
from srmp_spark.store.outbox.preparing.scan import Scan


class BatchOrder:
    """Computes the order in which the rows of one batch are sent.

    Call :meth:`work` first, :meth:`rank` as often as needed, and :meth:`of` last.
    """

    def __init__(self, scan: Scan) -> None:
        self._scan = scan
        self._order: np.ndarray | None = None
        """The numbers of all rows of a large batch, in the order in which the rows are sent.

        ``None`` if the rows are sent in the order in which they were staged.
        """
        self._place: np.ndarray | None = None
        """The inverse of ``_order``: the place of each row in the order of the batch."""

    def work(self) -> Generator[None]:
        """Compute the order of a large batch in steps, before any other method is called.

        Iterate over the generator until it ends. A small batch is ordered later, by the other
        methods.
        """
        scan = self._scan
        if not is_large(scan.rows):
            return
        if not scan.order_by:
            if len(scan.queues) <= 1:
                return
            for span in blocks(scan.rows):
                scan.runs.add(span.start, [pa.array(scan.queue[span])])
                yield
        order, at = scan.zeros(np.uint32), 0
        with closing(scan.runs.merged()) as pieces:
            for numbers in pieces:
                order[at : at + len(numbers)] = numbers
                at += len(numbers)
                yield
        scan.runs.close()
        assert at == scan.rows, f"{at} rows were put in order, {scan.rows} were scanned"
        self._order = order
        # Of two rows with one identity, the first one in order keeps it, so ranks are needed.
        if scan.content is not None or scan.has_positions:
            place = scan.zeros(np.uint32)
            for span in blocks(scan.rows):
                place[order[span]] = np.arange(span.start, span.stop, dtype=np.uint32)
                yield
            self._place = place

    def rank(self, rows: np.ndarray) -> np.ndarray:
        """Return an array with the place of each of ``rows`` (row numbers) in the order of sending.

        The places count all rows of the batch.
        """
        if self._place is None:
            if is_large(self._scan.rows):
                return rows
            self._place = np.argsort(
                places(self._scan.queue, self._scan.order, np.ones(self._scan.rows, bool))
            )
        ranked: np.ndarray = self._place[rows]
        return ranked

    def of(self, new: np.ndarray) -> Generator[None, None, np.ndarray]:
        """Return the row numbers that the mask ``new`` selects, in the order of sending.

        The work is done in steps, and the array is the result of the generator. Call this method
        once and last, because it releases the order.
        """
        self._place = None
        if not is_large(self._scan.rows):
            return places(self._scan.queue, self._scan.order, new)
        wanted, at = self._scan.zeros(np.uint32), 0
        for span in blocks(self._scan.rows):
            rows = (
                np.arange(span.start, span.stop, dtype=np.uint32)
                if self._order is None
                else self._order[span]
            )
            rows = rows[new[rows]]
            wanted[at : at + len(rows)] = rows
            at += len(rows)
            yield
        self._order = None
        return wanted[:at]
