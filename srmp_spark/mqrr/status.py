"""Status codes of remote read: HRESULTs of [MS-MQMQ] 2.4 that its methods return, faults of DCE/RPC, and their names."""

from __future__ import annotations

from enum import IntEnum


class Status(IntEnum):
    """What a method returns, or a fault carries. Others exist; an unknown one stays a number."""

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
"""Faults that stand before the method (C706 appendix E): a call that got one did nothing, whatever its PDU's flags say.

Not among them: codes that may as well come from within the method or from the writing of its answer (ERROR_ACCESS_DENIED,
RPC_X_BAD_STUB_DATA, RPC_S_PROTOCOL_ERROR, nca_s_proto_error); only the flag says of these that nothing was carried out."""

END_REMOVED_NOTHING = frozenset(
    (
        Status.MQ_ERROR_INVALID_HANDLE,
        Status.MQ_ERROR_INVALID_PARAMETER,
        Status.MQ_ERROR_MESSAGE_NOT_FOUND,
        Status.MQ_ERROR_STALE_HANDLE,
    )
)
"""Of R_EndReceive: there is no such lock any more, no such message, or no such handle ([MS-MQRR] 3.1.4.9). All of that is found
before Dequeue Message End; any other failure may be one of the removal itself, and says nothing of what became of it."""


def status_text(status: int) -> str:
    """``MQ_ERROR_QUEUE_NOT_FOUND (0xC00E0003)``, or the number of one that has no name here."""
    try:
        return f"{Status(status).name} ({status:#010X})".replace("0X", "0x")
    except ValueError:
        return f"status 0x{status:08X}"


def failed(hresult: int) -> bool:
    """Whether an HRESULT says failure: its highest bit is set."""
    return bool(hresult & 0x80000000)
