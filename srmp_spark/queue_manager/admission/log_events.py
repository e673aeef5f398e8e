"""Explain the log events of the path of a message into the store, for every transport."""

from __future__ import annotations

from srmp_spark.log_event import LogEvent

EVENTS: tuple[LogEvent, ...] = (
    LogEvent(
        "accept.answer_failed",
        "A fault of srmp-spark: a message is stored, and its sender got no answer. The sender "
        "sends it again, and the copy is recognised.",
        "Report the traceback.",
        fields=("answer",),
    ),
    LogEvent(
        "accept.count_failed",
        "A fault of srmp-spark: stored messages were not counted in the metrics.",
        "Report the traceback.",
        fields=("messages",),
    ),
    LogEvent(
        "accept.fatal",
        "A fault of srmp-spark between a decision and its write. The process ends, so that "
        "nothing wrong is acknowledged.",
        "Start again (nothing acknowledged is lost), and report the traceback.",
        fields=("id", "destination", "queue", "to"),
    ),
    LogEvent(
        "accept.refused",
        "A message was refused after it was read, or cannot be read. The line is written once for "
        "each reason, destination and sender. With status 400 the sender deletes the message. A "
        "503 is counted only, and refused writers have `writer.refused`.",
        "Read `because`, and run `srmp-spark doctor --queue QUEUE`. The errors page has every "
        "reason.",
        fields=("status", "reason", "destination", "peer", "sender_name", "because", "hint"),
    ),
    LogEvent(
        "disk.freed",
        "The disk has room again, and messages are accepted.",
        fields=("free_bytes", "free_inside_bytes"),
    ),
    LogEvent(
        "disk.full",
        "The volume of the data directory has too little room. Senders are answered 503, and "
        "keep their messages.",
        "Delete received rows, `srmp-spark queue trim NAME --received`, or purge waiting ones: "
        '"A full disk" in troubleshooting.',
        fields=("free_bytes", "promised_bytes", "free_inside_bytes", "least_bytes"),
    ),
    LogEvent(
        "disk.reserve_used",
        "Another program has filled the volume. The file `room.reserve` was deleted, so that rows "
        "can be deleted.",
        "Find the program. The file is made again when the volume has room.",
        fields=("bytes",),
    ),
    LogEvent(
        "request.failed",
        "One kind of request meets a fault of srmp-spark. Such a request is answered 503, and "
        "everything else goes on.",
        "Report the traceback. The sender keeps its message.",
        fields=("shape",),
    ),
    LogEvent(
        "signature.invalid",
        "A message has a wrong XML signature. The line is written once for each sender and "
        "verdict.",
        "Compare the key of `[[signer]]` with the certificate that the sender uses now.",
        fields=("source_qm", "how", "first"),
    ),
    LogEvent(
        "signature.unverified",
        "A signed message came from a queue manager for which no key is named.",
        "Add a `[[signer]]` for `source_qm`, if signatures matter.",
        fields=("source_qm", "how", "first"),
    ),
    LogEvent(
        "signature.valid",
        "The first message of a sender with a right signature.",
        fields=("source_qm", "how", "first"),
    ),
    LogEvent(
        "stream.other_address",
        "A stream continues from another address than before.",
        "Ask whether the sender moved. If not, somebody sends in its name: restrict the queue by "
        "`[[writer]]`.",
        fields=("queue", "stream_id", "before", "now"),
    ),
    LogEvent(
        "stream.stale",
        "Messages of an older stream of this sender arrive. Such messages are answered 200 and "
        "not kept.",
        "If the sender counts on in the old stream, run `srmp-spark streams drop` for the live "
        "one.",
        fields=("queue", "stream_id", "live", "peer"),
    ),
)
