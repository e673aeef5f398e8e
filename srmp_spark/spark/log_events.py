"""Explain the log events of ``format("srmp")`` and ``format("mqrr")``."""

from __future__ import annotations

from srmp_spark.log_event import LogEvent

EVENTS: tuple[LogEvent, ...] = (
    LogEvent(
        "data.lost",
        "Rows that the query planned to read are gone, and `failOnDataLoss` is `false`. The "
        "query leaves these rows out.",
        "Find out why they are gone: retention, a purge, or a data directory that was put back. "
        "Troubleshooting has each cause.",
    ),
    LogEvent(
        "embedded.joined",
        "The query uses a queue manager that already runs in this data directory.",
        fields=("dir", "api"),
    ),
    LogEvent(
        "embedded.not_reached",
        "The query could not call its embedded queue manager. The calls of the query itself "
        "report the error.",
        "If the line repeats, read the log file of `serve` in the data directory.",
        fields=("reason",),
    ),
    LogEvent(
        "embedded.started",
        "The query has started a queue manager in this data directory. The queue manager ends 60 "
        "seconds after its last use.",
        fields=("dir",),
    ),
    LogEvent(
        "epoch.followed",
        "All rows of an epoch are read. The query goes on with the first row of the next epoch.",
        fields=("log", "from", "to", "at"),
    ),
    LogEvent(
        "limits.ignored",
        "`Trigger.Once` asks for all rows, so `maxOffsetsPerTrigger` and `maxBytesPerTrigger` "
        "have no effect.",
        "Use `availableNow` to keep the limits.",
    ),
    LogEvent(
        "log.appeared",
        "A queue was created while the query runs. The query reads it from the row in the line.",
        fields=("log", "first"),
    ),
    LogEvent(
        "log.elsewhere",
        "Another receiver holds the consumer of a queue that a glob names. The query reads the "
        "other queues.",
        "Nothing: the queue joins when its lease is free. If this query is to read the queue, "
        "stop the other receiver.",
        fields=("log",),
    ),
    LogEvent(
        "log.joined",
        "A queue has joined the query: its lease became free, or its name is new in the option "
        "`queue`. The query reads it from the place in the line.",
        "Check the place: rows before it are not read by this query.",
        fields=("log", "first"),
    ),
    LogEvent(
        "log.paused",
        "An operator paused the readers of a queue. The query plans no rows of it, and goes on "
        "with its other queues.",
        "Nothing, or `srmp-spark queue resume NAME` if the pause was forgotten.",
        fields=("log",),
    ),
    LogEvent(
        "log.read_again",
        "The first batch of a query runs again after a crash, with the same rows as before.",
        "Nothing, if the batch is written to a target that leaves out known rows.",
        fields=("log",),
    ),
    LogEvent(
        "log.resumed",
        "The readers of a queue are no longer paused. The query reads on where it was.",
        fields=("log",),
    ),
    LogEvent(
        "mark.refused",
        "The queue manager did not take the mark of this batch: the queue was deleted, or its "
        "data directory is another one.",
        "If nobody deleted the queue, check that `queueManager` leads to the right queue manager.",
        fields=("log", "to", "reason"),
    ),
    LogEvent(
        "mqrr.not_whole",
        "A run with `availableNow` has waited long enough for a remote queue. The next batch "
        "reads the rest.",
        fields=("queues",),
    ),
    LogEvent(
        "mqrr.trouble",
        "A remote queue cannot be read now. The subscription tries again by itself.",
        'Read the reason in the line. Troubleshooting explains it under "Remote queues".',
        fields=("queue", "host"),
    ),
    LogEvent(
        "progress.asynchronous",
        "The query has `asyncProgressTrackingEnabled`. Rows count as received when Spark has "
        "written its commits, about one batch later.",
    ),
    LogEvent(
        "query.metrics_not_written",
        "The listener could not write its file for Prometheus. The listener tries again after "
        "the next micro-batch.",
        "Make room, or correct the path and its rights.",
        fields=("file", "reason"),
    ),
    LogEvent(
        "query.progress",
        "The newest numbers of a query: its batch, its rows, the rows that wait, and where the "
        "time of the trigger went.",
        fields=("query", "batch", "rows", "waiting"),
    ),
    LogEvent(
        "query.started",
        "A new query begins at these offsets.",
        fields=("at",),
    ),
    LogEvent(
        "queue_manager.away",
        "A queue manager does not answer. Its rows wait; the query reads those of the other "
        "queue managers.",
        "Start the queue manager, or look at the network.",
        fields=("url", "reason"),
    ),
    LogEvent(
        "queue_manager.back",
        "A queue manager answers again, and the query reads its rows.",
        fields=("url", "queue_manager"),
    ),
    LogEvent(
        "queues.none",
        "No queue matches a glob of the option `queue`, so the query reads nothing.",
        "Compare the glob with the names in the line. If the queue is created later, do nothing.",
    ),
    LogEvent(
        "read.checked_again",
        "An executor could not decode rows in their stored form. The executor asks for rows that "
        "the queue manager has checked.",
        'If an error about damaged rows follows, see "Damaged rows" in troubleshooting.',
        fields=("log", "after", "reason"),
    ),
    LogEvent(
        "read.resumed",
        "The connection of an executor broke while the executor read rows. The read goes on "
        "after the last row that has arrived.",
        "If the line repeats, look at the network.",
        fields=("log", "after", "reason"),
    ),
    LogEvent(
        "sink.committed",
        "A batch is committed. `new` rows will be sent, `known` rows were sent before, "
        "`conflicts` were sent before with other content.",
        fields=("application", "batch", "new", "known", "conflicts"),
    ),
    LogEvent(
        "sink.bad_rows",
        "Rows of a batch can never be sent. The rest of the batch is sent. The line says what "
        "became of these rows, and names the first of them with its problem.",
        "Correct the query or its source. With `onBadRow=dead-letter` the queue has a letter "
        "about each row: read docs/poison-rows.md.",
        fields=("application", "batch", "rows"),
    ),
    LogEvent(
        "sink.conflicts",
        "Rows of a batch have a key or source position that was sent before with other content. "
        "The line says what became of them.",
        "If two sinks of the query write these rows, give this sink alone an `application`.",
        fields=("application", "batch", "rows"),
    ),
    LogEvent(
        "sink.known",
        "Rows of a batch were sent before with the same content, and are not sent again.",
        "Nothing, if the batch ran again. Otherwise give this sink an `application`, or its rows "
        "a `key`.",
        fields=("application", "batch", "rows"),
    ),
    LogEvent(
        "sink.result_unknown",
        "The batch is committed, but the sink could not read how many rows were new. `result` is "
        "`None`.",
        fields=("application", "batch", "reason"),
    ),
    LogEvent(
        "sink.stages_left",
        "A batch failed, and its staged rows could not be deleted. The queue manager deletes "
        "them after 48 hours.",
        fields=("batch", "application", "reason"),
    ),
)
