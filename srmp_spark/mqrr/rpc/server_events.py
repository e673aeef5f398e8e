"""Events that a server's connection returns to its owner. Events are values, never actions."""

from __future__ import annotations

from typing import Any, NamedTuple

from srmp_spark.mqrr.ndr.transfer_syntax import TransferSyntax
from srmp_spark.mqrr.rpc.associations import Association
from srmp_spark.mqrr.rpc.binding import SyntaxId


class CallReceived(NamedTuple):
    """Reports that a whole request was received.

    Answer with ``respond`` or ``fail`` of its connection. Calls may be answered in any order.
    """

    call_id: int
    interface: SyntaxId
    syntax: TransferSyntax
    opnum: int
    stub: bytes
    """The stub without its verification trailer, which was checked.

    Up to three bytes of padding may follow the stub.
    """
    association: Association[Any]
    identity: str | None
    """Name of the authenticated caller; ``None`` without security."""
    auth_level: int


class CallCancelled(NamedTuple):
    """Reports that the caller no longer wants to wait. Answer the call soon all the same."""

    call_id: int


class CallOrphaned(NamedTuple):
    """Reports that the caller has abandoned the call. No answer is expected and none is sent."""

    call_id: int


class Rundown(NamedTuple):
    """Reports that the last connection of an association was closed.

    Undo what the ``values`` of its handles stood for. ``values`` is empty if another process keeps
    the handles.
    """

    association: Association[Any]
    values: tuple[Any, ...]


class ConnectionClosed(NamedTuple):
    """Reports that the connection is closed: send the remaining data, then close the transport.

    The unanswered ``calls`` need no answer.
    """

    reason: str
    calls: tuple[int, ...]


ConnectionEvent = CallReceived | CallCancelled | CallOrphaned | Rundown | ConnectionClosed
