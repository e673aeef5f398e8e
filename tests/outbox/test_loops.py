"""What it costs to look for rows that would return to their own queue."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from srmp_spark.names import LocalHosts
from srmp_spark.store.outbox.errors import BatchError
from srmp_spark.store.outbox.limits import BATCH_DESTINATIONS_MAX, CHUNK_ROWS
from srmp_spark.store.outbox.staging.loops import Loops, OwnQueues, SourceLog


class Name(str):
    """Counts how often it is compared."""

    __slots__ = ()
    count = 0

    def lower(self) -> Name:
        return self

    def __eq__(self, other: object) -> bool:
        Name.count += 1
        return str.__eq__(self, other)  # type: ignore[no-any-return]  # of a str

    __hash__ = str.__hash__


def test_many_sources_and_many_destinations_are_not_compared_with_each_other() -> None:
    """A glob of 1,000 queues whose rows go to 10,000: ten million comparisons a slice would take seconds."""
    loops = Loops(OwnQueues("g", LocalHosts(frozenset(["here.example"]))))
    destinations = [
        f"http://{n}.example/msmq/private$/q{n}" for n in range(BATCH_DESTINATIONS_MAX - 1)
    ]
    destinations.append("http://here.example/msmq/private$/q7")
    sources = [SourceLog("G", "e", Name(sys.intern(f"private$/q{n}"))) for n in range(1_000)]
    of = np.arange(CHUNK_ROWS) % len(sources)
    scope = np.full(CHUNK_ROWS, len(destinations) - 1, np.uint16)
    loops.look(0, destinations, scope, sources, of)
    assert Name.count <= 2 * len(sources)
    with pytest.raises(
        BatchError, match=r"row 7 would return to its own queue, .*here\.example.*, as 5 rows"
    ):
        loops.refuse(lambda number: f"row {number}")
