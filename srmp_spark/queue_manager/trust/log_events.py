"""Explain the log events of certificates, signers and writers."""

from __future__ import annotations

from srmp_spark.log_event import LogEvent

EVENTS: tuple[LogEvent, ...] = (
    LogEvent(
        "signer.key",
        "A key of a `[[signer]]` was read at the start.",
        fields=("source_qm", "key", "file"),
    ),
    LogEvent(
        "signer.weak",
        "A key of a `[[signer]]` is so short that anybody can compute its private key.",
        "Ask the sender for a longer key.",
        fields=("source_qm", "key"),
    ),
    LogEvent(
        "tls.not_renewed",
        "New certificate files cannot be used. The files that were read before stay in use.",
        "Correct the files; they are read again without a restart.",
        fields=("files", "reason"),
    ),
    LogEvent(
        "tls.renewed",
        "Certificate files have changed and were read again.",
        fields=("files",),
    ),
    LogEvent(
        "writer.refused",
        "A sender may not write to this queue, and is answered 401 or 403. The sender keeps its "
        "message. The line is written once for each queue and sender.",
        "If the sender may write, add the `[[writer]]` entry of the line.",
        fields=("queue", "peer", "sender_name", "token", "hint"),
    ),
)
