"""Split the rows of a table into batches, each a range of sequences of one log, in order.

One pass over the table counts rows and bytes in buckets of a few sequences. The driver then joins
neighbouring buckets into batches, beginning with the first sequence. So rows that came to the table
later change the last batch only, and a restarted job makes the same batches again. Each batch has a
fingerprint of the contents and positions of its rows, which does not depend on the order of
reading.

A batch is never skipped because of its number or place. :mod:`.done` says which batches may be
skipped, and why that is safe.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from srmp_spark.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BATCH_ROWS = 20_000
"""Most rows of a batch.

After a kill the job stages at most these rows again. A batch takes about a second, so the cost of
starting a Spark job hardly counts.
"""
BATCH_BYTES = 64 * 1024 * 1024
"""Most bytes of bodies in a batch, for the same reasons as :data:`BATCH_ROWS`.

A single larger bucket is a batch of its own.
"""
BUCKET_SEQUENCES = 1_000
"""Sequences that are counted together.

A hundred million rows make a hundred thousand buckets in the driver.
"""


class Bucket(NamedTuple):
    """The counts of a few neighbouring sequences of one log.

    ``first`` and ``last`` are sequences, both included, and ``bytes`` counts bodies.
    ``fingerprint`` depends on the contents and positions of the rows.
    """

    queue_manager: str
    epoch: str
    queue: str
    first: int
    last: int
    rows: int
    bytes: int
    fingerprint: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Rows of one log that are committed together.

    ``first`` and ``last`` are sequences, both included, and ``bytes`` counts bodies.
    ``fingerprint`` depends on the contents and positions of the rows.
    """

    queue_manager: str
    epoch: str
    queue: str
    first: int
    last: int
    rows: int
    bytes: int
    fingerprint: str

    @property
    def name(self) -> str:
        """Return the batch name for the outbox. The same rows have the same name in every run."""
        log = hashlib.sha256(
            f"{self.queue_manager} {self.epoch} {self.queue}".encode()
        ).hexdigest()[:8]
        return f"{log}-{self.first}-{self.last}-{self.fingerprint[:16]}"

    def of(self, rows: DataFrame) -> DataFrame:
        """Return the rows of this batch from ``rows``.

        The range of sequences lets Delta skip files.
        """
        from pyspark.sql import functions as F  # noqa: N812  # the usual name

        return rows.where(
            (F.col("queue_manager") == self.queue_manager)
            & (F.col("epoch") == self.epoch)
            & (F.col("queue") == self.queue)
            & F.col("sequence").between(self.first, self.last)
        )


def plan(rows: DataFrame, columns: Sequence[str], *, rate: float | None = None) -> list[Batch]:
    """Return the batches of ``rows``, in order. ``columns`` are the columns that are sent.

    With ``rate`` (rows a second) a batch takes about a second. Raises :class:`ConfigurationError`
    if rows have no source position.
    """
    from pyspark.sql import functions as F  # noqa: N812  # the usual name

    limit = BATCH_ROWS if rate is None else max(1, min(BATCH_ROWS, int(rate)))
    width = min(BUCKET_SEQUENCES, limit)
    content: list[Column] = [
        F.col(name) for name in columns if name not in ("queue_manager", "epoch", "queue")
    ]
    found = (
        rows.groupBy(
            "queue_manager", "epoch", "queue", F.expr(f"sequence div {width}").alias("bucket")
        )
        .agg(
            F.min("sequence"),
            F.max("sequence"),
            F.count("*"),
            F.sum(F.octet_length(F.coalesce("body", F.lit(b"")))),
            F.bit_xor(F.xxhash64(*content)),
        )
        # Sequences continue in the next epoch, so the bucket comes before the epoch.
        .orderBy("queue_manager", "queue", "bucket", "epoch")
        .collect()
    )
    buckets = [Bucket(*row[:3], *row[4:]) for row in found]
    nowhere = sum(bucket.rows for bucket in buckets if None in bucket[:5])
    if nowhere:
        raise ConfigurationError(
            f"{nowhere} rows have no source position (queue_manager, epoch, queue, "
            "sequence), so nothing tells whether they "
            "were sent: leave them out, for example with --where 'sequence IS NOT NULL'"
        )
    return list(joined(buckets, limit))


def joined(
    buckets: Iterable[Bucket], rows_max: int = BATCH_ROWS, bytes_max: int = BATCH_BYTES
) -> Iterator[Batch]:
    """Yield batches of neighbouring buckets of one log, up to both limits.

    A bucket is never split, so a single bucket above a limit is a batch of its own.
    """
    waiting: list[Bucket] = []
    for bucket in buckets:
        if waiting and (
            bucket[:3] != waiting[0][:3]
            or sum(each.rows for each in waiting) + bucket.rows > rows_max
            or sum(each.bytes for each in waiting) + bucket.bytes > bytes_max
        ):
            yield _batch(waiting)
            waiting = []
        waiting.append(bucket)
    if waiting:
        yield _batch(waiting)


def _batch(buckets: Sequence[Bucket]) -> Batch:
    digest = hashlib.sha256(
        repr([(each.first, each.last, each.rows, each.fingerprint) for each in buckets]).encode()
    )
    first, last = buckets[0], buckets[-1]
    return Batch(
        queue_manager=first.queue_manager,
        epoch=first.epoch,
        queue=first.queue,
        first=first.first,
        last=last.last,
        rows=sum(each.rows for each in buckets),
        bytes=sum(each.bytes for each in buckets),
        fingerprint=digest.hexdigest(),
    )
