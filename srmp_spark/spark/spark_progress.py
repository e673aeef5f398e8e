"""Whether the batch that ended at an offset is committed on disk, told by the order of Spark's calls.

Theory of operation. When Spark calls ``latestOffset(start, …)``, the batch that ended at ``start`` has been run to its end. Its
commit is on disk too, unless the query has ``asyncProgressTrackingEnabled``, an option of ``writeStream`` that no source sees.
Then Spark writes offsets and commits in another thread, and only every ``asyncProgressTrackingCheckpointIntervalMs``: with an
interval of ten minutes nine batches were run, and only ``commits/0`` was on disk. A restart begins after that commit, so the
rows of the other batches must not count as received. Retention could delete what the restart reads.

Spark 4.2, measured (``tests/spark/test_asynchronous_progress.py``): a query without the option calls ``commit(start)`` before
each ``partitions(start, end)`` but the first of a run. A query with the option calls ``commit`` for an offset when its commit
and the offsets of a later batch are on disk, and never before the next batch is planned. So the second plan of a run tells. The
first batch of a run is logged in either mode, and where a run begins is read from the disk: neither needs to be told. The file
of that first batch may be a moment late: the rows have gone to the sink by then.

The calls do not tell everything. In a run that goes on with several sources, the first batch may have rows of another source
only. Our first batch is then not logged, and Spark calls ``latestOffset``, ``commit`` and ``partitions`` for it exactly as it
does without the option: its mark is sent too early. The plan after it tells.
"""

from __future__ import annotations

import logging

from srmp_spark.spark.offsets import Offsets

_log = logging.getLogger(__name__)


class SparkProgress:
    """Follows the calls that one query makes to its driver-side reader."""

    def __init__(self) -> None:
        self.is_asynchronous = False
        """The query does not wait for its commits: only what Spark's ``commit`` names is on disk."""
        self._always_waits = False
        self._committed: Offsets | None = None
        self._planned: tuple[Offsets, Offsets] | None = None

    def __repr__(self) -> str:
        return f"<SparkProgress asynchronous={self.is_asynchronous}>"

    def triggers_available_now(self) -> None:
        """Note the trigger, which Spark refuses together with asynchronous progress."""
        self._always_waits = True

    def commits(self, end: Offsets) -> None:
        """Note ``commit(end)``."""
        self._committed = end

    def plans(self, start: Offsets, end: Offsets) -> None:
        """Note ``partitions(start, end)``; a query that reads one source twice plans a batch twice."""
        before, self._planned = self._planned, (start, end)
        if (
            before in (None, (start, end))
            or self._always_waits
            or self.is_asynchronous
            or self._committed == start
        ):
            return
        self.is_asynchronous = True
        _log.info(
            "progress.asynchronous: asyncProgressTrackingEnabled is set; received marks "
            "follow the commits of Spark"
        )

    def is_committed(self, start: Offsets) -> bool:
        """Return whether the batch that ended at ``start``, which ``latestOffset`` names, is committed on disk."""
        return not self.is_asynchronous or self._committed == start
