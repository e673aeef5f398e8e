"""The rows of a table as batches: each a range of sequences of one log, in order, of a size that is staged in a moment.

One pass over the table counts rows and bytes in buckets of a few sequences; the driver then joins neighbours into batches. The
batches are put together from the first sequence on, so rows that came to the table later change the last one only, and a job
that starts again meets the same batches. Each has a fingerprint of its rows: their contents and positions, in any order of
reading.

A batch is never skipped because of its number or place. What may be skipped, and why that is safe: :mod:`.done`.
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
"""Rows of a batch: what a kill makes a job stage once more; a second's work, so that the cost of a Spark job hardly counts."""
BATCH_BYTES = 64 * 1024 * 1024
"""Bytes of bodies of a batch, for the same reason."""
BUCKET_SEQUENCES = 1_000
"""Sequences that are counted together: a hundred million rows are a hundred thousand numbers in the driver."""


class Bucket(NamedTuple):
    """What the pass over the table answers for a few sequences of one log."""

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
    """Rows that are committed together."""

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
        """Of the outbox's batch: the same rows have the same name in every run."""
        log = hashlib.sha256(
            f"{self.queue_manager} {self.epoch} {self.queue}".encode()
        ).hexdigest()[:8]
        return f"{log}-{self.first}-{self.last}-{self.fingerprint[:16]}"

    def of(self, rows: DataFrame) -> DataFrame:
        """Its rows. The range of sequences lets Delta skip files."""
        from pyspark.sql import functions as F  # noqa: N812  # as everybody writes it

        return rows.where(
            (F.col("queue_manager") == self.queue_manager)
            & (F.col("epoch") == self.epoch)
            & (F.col("queue") == self.queue)
            & F.col("sequence").between(self.first, self.last)
        )


def plan(rows: DataFrame, columns: Sequence[str], *, rate: float | None = None) -> list[Batch]:
    """The batches of ``rows``; ``columns`` are those that are sent. A ``rate`` makes batches of about a second.

    Raises :class:`ConfigurationError` for rows without a position.
    """
    from pyspark.sql import functions as F  # noqa: N812  # as everybody writes it

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
        .orderBy(
            "queue_manager", "queue", "bucket", "epoch"
        )  # sequences go on counting in the next epoch
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
    """Neighbours of one log together, up to the limits; a bucket is never split."""
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
