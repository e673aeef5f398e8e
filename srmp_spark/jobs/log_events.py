"""Explain the log events of the jobs."""

from __future__ import annotations

from srmp_spark.log_event import LogEvent

EVENTS: tuple[LogEvent, ...] = (
    LogEvent(
        "append.crossed",
        "Another program committed to the table at the same time. The job commits again.",
        "If the line repeats, look which program changes the table so often.",
        fields=("table", "writer", "reason"),
    ),
    LogEvent(
        "claim.crossed",
        "Another program committed to the table while the job claimed it. The job tries again.",
        fields=("table", "writer", "reason"),
    ),
    LogEvent(
        "offsets.unread",
        "The job could not read the offsets of a batch from the checkpoint. The job looks into "
        "the table itself for rows that are there already.",
        fields=("path", "reason"),
    ),
    LogEvent(
        "rows.known",
        "The table holds rows of this batch already, from a run before a crash. The job leaves "
        "them out.",
        fields=("batch", "rows"),
    ),
    LogEvent(
        "table.holds",
        "The table already has the rows `first` to `last` of this queue and epoch. A batch that "
        "runs again leaves them out. The job logs a line for each run of rows without a gap, and "
        "at most ten.",
        fields=("queue_manager", "epoch", "queue", "first", "last"),
    ),
    LogEvent(
        "writer.ended",
        "The job has taken over the table from an earlier job for the same queues. The earlier "
        "job can write nothing more.",
        "If the earlier job should run, stop this one.",
        fields=("table", "writer"),
    ),
)
