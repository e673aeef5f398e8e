"""The states of a connection as its server sees it ([MS-RPCE] 3.3.3, figure 20), in one table.

Theory of operation. A connection is ``ESTABLISHED`` until a bind. One without security, or whose security provider has all it
needs, makes it ``CONTEXT_NEGOTIATED``; one that needs more legs ``NEGOTIATING_SECURITY``, until an alter_context or an auth3 is
the last. Then requests come. A request of several fragments is received whole before another PDU of a call may begin: while
it is coming in the state is ``RECV_PDU``. Dispatched calls are no state of the connection: with concurrent multiplexing there
may be many. A protocol error is answered, bind_nak or fault as the PDU asks for, and ends the connection: what follows on it
could not be trusted to mean what it says.

What a PDU *did* is the event: ``BIND`` is one that was accepted, ``BIND_REFUSED`` one that was not. A pair that is not in the
table cannot happen for our own doing; for a PDU of the peer it is a protocol error.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from srmp_spark.mqrr.rpc.pdu import PduType


class ServerState(Enum):
    """Of a connection."""

    ESTABLISHED = auto()
    NEGOTIATING_SECURITY = auto()
    """"Wait for SECURE_ALTER_CONTEXT" and "Negotiating Security": they differ in nothing."""
    CONTEXT_NEGOTIATED = auto()
    RECV_PDU = auto()
    CLOSED = auto()


class ServerEvent(Enum):
    """What moves it."""

    BIND = auto()
    BIND_CONTINUES = auto()
    """Accepted, and the security provider needs another leg."""
    BIND_REFUSED = auto()
    ALTER_CONTEXT = auto()
    ALTER_CONTEXT_CONTINUES = auto()
    AUTH3 = auto()
    WHOLE_REQUEST = auto()
    FIRST_FRAGMENT = auto()
    MIDDLE_FRAGMENT = auto()
    LAST_FRAGMENT = auto()
    CANCEL = auto()
    ORPHANED = auto()
    """Of a call that was dispatched, or of none."""
    ORPHANED_HALFWAY = auto()
    """Of the request that was coming in."""
    PROTOCOL_ERROR = auto()
    TIMED_OUT = auto()
    """Of a negotiation that did not end, or a request of which the rest did not come. Idle connections are left in peace."""
    GONE = auto()
    """The transport lost the connection, or its owner closed it."""


_S, _E = ServerState, ServerEvent
TRANSITIONS: Mapping[tuple[ServerState, ServerEvent], ServerState] = {
    (_S.ESTABLISHED, _E.BIND): _S.CONTEXT_NEGOTIATED,
    (_S.ESTABLISHED, _E.BIND_CONTINUES): _S.NEGOTIATING_SECURITY,
    (_S.ESTABLISHED, _E.BIND_REFUSED): _S.CLOSED,
    (_S.NEGOTIATING_SECURITY, _E.ALTER_CONTEXT): _S.CONTEXT_NEGOTIATED,
    (_S.NEGOTIATING_SECURITY, _E.ALTER_CONTEXT_CONTINUES): _S.NEGOTIATING_SECURITY,
    (_S.NEGOTIATING_SECURITY, _E.AUTH3): _S.CONTEXT_NEGOTIATED,
    (_S.CONTEXT_NEGOTIATED, _E.ALTER_CONTEXT): _S.CONTEXT_NEGOTIATED,
    (_S.CONTEXT_NEGOTIATED, _E.ALTER_CONTEXT_CONTINUES): _S.NEGOTIATING_SECURITY,
    (_S.CONTEXT_NEGOTIATED, _E.WHOLE_REQUEST): _S.CONTEXT_NEGOTIATED,
    (_S.CONTEXT_NEGOTIATED, _E.FIRST_FRAGMENT): _S.RECV_PDU,
    (_S.CONTEXT_NEGOTIATED, _E.CANCEL): _S.CONTEXT_NEGOTIATED,
    (_S.CONTEXT_NEGOTIATED, _E.ORPHANED): _S.CONTEXT_NEGOTIATED,
    (_S.RECV_PDU, _E.MIDDLE_FRAGMENT): _S.RECV_PDU,
    (_S.RECV_PDU, _E.LAST_FRAGMENT): _S.CONTEXT_NEGOTIATED,
    (_S.RECV_PDU, _E.CANCEL): _S.RECV_PDU,
    (_S.RECV_PDU, _E.ORPHANED): _S.RECV_PDU,
    (_S.RECV_PDU, _E.ORPHANED_HALFWAY): _S.CONTEXT_NEGOTIATED,
    **{(state, _E.PROTOCOL_ERROR): _S.CLOSED for state in _S},
    **{(state, _E.TIMED_OUT): _S.CLOSED for state in _S if state is not _S.CLOSED},
    **{(state, _E.GONE): _S.CLOSED for state in _S},
}

MAY_COME: Mapping[ServerState, frozenset[PduType]] = {
    state: frozenset(
        pdu
        for pdu, events in {
            PduType.BIND: {_E.BIND},
            PduType.ALTER_CONTEXT: {_E.ALTER_CONTEXT},
            PduType.AUTH3: {_E.AUTH3},
            PduType.REQUEST: {_E.WHOLE_REQUEST, _E.MIDDLE_FRAGMENT},
            PduType.CO_CANCEL: {_E.CANCEL},
            PduType.ORPHANED: {_E.ORPHANED},
        }.items()
        if any((state, event) in TRANSITIONS for event in events)
    )
    for state in _S
}
"""Which PDUs a state knows what to do with: read off the table, so that the two cannot differ."""
