"""Next steps for users when another queue manager refuses a read: one sentence for each refusal."""

from __future__ import annotations

from srmp_spark.errors import with_hint
from srmp_spark.mqrr.status import Status, status_text

UNREACHABLE = (
    "is MSMQ running there, and may we through its firewall? Remote read has port 2103 "
    "unless taken; for a host without a port "
    "its endpoint mapper, 135, is asked"
)
"""Next step after a connection attempt that no server accepts."""

_ACCOUNT = (
    "is the account right? Its domain is that of the network, or the machine's own name "
    "for a local account; Windows demands "
    "the level privacy"
)
_NEXT: dict[int, str] = {
    Status.MQ_ERROR_QUEUE_NOT_FOUND: (
        "write private$\\ in front of a private queue, and the host as the machine knows "
        "itself: what hostname says there, or "
        "a --host-name of ours; a queue of ours has a ;JOURNAL if it was made with :journal"
    ),
    Status.MQ_ERROR_ACCESS_DENIED: (
        "the account needs Receive Message, to copy or in a batch Peek Message, of a "
        ";JOURNAL Receive Journal Message"
    ),
    Status.MQ_ERROR_SHARING_VIOLATION: (
        "a reader there has the queue for itself alone: stop it, or read the queue's journal"
    ),
    Status.MQ_ERROR_ILLEGAL_FORMATNAME: "a queue is private$\\orders, orders, deadletter$ or "
    "DIRECT=OS:HOST\\QUEUE",
    Status.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION: (
        "a queue is read by a name such as DIRECT=OS:HOST\\QUEUE"
    ),
    Status.MQ_ERROR_QUEUE_DELETED: (
        "the queue was deleted there: make it again, or end what reads it"
    ),
    Status.ERROR_ACCESS_DENIED: _ACCOUNT,
    Status.STATUS_ACCESS_DENIED: _ACCOUNT,
    Status.NCA_S_UNK_IF: "this port has no remote read: leave it out, and the endpoint "
    "mapper (135) is asked for the right one",
}


_BIND_NEXT = {
    "AUTHENTICATION_TYPE_NOT_RECOGNIZED": (
        "the server does not take this way of signing in: give an account and the level "
        "privacy (auth level, "
        "--auth-level privacy), which Windows demands, or another auth protocol (ntlm, "
        "kerberos); a queue manager of ours "
        "needs --rpc-accounts or [[rpc_account]], and takes levels from its --rpc-min-auth on"
    ),
    "TEMPORARY_CONGESTION": "the server has too much to do: try again later",
    "LOCAL_LIMIT_EXCEEDED": "the server has no room for another connection: close readers "
    "that are idle, or try again later",
    "PROTOCOL_VERSION_NOT_SPECIFIED": (
        "the server does not speak DCE/RPC 5.0: does the port lead to MSMQ?"
    ),
}


def bind_next_step(reason: str) -> str:
    """Return the next step after a refused bind, by the name of the reason.

    The text is empty for any other reason, because the next step then depends on the case.
    """
    return _BIND_NEXT.get(reason, "")


def next_step(status: int) -> str:
    """Return the next step after this HRESULT or fault status.

    The text is empty for any other status, because the next step then depends on the case.
    """
    return _NEXT.get(status, "")


def refusal_text(what: str, status: int) -> str:
    """Return one line that names the failed action, the status and the next step.

    The line is ``what: MQ_ERROR_…; next step``.
    """
    return with_hint(f"{what}: {status_text(status)}", next_step(status))
