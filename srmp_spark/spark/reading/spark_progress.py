"""Find out, by the order of Spark's calls, whether the batch that ended at an offset is committed.

Theory of operation. When Spark calls ``latestOffset(start, …)``, the batch that ended at ``start``
has run to its end. The commit of the batch is on disk too, unless the query has
``asyncProgressTrackingEnabled``, an option of ``writeStream`` that no source sees. With this option
Spark writes offsets and commits in another thread, and only every
``asyncProgressTrackingCheckpointIntervalMs``. With an interval of ten minutes, nine batches had run
and only ``commits/0`` was on disk. A restart begins after that commit, so the rows of the other
batches must not count as received. Otherwise retention could delete rows that the restart reads.

Spark 4.2 was measured (``tests/spark/test_asynchronous_progress.py``). A query without the option
calls ``commit(start)`` before each ``partitions(start, end)`` except the first of a run. A query
with the option calls ``commit`` for an offset when its commit and the offsets of a later batch are
on disk, and never before the next batch is planned. So the second plan of a run shows the mode.

The first batch of a run is logged in both modes, and the beginning of a run is read from the disk.
So the mode is not needed for them. The file of that first batch may be written a moment late. The
rows are in the sink by then.

The calls do not show everything. In a continuous run with several sources, the first batch may have
rows of another source only. The first batch of this source is then not logged, and Spark calls
``latestOffset``, ``commit`` and ``partitions`` for it exactly as without the option. So its mark is
sent too early. The plan after it shows the mode.
"""

from __future__ import annotations

import logging

from srmp_spark.spark.reading.offsets import Offsets

_log = logging.getLogger(__name__)


class SparkProgress:
    """Follows the calls that one query makes to its driver-side reader."""

    def __init__(self) -> None:
        self.is_asynchronous = False
        """Whether the query does not wait for its commits.

        Then only the offset of Spark's last ``commit`` is on disk.
        """
        self._always_waits = False
        self._committed: Offsets | None = None
        self._planned: tuple[Offsets, Offsets] | None = None

    def __repr__(self) -> str:
        return f"<SparkProgress asynchronous={self.is_asynchronous}>"

    def triggers_available_now(self) -> None:
        """Note that the trigger is AvailableNow, so that the query waits for its commits.

        Spark refuses this trigger together with asynchronous progress.
        """
        self._always_waits = True

    def commits(self, end: Offsets) -> None:
        """Note that Spark called ``commit(end)``, so that the batch up to ``end`` is committed."""
        self._committed = end

    def plans(self, start: Offsets, end: Offsets) -> None:
        """Note that Spark called ``partitions(start, end)``, and find out the mode.

        A query that reads one source twice plans a batch twice.
        """
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
        """Return whether the batch that ended at ``start`` is committed on disk.

        ``start`` is the argument of ``latestOffset``. The result follows from Spark's calls alone;
        the module explains the one case in which they mislead.
        """
        return not self.is_asynchronous or self._committed == start
