"""Explain the log events of the sender process."""

from __future__ import annotations

from srmp_spark.log_event import LogEvent

EVENTS: tuple[LogEvent, ...] = (
    LogEvent(
        "dead_letters.queue_missing",
        "The queue of the sink option `deadLetterQueue` is not there or not transactional. Dead "
        "letters are kept by `--state` alone.",
        "Create it with the command of the line.",
    ),
    LogEvent(
        "dead_letters.queue_refused",
        "The queue for dead letters is not there or not transactional. The letter is kept as a "
        "dead letter of the system.",
        "Name another queue, or create one: `srmp-spark queue create NAME --transactional`.",
        fields=("queue", "reason"),
    ),
    LogEvent(
        "dead_letters.unwritable",
        "A dead letter cannot be written as a message. The table `dead_letter_queue` has it.",
        "Read the letter there.",
        fields=("id", "reason"),
    ),
    LogEvent(
        "expiry.paused",
        "The wall clock leapt ahead, or the machine slept. Waiting messages do not expire by "
        "this clock for an hour.",
        "Correct the clock if it is wrong.",
        fields=("seconds",),
    ),
    LogEvent(
        "forward.cursor",
        "A forwarding step was stored although its answer was lost. Nothing is forwarded twice.",
        fields=("reason",),
    ),
    LogEvent(
        "forward.failed",
        "Messages cannot be forwarded now. The queue manager tries again.",
        "Read the reason; with a traceback, report it.",
        fields=("after", "reason"),
    ),
    LogEvent(
        "forward.held",
        "Forwarding is on hold, because the outbox is a copy or an older one.",
        "Do what the line says.",
        fields=("because",),
    ),
    LogEvent(
        "forward.lost",
        "Rows of `private$/forward$` are gone, and this outbox never had them.",
        "Ask their senders to send them again.",
        fields=("queue", "epoch", "first", "last", "rows"),
    ),
    LogEvent(
        "outbox.bad_rows",
        "Rows of a batch can never be sent. The sink's option `onBadRow` decided about them, and "
        "the rest of the batch is sent.",
        "Read `sink.bad_rows` on this page.",
        fields=("application", "batch", "first", "rows"),
    ),
    LogEvent(
        "outbox.conflicts",
        "Rows of a batch have a key or source position that was committed before with other "
        "content. The sink's option decided about them.",
        "Read `sink.conflicts` on this page.",
        fields=("application", "batch", "rows", "on_key_conflict"),
    ),
    LogEvent(
        "outgoing.status_is_old",
        "The sender process did not answer in time. `status.outgoing` shows what was seen last.",
        "If the line repeats, look whether the machine has too little CPU.",
        fields=("reason",),
    ),
    LogEvent(
        "purge.uncertain",
        "A purge of `private$/forward$` could not hold the sender process. Some of the rows may "
        "already be on their way.",
        fields=("reason",),
    ),
    LogEvent(
        "receipts.begin_again",
        "The log was replaced by an older copy. All stream receipts are read again, which "
        "changes nothing.",
        fields=("read_to", "end"),
    ),
    LogEvent(
        "receipts.unreadable",
        "A stored receipt cannot be read by this version. The receipt is left out; the peer "
        "sends the next one.",
        "Report the line.",
        fields=("sequence", "reason"),
    ),
    LogEvent(
        "sender.activated",
        "The data directory, which is a copy, was activated. Messages are sent again. Those that "
        "waited in the copy stay on hold by themselves.",
        "Decide about these with `srmp-spark streams`: `resend` or `drop`.",
        fields=("queues",),
    ),
    LogEvent(
        "sender.answered",
        "A peer answered a message with another status than 200. After 400 the message is a dead "
        "letter, otherwise it is sent again.",
        "Read `reason`, and the state with `srmp-spark streams`.",
        fields=("destination", "status", "reason"),
    ),
    LogEvent(
        "sender.cannot_be_written",
        "A fault of srmp-spark: a message cannot be written. Its destination is on hold.",
        "Report the traceback.",
        fields=("send",),
    ),
    LogEvent(
        "sender.command_failed",
        "A fault of srmp-spark in a call of the outbox. The call was answered 503.",
        "Report the traceback.",
    ),
    LogEvent(
        "sender.dead",
        "Messages became dead letters: refused, expired, dropped or not received. `in_doubt` "
        "says that they may have arrived all the same.",
        "Read them in `dead_letter_queue` of the Delta state, or in the sink's `deadLetterQueue`.",
        fields=("destination", "rows", "reason", "status", "in_doubt"),
    ),
    LogEvent(
        "sender.failed",
        "A message could not be sent, for the reason of the line. The sender process sends the "
        "message again.",
        "If the line repeats, look at the network and the peer.",
        fields=("destination", "reason"),
    ),
    LogEvent(
        "sender.fatal",
        "A write or sync of the outbox failed. The sender process ends, and is started again.",
        "Check the disk.",
    ),
    LogEvent(
        "sender.held",
        "The data directory is a copy, so waiting messages may have been sent already. The "
        "messages are on hold.",
        "Decide with `srmp-spark streams`: `resend` or `drop`, or with `srmp-spark activate "
        "--resend` for all of them.",
        fields=("queues",),
    ),
    LogEvent(
        "sender.live_not_written",
        "The file with the live state of sending could not be written. The next write replaces "
        "the file.",
        "Make room on the disk.",
        fields=("reason",),
    ),
    LogEvent(
        "sender.load_failed",
        "Waiting messages cannot be read from the outbox. Their destination is on hold.",
        'See "Damaged rows" in troubleshooting.',
        fields=("destination", "reason"),
    ),
    LogEvent(
        "sender.no_room",
        "Messages wait for as many destinations as may be. Rows for further destinations became "
        "dead letters.",
        "`srmp-spark streams` lists destinations that do not answer; drop what nobody needs.",
        fields=("destinations", "rows", "first"),
    ),
    LogEvent(
        "sender.operated",
        "An operator decided about a destination: `pause`, `resume`, `resend`, `reset` or `drop`.",
        fields=("action", "destination"),
    ),
    LogEvent(
        "sender.ready",
        "The sender process has loaded what waits, and begins to send.",
        fields=("queues",),
    ),
    LogEvent(
        "sender.receipt_failed",
        "A fault of srmp-spark with one stream receipt. Its messages are sent again, which the "
        "peer recognises.",
        "Report the traceback.",
        fields=("stream_id", "last_ordinal", "id"),
    ),
    LogEvent(
        "sender.receipt_ignored",
        "A stream receipt does not fit a live stream: it is for another stream or address, or "
        "beyond what was sent. The receipt changes nothing.",
        "Nothing, once. If the line repeats, the peer or somebody in its name sends wrong "
        "receipts.",
        fields=("verdict", "stream_id", "last_ordinal"),
    ),
    LogEvent(
        "sender.receipts_elsewhere",
        "A stream began with another receipt address than this queue manager has now. The peer "
        "still sends its receipts to the old one.",
        "If the old address no longer leads here, run the `streams reset` of the line.",
        fields=("destination", "send_receipts_to", "now"),
    ),
    LogEvent(
        "sender.receipts_not_read",
        "Stream receipts cannot be read from the log now. Messages are sent again meanwhile.",
        "Read the reason; check the disk.",
        fields=("after", "reason"),
    ),
    LogEvent(
        "sender.same_queue",
        "Two destinations seem to be the same queue of the peer, so their streams disturb each "
        "other.",
        "Use one spelling of the destination, as the line says.",
        fields=("destination", "other"),
    ),
    LogEvent(
        "sender.stage_reader_ended",
        "Staged rows have ended the process that reads them. The stage is tried once more, then "
        "refused.",
        "Write the rows with a released Arrow; if our sink wrote them, report it.",
        fields=("file", "try", "how"),
    ),
    LogEvent(
        "sender.stopped",
        "The sender process has ended in order.",
        fields=("position",),
    ),
    LogEvent(
        "sender.write_failed",
        "A fault of srmp-spark while changes of sending were written. The sender process ends, "
        "and is started again.",
        "Report the traceback.",
    ),
)
