"""The states of a connection at its server ([MS-RPCE] 3.3.3, figure 20), in one table.

Theory of operation. A connection is ``ESTABLISHED`` until a bind. A bind without security, or one
whose security provider needs nothing more, makes it ``CONTEXT_NEGOTIATED``. A bind whose provider
needs more legs makes it ``NEGOTIATING_SECURITY``, until an alter_context or an auth3 is the last
leg. Then requests are received. A request of several fragments is received whole before another
request may begin; until then the state is ``RECV_PDU``. Dispatched calls do not change the state of
the connection: with concurrent multiplexing there may be many. A protocol error is answered with a
bind_nak or a fault, depending on the PDU, and closes the connection: later PDUs could not be
trusted.

An event is the effect of a PDU: ``BIND`` is an accepted bind, ``BIND_REFUSED`` a refused one. A
pair of state and event that is not in the table is an error: a bug if this program caused the
event, a protocol error if a PDU of the peer did.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from srmp_spark.mqrr.rpc.pdu import PduType


class ServerState(Enum):
    """State of one connection at its server."""

    ESTABLISHED = auto()
    NEGOTIATING_SECURITY = auto()
    """"Wait for SECURE_ALTER_CONTEXT" and "Negotiating Security": this code treats both the same.
    """
    CONTEXT_NEGOTIATED = auto()
    RECV_PDU = auto()
    CLOSED = auto()


class ServerEvent(Enum):
    """Events that change the state of a connection at its server."""

    BIND = auto()
    BIND_CONTINUES = auto()
    """The bind was accepted, and the security provider needs another leg."""
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
    """An orphaned PDU for a dispatched call, or for a call that is over."""
    ORPHANED_HALFWAY = auto()
    """An orphaned PDU for the request whose fragments are being received."""
    PROTOCOL_ERROR = auto()
    TIMED_OUT = auto()
    """A negotiation did not end in time, or the rest of a request was not received in time.

    An idle connection has no time-out in this module.
    """
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
"""PDU types that are allowed in each state.

The types are derived from the table of transitions, so the two cannot differ.
"""
