"""Name the limits of one state table, each with its reason, and what a commit carries."""

from __future__ import annotations

COMMIT_RETRIES = 20
"""Attempts of one commit while other queue managers commit to the same table.

Each attempt reads the newest version first. After the last one :class:`PublishConflictError` is
raised.
"""
COMMIT_RETRY_WAIT_S = 0.01
"""Wait in seconds after an attempt of a commit, times the number of the attempt.

Attempts are counted from 0, so the first wait is none.
"""
CHECKPOINT_COMMITS = 100
"""Commits between two checkpoints.

A reader that opens the table reads at most that many commit files.
"""
CHECKPOINT_ROOM_BYTES = 16 << 20
"""Free bytes for which a checkpoint waits.

A checkpoint names each data file, in some hundred bytes each.
"""
COMPACT_FILES_MIN = 100
"""Number of appended files that starts a compaction: eight minutes at the default interval.

Files count from the last compaction on. All live files count when the table is opened.
"""
COMPACT_FILES_MAX = 1_000
"""Files in one compaction, so that one commit file stays below a megabyte."""
COMPACT_FILE_BYTES = 32 << 20
"""A file below this size in bytes is small."""
COMPACT_TARGET_BYTES = 256 << 20
"""Bytes of small files that one compaction joins, so that it does not delay a cycle for long."""
VACUUM_INTERVAL_S = 3600
"""Seconds between two removals of files that no version within the time-travel span names."""
HISTORY_LOOKBACK = 50
"""Commits that are searched for the digest of what this queue manager wrote last.

If it is not found, the rows are written again.
"""

RESTORE_KEY = "srmp.restore"
"""Key in the information of a commit that a restore wrote.

Such a commit does not show that the queue manager is alive.
"""
