"""Status codes of remote read and their names.

The codes are HRESULTs of [MS-MQMQ] 2.4 that the methods return, and faults of DCE/RPC.
"""

from __future__ import annotations

from enum import IntEnum


class Status(IntEnum):
    """Status codes that a method returns or a fault carries.

    A code that this enumeration does not list stays a plain number.
    """

    MQ_OK = 0x00000000
    MQ_ERROR = 0xC00E0001
    MQ_ERROR_QUEUE_NOT_FOUND = 0xC00E0003
    MQ_ERROR_INVALID_PARAMETER = 0xC00E0006
    MQ_ERROR_INVALID_HANDLE = 0xC00E0007
    MQ_ERROR_OPERATION_CANCELLED = 0xC00E0008
    MQ_ERROR_SHARING_VIOLATION = 0xC00E0009
    MQ_ERROR_IO_TIMEOUT = 0xC00E001B
    MQ_ERROR_ILLEGAL_CURSOR_ACTION = 0xC00E001C
    MQ_ERROR_MESSAGE_ALREADY_RECEIVED = 0xC00E001D
    MQ_ERROR_ILLEGAL_FORMATNAME = 0xC00E001E
    MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION = 0xC00E0020
    MQ_ERROR_ACCESS_DENIED = 0xC00E0025
    MQ_ERROR_INSUFFICIENT_RESOURCES = 0xC00E0027
    MQ_ERROR_UNSUPPORTED_ACCESS_MODE = 0xC00E0045
    MQ_ERROR_QUEUE_NOT_AVAILABLE = 0xC00E004B
    MQ_ERROR_TRANSACTION_USAGE = 0xC00E0050
    MQ_ERROR_TRANSACTION_SEQUENCE = 0xC00E0051
    MQ_ERROR_STALE_HANDLE = 0xC00E0056
    MQ_ERROR_TRANSACTION_ENLIST = 0xC00E0058
    MQ_ERROR_QUEUE_DELETED = 0xC00E005A
    MQ_ERROR_DEPEND_WKS_LICENSE_OVERFLOW = 0xC00E0067
    MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE = 0xC00E0069
    MQ_ERROR_MESSAGE_NOT_FOUND = 0xC00E0088
    MQ_ERROR_MESSAGE_LOCKED_UNDER_TRANSACTION = 0xC00E009C
    STATUS_INVALID_HANDLE = 0xC0000008
    STATUS_INVALID_PARAMETER = 0xC000000D
    STATUS_ACCESS_DENIED = 0xC0000022
    STATUS_NOT_FOUND = 0xC0000225
    ERROR_ACCESS_DENIED = 0x00000005
    RPC_X_BAD_STUB_DATA = 0x000006F7
    RPC_S_PROTOCOL_ERROR = 0x000006C0
    NCA_S_OP_RNG_ERROR = 0x1C010002
    NCA_S_UNK_IF = 0x1C010003
    NCA_S_PROTO_ERROR = 0x1C01000B
    NCA_S_SERVER_TOO_BUSY = 0x1C010014
    NCA_S_INVALID_PRES_CONTEXT_ID = 0x1C00001C
    NCA_S_FAULT_CONTEXT_MISMATCH = 0x1C00001A
    NCA_S_FAULT_CANCEL = 0x1C00000D
    NCA_S_FAULT_UNSPEC = 0x1C000012


NEVER_IN_A_FAULT = frozenset(
    (
        0x00000000,
        0x80000001,
        0x80000002,
        0x80000003,
        0xC0000005,
        0xC0000006,
        0xC000001D,
        0xC0000096,
        0xC00000AA,
        0xC00000FD,
        0xC0000194,
        0xC0000235,
        0xC0000409,
        0xC0000420,
    )
)
"""Status codes that a server MUST NOT send in a fault ([MS-RPCE] 3.3.3.5.1)."""

NEVER_EXECUTED = frozenset(
    (
        Status.NCA_S_OP_RNG_ERROR,
        Status.NCA_S_UNK_IF,
        Status.NCA_S_SERVER_TOO_BUSY,
        Status.NCA_S_INVALID_PRES_CONTEXT_ID,
        Status.NCA_S_FAULT_CONTEXT_MISMATCH,
    )
)
"""Faults that are sent before the method runs (C706 appendix E).

A call that got such a fault did nothing, whatever the flags of its PDU say.

Codes that may also come from inside the method, or from writing its answer, are not in this set:
ERROR_ACCESS_DENIED, RPC_X_BAD_STUB_DATA, RPC_S_PROTOCOL_ERROR, nca_s_proto_error. For these codes
only the flag shows that nothing was carried out.
"""

END_REMOVED_NOTHING = frozenset(
    (
        Status.MQ_ERROR_INVALID_HANDLE,
        Status.MQ_ERROR_INVALID_PARAMETER,
        Status.MQ_ERROR_MESSAGE_NOT_FOUND,
        Status.MQ_ERROR_STALE_HANDLE,
    )
)
"""Answers of R_EndReceive after which the message was not removed: the lock, the message or the
handle does not exist ([MS-MQRR] 3.1.4.9). The server finds all of these before Dequeue Message
End. Any other failure may come from the removal itself, and does not show whether the message
was removed.
"""


def status_text(status: int) -> str:
    """Return a status as ``MQ_ERROR_QUEUE_NOT_FOUND (0xC00E0003)``.

    A status that is not in :class:`Status` is returned as ``status 0x…``.
    """
    try:
        return f"{Status(status).name} ({status:#010X})".replace("0X", "0x")
    except ValueError:
        return f"status 0x{status:08X}"


def failed(hresult: int) -> bool:
    """Return whether an HRESULT reports a failure: its highest bit is set."""
    return bool(hresult & 0x80000000)
