"""Find the queues that have something to seal or to delete, with one query for all queues.

The reader process uses it. A plan for one queue (:func:`.sealing.plan`, :func:`.retention.plan`)
opens a connection and runs six queries. Ten thousand plans, nearly all without a result, kept a
core busy. Here SQLite looks up the first unsealed and the oldest row of each queue, in some
microseconds each. A queue in the result may still have nothing to do: its plan decides. A queue
that is not in the result has nothing to do.
"""

from __future__ import annotations

from srmp_spark.interface import DEFAULT_CONSUMER
from srmp_spark.sequences.ranges import SEQUENCE_BITS, SEQUENCE_MAX
from srmp_spark.store.stored_rows.log import Log
from srmp_spark.store.stored_rows.sealing import SEAL_AGE_S, SEAL_ROWS_MIN
from srmp_spark.store.tables.state import JOURNAL_CONSUMERS

_CONSTANTS = {
    "bits": SEQUENCE_BITS,
    "top": SEQUENCE_MAX,
    "consumer": DEFAULT_CONSUMER,
    "journal": JOURNAL_CONSUMERS + DEFAULT_CONSUMER,
}

_TO_SEAL = """
SELECT name FROM (
    SELECT name, id << :bits AS low, id << :bits | :top AS high, max(
        trimmed_to,
        coalesce((SELECT max(id) & :top FROM segments WHERE id \
BETWEEN queues.id << :bits AND queues.id << :bits | :top), 0)
    ) AS sealed
    FROM queues WHERE deleted_at IS NULL
) WHERE
    (SELECT arrived_first FROM groups WHERE id BETWEEN low + sealed + 1 AND high \
ORDER BY id LIMIT 1) < :before
    OR (SELECT max(id) FROM groups WHERE id BETWEEN low + sealed + 1 AND high) \
- low - sealed >= :rows
ORDER BY name
"""

_TO_TRIM = """
SELECT name FROM (
    SELECT name, id << :bits | (trimmed_to + 1) AS low, id << :bits | :top AS high, min(
        coalesce((SELECT received FROM consumers WHERE queue_id = queues.id \
AND consumers.name = :consumer), 0),
        coalesce((SELECT received FROM consumers WHERE queue_id = queues.id \
AND consumers.name = :journal), :top)
    ) AS received
    FROM queues WHERE deleted_at IS NULL AND trimmed_to < :top
) WHERE coalesce(
    (SELECT last <= received AND arrived_last < :before FROM segments \
WHERE id BETWEEN low AND high ORDER BY id LIMIT 1),
    (SELECT last <= received AND arrived_last < :before FROM groups \
WHERE id BETWEEN low AND high ORDER BY id LIMIT 1),
    0
)
ORDER BY name
"""


def to_seal(log: Log, now: int) -> list[str]:
    """Return the sorted names of queues whose unsealed rows are old, or many.

    Old means that the first of them is older than :data:`.SEAL_AGE_S`, and many means at least
    :data:`.SEAL_ROWS_MIN`. ``now`` is in microseconds since 1970, UTC. The query does not count
    bytes: the process that sees rows arrive must itself watch for young rows that are large. The
    plan of a queue (:func:`.sealing.plan`) may still find nothing to seal.
    """
    before = now - int(SEAL_AGE_S * 1_000_000)
    with log.snapshot() as db:
        return [
            name
            for (name,) in db.execute(
                _TO_SEAL, _CONSTANTS | {"before": before, "rows": SEAL_ROWS_MIN}
            )
        ]


def to_trim(log: Log, before: int | None) -> list[str]:
    """Return the sorted names of queues whose oldest segment or group may be deleted.

    The default consumer has received all of its rows, and so has that of the queue's journal if it
    ever received. The last of its rows arrived before ``before`` (microseconds since 1970, UTC).
    With ``None`` the age does not matter. The function is for queues that applications receive
    from.
    """
    with log.snapshot() as db:
        return [
            name
            for (name,) in db.execute(
                _TO_TRIM, _CONSTANTS | {"before": 1 << 62 if before is None else before}
            )
        ]
