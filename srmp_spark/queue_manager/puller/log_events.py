"""Explain the log events of subscriptions."""

from __future__ import annotations

from srmp_spark.log_event import LogEvent

EVENTS: tuple[LogEvent, ...] = (
    LogEvent(
        "cutover.begins",
        "A subscription that copied moves its queue now. Its consumers are held until every copied "
        "message is decided.",
        fields=("name", "consumers", "undecided", "without_row"),
    ),
    LogEvent(
        "cutover.not_held",
        "A lease of a cut-over could not be renewed: the queue or the consumer was deleted.",
        "`srmp-spark subscribe cutover --check`, if the queue is still wanted.",
        fields=("queue", "reason"),
    ),
    LogEvent(
        "cutover.settled",
        "Every copied message is decided, and what was received there is marked as received. The "
        "readers here may begin.",
        fields=("name", "received_there"),
    ),
    LogEvent(
        "subscription.added",
        "A subscription was added or changed by a call.",
        fields=("name", "mode", "to"),
    ),
    LogEvent(
        "subscription.configured",
        "The configuration file has a subscription that was also added by a call. The file counts.",
        "Remove the added one: `srmp-spark subscribe remove`.",
        fields=("name",),
    ),
    LogEvent(
        "subscription.cut_over",
        "A subscription that copied was cut over by a call: it moves its queue from now on.",
        fields=("name", "consumers"),
    ),
    LogEvent(
        "subscription.failed",
        "A fault of srmp-spark in a subscription. The queue manager tries again.",
        "Report the traceback.",
        fields=("host", "name"),
    ),
    LogEvent(
        "subscription.held",
        "The subscription moves messages, and the data directory is a copy. The subscription is "
        "on hold, so that two queue managers do not take the same messages.",
        "`srmp-spark subscribe resume --host H --queue Q`, if the original no longer reads that "
        "queue.",
        fields=("name", "reason"),
    ),
    LogEvent(
        "subscription.idle",
        "A subscription cannot go on, for the reason of the line. Its pending messages are kept.",
        "Read the reason; `status.subscriptions` shows it.",
        fields=("name", "pending", "reason"),
    ),
    LogEvent(
        "subscription.removed",
        "A subscription was removed by a call. The subscription ends when its `pending` messages "
        "are settled.",
        fields=("name", "pending"),
    ),
    LogEvent(
        "subscription.resumed",
        "An operator took a subscription off hold.",
        fields=("name",),
    ),
    LogEvent(
        "subscription.trouble",
        "A remote queue cannot be read now. The queue manager tries again. The line is written "
        "once in ten minutes for each reason.",
        'Read the reason: sign-in, network, or rights. Troubleshooting has it under "Remote '
        'queues".',
        fields=("name", "reason"),
    ),
)
