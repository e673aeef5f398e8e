"""Explain the log events of receipts that this queue manager sends."""

from __future__ import annotations

from srmp_spark.log_event import LogEvent

EVENTS: tuple[LogEvent, ...] = (
    LogEvent(
        "decisions.failed",
        "A fault of srmp-spark in the sending of commitment receipts. The queue manager tries "
        "again.",
        "Report the traceback.",
    ),
    LogEvent(
        "receipt.answered",
        "A peer answered a receipt with another status than 200. After 400 the receipt is "
        "discarded, otherwise it is sent again.",
        "After 400, check the peer's queue and its logs.",
        fields=("url", "status", "reason"),
    ),
    LogEvent(
        "receipt.blocked",
        "A message names a receipt address that no rule allows, so the receipt is not sent. The "
        "sender's outgoing queue does not empty.",
        "Add the `--allow-url` of `hint`, if you trust the address.",
        fields=("url", "reason", "hint"),
    ),
    LogEvent(
        "receipt.expired",
        "A receipt was not delivered in its time, and was discarded.",
        "Look whether the sender's machine can be reached.",
        fields=("url", "count", "message_id"),
    ),
    LogEvent(
        "receipt.failed",
        "A fault of srmp-spark with one receipt. Others go on.",
        "Report the traceback.",
        fields=("url",),
    ),
    LogEvent(
        "receipt.impossible",
        "The sender gave a value that no receipt can carry. The receipt is discarded.",
        fields=("url", "reason"),
    ),
    LogEvent(
        "receipt.not_delivered",
        "A receipt could not be delivered now. The queue manager sends the receipt again.",
        "If the line repeats, look at the network and the firewall towards the sender.",
        fields=("url", "reason"),
    ),
    LogEvent(
        "receipt.not_made",
        "No message identifier is left for a receipt.",
        "Read `identifiers.few` on this page.",
        fields=("url", "reason"),
    ),
    LogEvent(
        "receipt.postponed",
        "Receipts to an address wait, because no message identifier is left.",
        "Read `identifiers.few` on this page.",
        fields=("url", "reason"),
    ),
    LogEvent(
        "receipt.refused",
        "A peer refused a receipt for good, and it was discarded.",
        "Check whether the receipt address of the sender is right.",
        fields=("queue", "url", "stream_id"),
    ),
    LogEvent(
        "receipt.sent",
        "A stream receipt was delivered.",
        fields=("queue", "stream_id", "last_ordinal"),
    ),
)
