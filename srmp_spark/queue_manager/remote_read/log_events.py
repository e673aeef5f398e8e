"""Explain the log events of the port of remote read (MQRR)."""

from __future__ import annotations

from srmp_spark.log_event import LogEvent

EVENTS: tuple[LogEvent, ...] = (
    LogEvent(
        "mqrr.accounts_of_all_queues",
        "`--rpc-accounts` gives each of its accounts every right to every queue.",
        "Use `[[rpc_account]]` to give single rights.",
        fields=("accounts", "because"),
    ),
    LogEvent(
        "mqrr.calls_unprotected",
        "`--rpc-min-auth connect` neither signs nor encrypts calls.",
        "Use `privacy`.",
        fields=("because",),
    ),
    LogEvent(
        "mqrr.closed",
        "The connection of a remote reader was closed, for the reason of the line.",
        fields=("peer", "reason"),
    ),
    LogEvent(
        "mqrr.connections_lost",
        "The process of the RPC port has ended. Its readers connect again, and what they had "
        "locked is there for others.",
        "Read `PROCESS.died` on this page.",
        fields=("connections", "because"),
    ),
    LogEvent(
        "mqrr.end_failed",
        "A fault of srmp-spark at the end of a connection.",
        "Report the traceback.",
    ),
    LogEvent(
        "mqrr.follow_failed",
        "New rows of a queue cannot be told to remote readers now. The queue manager tries again.",
        "If the line repeats, look for damaged rows.",
        fields=("queue", "reason"),
    ),
    LogEvent(
        "mqrr.lease_lost",
        "Another receiver holds the queue now, so remote readers can no longer receive from it.",
        "Stop the other receiver, or let remote readers use another queue.",
        fields=("queue", "reason"),
    ),
    LogEvent(
        "mqrr.not_opened",
        "A remote reader could not open a queue; `status` says why.",
        "Check the queue's name, and the rights of the account.",
        fields=("status", "reason"),
    ),
    LogEvent(
        "mqrr.not_purged",
        "A remote reader's purge failed, and nothing was removed.",
        "Read the reason.",
        fields=("queue", "reason"),
    ),
    LogEvent(
        "mqrr.not_stored",
        "What a remote reader received could not be marked now. The message stays.",
        "Read the reason: most often a full disk.",
        fields=("reason",),
    ),
    LogEvent(
        "mqrr.protocol_refused",
        "A remote reader wants to sign in by another protocol than NTLM.",
        "Configure the client for NTLM.",
        fields=("auth_type",),
    ),
    LogEvent(
        "mqrr.purged",
        "A remote reader removed the rows of a queue that were not received.",
        fields=("queue", "rows"),
    ),
    LogEvent(
        "mqrr.signing_in",
        "A sign-in of a remote reader failed, or was refused without judgement because too many "
        "failed before.",
        "Check name and password. Many lines from one address may be an attack.",
        fields=("peer", "who_and_why"),
    ),
    LogEvent(
        "mqrr.too_many_connections",
        "The RPC port has no connection left for this address.",
        "Find out why it opens so many.",
        fields=("peer", "limit"),
    ),
    LogEvent(
        "mqrr.unreadable",
        "A row cannot be made into a message for a remote reader.",
        'See "Damaged rows" in troubleshooting.',
        fields=("queue", "sequence", "reason"),
    ),
)
