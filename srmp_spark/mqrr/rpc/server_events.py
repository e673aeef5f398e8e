"""What comes out of a server's connection: values, never actions."""

from __future__ import annotations

from typing import Any, NamedTuple

from srmp_spark.mqrr.ndr.transfer_syntax import TransferSyntax
from srmp_spark.mqrr.rpc.associations import Association
from srmp_spark.mqrr.rpc.binding import SyntaxId


class CallReceived(NamedTuple):
    """A whole request. Answer with ``respond`` or ``fail`` of its connection, in any order."""

    call_id: int
    interface: SyntaxId
    syntax: TransferSyntax
    opnum: int
    stub: bytes
    """Without its verification trailer, which was compared; up to three bytes of padding may end it."""
    association: Association[Any]
    identity: str | None
    """Who calls; ``None`` without security."""
    auth_level: int


class CallCancelled(NamedTuple):
    """The caller wants to wait no longer. Answer all the same, soon."""

    call_id: int


class CallOrphaned(NamedTuple):
    """The caller is gone: nobody waits for the answer, and none is sent."""

    call_id: int


class Rundown(NamedTuple):
    """The last connection of an association is gone: undo what its handles stood for. ``values`` is empty where
    another process keeps the handles."""

    association: Association[Any]
    values: tuple[Any, ...]


class ConnectionClosed(NamedTuple):
    """Send what is left to send, then close the transport. Calls that were not answered need no answer."""

    reason: str
    calls: tuple[int, ...]


ConnectionEvent = CallReceived | CallCancelled | CallOrphaned | Rundown | ConnectionClosed
