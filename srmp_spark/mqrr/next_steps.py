"""Next steps for users when another queue manager refuses a read: one sentence for each refusal."""

from __future__ import annotations

from srmp_spark.errors import with_hint
from srmp_spark.mqrr.status import Status, status_text

UNREACHABLE = (
    "check that MSMQ runs there and that its firewall accepts our connection: remote read has "
    "port 2103 unless another program uses it, and a host without a port is asked at port 135, "
    "its endpoint mapper"
)
"""Next step after a connection attempt that no server accepts."""

_ACCOUNT = (
    "check the account: its domain is the domain of the network, or the name of the machine for a "
    "local account; Windows requires the level privacy"
)
_NEXT: dict[int, str] = {
    Status.MQ_ERROR_QUEUE_NOT_FOUND: (
        "write private$\\ before the name of a private queue, and the host as the machine names "
        "itself: the output of hostname there, or a --host-name of a queue manager of ours; a "
        "queue of ours has a ;JOURNAL only if it was declared with :journal"
    ),
    Status.MQ_ERROR_ACCESS_DENIED: (
        "the account needs the right Receive Message; for a copy or a batch query Peek Message; "
        "for a ;JOURNAL Receive Journal Message"
    ),
    Status.MQ_ERROR_SHARING_VIOLATION: (
        "another reader has opened the queue exclusively: stop that reader, or read the queue's "
        "journal"
    ),
    Status.MQ_ERROR_ILLEGAL_FORMATNAME: "a queue is private$\\orders, orders, deadletter$ or "
    "DIRECT=OS:HOST\\QUEUE",
    Status.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION: (
        "a queue is read by a name such as DIRECT=OS:HOST\\QUEUE"
    ),
    Status.MQ_ERROR_QUEUE_DELETED: (
        "the queue was deleted there: create it again, or stop its reader"
    ),
    Status.ERROR_ACCESS_DENIED: _ACCOUNT,
    Status.STATUS_ACCESS_DENIED: _ACCOUNT,
    Status.NCA_S_UNK_IF: (
        "this port does not serve remote read: leave the port out, and the endpoint mapper (port "
        "135) is asked for the right one"
    ),
}


_BIND_NEXT = {
    "AUTHENTICATION_TYPE_NOT_RECOGNIZED": (
        "the server does not accept this kind of sign-in: give an account and the level privacy "
        "(auth level, --auth-level privacy), which Windows requires, or another auth protocol "
        "(ntlm, kerberos); a queue manager of ours needs --rpc-accounts or [[rpc_account]], and "
        "accepts its --rpc-min-auth and the levels above"
    ),
    "TEMPORARY_CONGESTION": "the server is overloaded: try again later",
    "LOCAL_LIMIT_EXCEEDED": "the server has no room for another connection: close "
    "readers that are idle, or try again later",
    "PROTOCOL_VERSION_NOT_SPECIFIED": (
        "the server does not speak DCE/RPC 5.0: does the port lead to MSMQ?"
    ),
}


def bind_next_step(reason: str) -> str:
    """Return the next step for a user after a refused bind; ``reason`` is the reason's name.

    The text is empty for any other reason, because the next step then depends on the case.
    """
    return _BIND_NEXT.get(reason, "")


def next_step(status: int) -> str:
    """Return the next step for a user after the HRESULT or fault status ``status``.

    The text is empty for any other status, because the next step then depends on the case.
    """
    return _NEXT.get(status, "")


def refusal_text(what: str, status: int) -> str:
    """Return one line that names the failed action, the status and the next step.

    The line is ``what: MQ_ERROR_…; next step``.
    """
    return with_hint(f"{what}: {status_text(status)}", next_step(status))
