"""Find the rows that other programs took out of ``inbox``.

The functions return which rows exist, which are gone, and which of these the log does not have
either.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from srmp_spark.sequences.ranges import Range, subtract
from srmp_spark.sequences.sequence_set import SequenceSet
from srmp_spark.store.delta.log_source import LogRange, Snapshot
from srmp_spark.store.delta.tables.state_table import StateTable

RANGES_MAX = 100
"""Ranges that are reported one by one; of the others only the number is reported."""


class Gone(NamedTuple):
    """A closed range of rows that are neither in ``inbox`` nor in the log."""

    epoch: str
    queue: str
    first: int
    last: int


def sequences_of(inbox: StateTable) -> dict[tuple[str, str], SequenceSet]:
    """Return the sets of sequences that ``inbox`` holds, by (epoch, queue).

    Only rows of this queue manager count. The function reads three columns of every file.
    """
    found: dict[tuple[str, str], SequenceSet] = {}
    for table in inbox.own_columns(["epoch", "queue", "sequence"]):
        keys = table.select(["epoch", "queue"]).group_by(["epoch", "queue"]).aggregate([])
        if keys.num_rows == 1:
            epoch, queue = keys["epoch"][0].as_py(), keys["queue"][0].as_py()
            found.setdefault((epoch, queue), SequenceSet()).add_each(table["sequence"].to_pylist())
            continue
        for epoch, queue, sequence in zip(
            *(table[name].to_pylist() for name in table.column_names), strict=True
        ):
            found.setdefault((epoch, queue), SequenceSet()).add(sequence, sequence)
    return found


def in_the_log(span: LogRange, published: int, here: SequenceSet) -> Iterator[Range]:
    """Yield the closed ranges that ``inbox`` lacks and that retention has left in the log.

    The table should have all rows of the queue up to ``published``, and has those in ``here``. A
    range may contain holes, for which there are no rows.
    """
    if span.first <= min(published, span.end):
        yield from here.gaps(span.first, min(published, span.end))


def beyond_the_log(
    snapshot: Snapshot, span: LogRange, published: int, here: SequenceSet
) -> Iterator[Gone]:
    """Yield the ranges that ``inbox`` lacks and that retention has deleted from the log.

    The table should have all rows of the queue up to ``published``, and has those in ``here``.
    Holes are left out, because their rows may never have been in the table.
    """
    last = min(published, span.first - 1)
    if span.start > last:
        return
    holes: list[Range] = [
        (first, stop)
        for row in snapshot.queues
        if row.queue == span.queue
        for first, stop, _ in json.loads(row.holes)
    ]
    for first, last_gone in subtract(here.gaps(span.start, last), holes):
        yield Gone(span.epoch, span.queue, first, last_gone)
