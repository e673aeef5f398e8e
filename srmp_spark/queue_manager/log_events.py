"""Explain the log events of the process: start, end, queues, maintenance."""

from __future__ import annotations

from srmp_spark.log_event import LogEvent

EVENTS: tuple[LogEvent, ...] = (
    LogEvent(
        "api.failed",
        "A call of the API failed and was answered 503. With a traceback it is a fault of "
        "srmp-spark, otherwise of the disk.",
        "Check the disk, or report the traceback.",
        fields=("path", "reason"),
    ),
    LogEvent(
        "api.not_connected",
        "A caller ended its connection to the API before the TLS handshake was complete.",
        fields=("reason",),
    ),
    LogEvent(
        "api.read_cut",
        "An answer of the API could not be completed, so its connection was cut. The reader asks "
        "again.",
        "If the line repeats, look for damaged rows and at the network.",
        fields=("path", "reason"),
    ),
    LogEvent(
        "clock.jumped",
        "The wall clock was set, or the machine slept. Timers and retention ignore the jump.",
        "Correct the clock if it is wrong, and check NTP.",
        fields=("seconds",),
    ),
    LogEvent(
        "consumer.deleted",
        "A consumer and its marks were deleted by a call.",
        fields=("queue", "consumer", "received"),
    ),
    LogEvent(
        "consumer.made_way",
        "The queue has as many consumers as it may. One that never marked a row was deleted for "
        "a new one.",
        "Delete consumers that no query uses: `srmp-spark consumers QUEUE --delete NAME`.",
        fields=("queue", "consumer", "for"),
    ),
    LogEvent(
        "consumer.release_ignored",
        "Somebody who does not hold the lease asked to release it. Nothing was changed.",
        fields=("queue", "consumer", "by", "held_by"),
    ),
    LogEvent(
        "copy.activated",
        "An operator decided that this copy of a data directory lives. Messages and receipts are "
        "sent, the Delta state is published, and subscriptions that move take messages.",
        "Make sure that the original never starts again.",
        fields=("because",),
    ),
    LogEvent(
        "copy.held",
        "The data directory is a copy, and its original may still run. Messages are accepted and "
        "rows can be read, but nothing acts outside: no message, no receipt, no row of the Delta "
        "state, no subscription that moves.",
        "If this copy is to live, end the original for good and run `srmp-spark activate`. If it "
        "was started by mistake, stop it.",
        fields=("because", "what", "do"),
    ),
    LogEvent(
        "dead_letters.failed",
        "A fault of srmp-spark while dead letters were moved into a queue. The queue manager "
        "tries again.",
        "Report the traceback.",
        fields=("queue",),
    ),
    LogEvent(
        "dead_letters.no_queue",
        "The queue for dead letters was deleted. The letters stay in the outbox, and in the "
        "table `dead_letter_queue` if there is `--state`.",
        "Create the queue again: `srmp-spark queue create NAME --transactional`.",
        fields=("queue", "rows"),
    ),
    LogEvent(
        "dead_letters.not_stored",
        "Dead letters could not be stored in their queue now. The queue manager tries again.",
        "Read the reason: a full disk, a quota, or a paused queue.",
        fields=("reason", "queue"),
    ),
    LogEvent(
        "dead_letters.refused",
        "The queue refuses a dead letter for good. The letter stays among the dead letters of "
        "the outbox.",
        "Read the reason, and the letter in the table `dead_letter_queue`.",
        fields=("queue", "id", "reason"),
    ),
    LogEvent(
        "dead_letters.stored",
        "Dead letters became rows of their queue.",
        "Read the queue: its rows are messages that were not delivered.",
        fields=("queue", "rows"),
    ),
    LogEvent(
        "dead_letters.unreadable",
        "A dead letter cannot be decoded. The letter stays among the dead letters of the outbox.",
        "Report the line.",
        fields=("queue", "reason"),
    ),
    LogEvent(
        "dead_letters.waiting",
        "Dead letters wait, because the sender process does not answer yet.",
        fields=("reason",),
    ),
    LogEvent(
        "epoch.changed",
        "The data directory is not the one that ran last: it was copied, put back or restored. A "
        "new epoch begins.",
        "If it is a copy that was started by mistake, stop it. Everything that acts outside is on "
        "hold until `srmp-spark activate`.",
        fields=("epoch", "because"),
    ),
    LogEvent(
        "forward.no_host",
        "`--store-and-forward` is given, but no `--allow-url` names a host, so nothing is "
        "forwarded.",
        "Add `--allow-url PATTERN` for each host.",
    ),
    LogEvent(
        "forward.open",
        "Everybody may have messages forwarded, although other queues have `[[writer]]` entries.",
        "Add the `[[writer]]` entry of the line, if this is not meant.",
    ),
    LogEvent(
        "identifiers.few",
        "Few message identifiers are left for the messages that this queue manager makes itself. "
        "Used identifiers never come back.",
        "Plan a new data directory, which has a GUID of its own.",
        fields=("left",),
    ),
    LogEvent(
        "maintenance.each_queue_asked",
        "The reader process could not say which queues have work. Each queue is asked by itself.",
        "Look for damaged rows in the lines before.",
        fields=("op", "reason"),
    ),
    LogEvent(
        "maintenance.failed",
        "A fault of srmp-spark in a regular step. The step is tried again.",
        "Report the traceback.",
        fields=("step",),
    ),
    LogEvent(
        "maintenance.postponed",
        "A regular step must wait, because the reader process does not answer, or the volume "
        "refuses a file. The queue manager tries again.",
        "If the line repeats, read the lines of the reader process, or make room.",
        fields=("step", "reason"),
    ),
    LogEvent(
        "maintenance.queue_failed",
        "A step for one queue failed: sealing, retention or publishing. Other queues go on.",
        "Read the reason. For damaged rows see troubleshooting.",
        fields=("step", "queue", "reason"),
    ),
    LogEvent(
        "maintenance.queue_recovered",
        "A step that failed for this queue succeeds again.",
        fields=("step", "queue"),
    ),
    LogEvent(
        "outgoing.reserve_failed",
        "A fault of srmp-spark while message identifiers were reserved. The commit of the sink "
        "was answered with an error.",
        "Report the traceback.",
    ),
    LogEvent(
        "process.draining",
        "The process was asked to end. The process finishes the requests that it has accepted.",
        fields=("connections",),
    ),
    LogEvent(
        "process.ready",
        "The queue manager accepts messages and calls.",
        fields=("listening", "api", "queues"),
    ),
    LogEvent(
        "process.stopped",
        "The queue manager has ended in order. Everything that it acknowledged is stored.",
        fields=("position",),
    ),
    LogEvent(
        "process.unused",
        "An embedded queue manager had no reader for the time of `--exit-when-unused`, and ends.",
        fields=("seconds",),
    ),
    LogEvent(
        "queue.created",
        "A queue was created.",
        fields=("name", "transactional"),
    ),
    LogEvent(
        "queue.declared",
        "A subqueue that a remote reader made was created by name, and stays now when it is empty.",
        fields=("name",),
    ),
    LogEvent(
        "queue.deleted",
        "A queue or an empty subqueue was deleted, with its rows.",
        fields=("name",),
    ),
    LogEvent(
        "queue.given_up",
        "An operator gave up rows of a queue. The sequences of these rows are counted holes now.",
        "Keep the line as the record of the loss.",
        fields=("name", "first", "last", "rows"),
    ),
    LogEvent(
        "queue.journal",
        "The journal of a queue was switched on or off.",
        fields=("name", "on"),
    ),
    LogEvent(
        "queue.paused",
        "An operator paused a direction of the queue, or ended its pause. `in=True`: new messages "
        "are answered 503. `out=True`: readers wait.",
        fields=("name", "in", "out"),
    ),
    LogEvent(
        "queue.purged",
        "Rows of a queue that were not received were removed by a call.",
        fields=("name", "rows"),
    ),
    LogEvent(
        "queue.trimmed",
        "Retention, or an operator (`by=operator`), has deleted old rows. `first` is the oldest "
        "row that is kept.",
        fields=("name", "first", "rows", "by", "forced"),
    ),
    LogEvent(
        "segment.missing",
        "The file of sealed rows is gone. Readers of these rows get an error.",
        'Put the file back from a backup, or give the rows up: "Damaged rows" in troubleshooting.',
        fields=("file",),
    ),
    LogEvent(
        "segment.orphans_removed",
        "Files that a crash left behind were deleted. No row was in them alone.",
        fields=("files",),
    ),
    LogEvent(
        "state.failed",
        "A publisher of the Delta state fails, or has ended (`fatal`). Messages are accepted all "
        "the same.",
        "Do what `remedy` says.",
        fields=("fatal", "reason", "remedy"),
    ),
    LogEvent(
        "state.not_compared",
        "The Delta state could not be compared with the data directory in time. Messages are "
        "accepted without the comparison.",
        "Make the store of `--state` reachable. If the data directory is an old copy, stop the "
        "process.",
        fields=("seconds",),
    ),
    LogEvent(
        "state.receipts_left_out",
        "The store of `--state` was away for so long that rows of the order queue were deleted "
        "before they were published. The receipts themselves have been used.",
        "Make the store reachable.",
        fields=("rows", "to"),
    ),
    LogEvent(
        "state.recovered",
        "The publisher works again.",
        fields=("of",),
    ),
    LogEvent(
        "state.rows_gone",
        "Others removed rows from `inbox` that the log does not have any longer.",
        "RESTORE `inbox` to the version before, or read that version.",
        fields=("ranges", "further"),
    ),
    LogEvent(
        "stream.operated",
        "An operator decided about an incoming stream: `accept-gap`, `reset` or `drop`.",
        fields=("action", "queue", "stream_id"),
    ),
    LogEvent(
        "subqueue.made",
        "A remote reader moved a message into a subqueue, which was created for it.",
        fields=("name",),
    ),
    LogEvent(
        "token.broad",
        "A `[[token]]` has `read` and none of `metrics`, `browse` and `decide`, as in builds "
        "before the six verbs, and so it has all four rights.",
        "Write the verbs of the line into the entry, or fewer.",
        fields=("name", "because", "do"),
    ),
    LogEvent(
        "xml.old_parser",
        "Expat is older than the version with a known remedy against slow documents. Messages "
        "are not at risk, because each is parsed as a whole.",
        fields=("version", "because"),
    ),
)
