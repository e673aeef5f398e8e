"""The states of a connection at its client ([MS-RPCE] 3.3.2, figure 18), in one table.

Theory of operation. The client binds and waits (``WAIT_BIND_ACK``). If its security provider needs
more legs, the client continues with alter_context (``WAIT_ALTER_CONTEXT_RESP``), or ends with an
auth3, which is not answered. Then the client makes calls. A call that waits for its answer does not
change the state of the connection: with concurrent multiplexing there may be several. Any other PDU
is a protocol error and closes the connection. A call that takes too long closes the connection too.
A shutdown of the server is reported to the owner, who closes the connection when no call waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from srmp_spark.mqrr.rpc.pdu import PduType


class ClientState(Enum):
    """State of one connection at its client."""

    ESTABLISHED = auto()
    WAIT_BIND_ACK = auto()
    WAIT_ALTER_CONTEXT_RESP = auto()
    CONTEXT_NEGOTIATED = auto()
    CLOSED = auto()


class ClientEvent(Enum):
    """Events that change the state of a connection at its client."""

    SEND_BIND = auto()
    ACCEPTED = auto()
    """The last answer of the negotiation was received."""
    CONTINUES = auto()
    """An answer was received, and the security provider needs another leg."""
    REFUSED = auto()
    """The server sent bind_nak or a fault, or accepted no context."""
    CALL = auto()
    ANSWER = auto()
    """A response or a fault was received, whole or in part."""
    SHUTDOWN = auto()
    TIMED_OUT = auto()
    PROTOCOL_ERROR = auto()
    GONE = auto()


_S, _E = ClientState, ClientEvent
TRANSITIONS: Mapping[tuple[ClientState, ClientEvent], ClientState] = {
    (_S.ESTABLISHED, _E.SEND_BIND): _S.WAIT_BIND_ACK,
    (_S.WAIT_BIND_ACK, _E.ACCEPTED): _S.CONTEXT_NEGOTIATED,
    (_S.WAIT_BIND_ACK, _E.CONTINUES): _S.WAIT_ALTER_CONTEXT_RESP,
    (_S.WAIT_BIND_ACK, _E.REFUSED): _S.CLOSED,
    (_S.WAIT_ALTER_CONTEXT_RESP, _E.ACCEPTED): _S.CONTEXT_NEGOTIATED,
    (_S.WAIT_ALTER_CONTEXT_RESP, _E.CONTINUES): _S.WAIT_ALTER_CONTEXT_RESP,
    (_S.WAIT_ALTER_CONTEXT_RESP, _E.REFUSED): _S.CLOSED,
    (_S.CONTEXT_NEGOTIATED, _E.CALL): _S.CONTEXT_NEGOTIATED,
    (_S.CONTEXT_NEGOTIATED, _E.ANSWER): _S.CONTEXT_NEGOTIATED,
    (_S.CONTEXT_NEGOTIATED, _E.SHUTDOWN): _S.CONTEXT_NEGOTIATED,
    **{
        (state, _E.TIMED_OUT): _S.CLOSED
        for state in (_S.WAIT_BIND_ACK, _S.WAIT_ALTER_CONTEXT_RESP, _S.CONTEXT_NEGOTIATED)
    },
    **{(state, _E.PROTOCOL_ERROR): _S.CLOSED for state in _S},
    **{(state, _E.GONE): _S.CLOSED for state in _S},
}

MAY_COME: Mapping[ClientState, frozenset[PduType]] = {
    _S.ESTABLISHED: frozenset(),
    _S.WAIT_BIND_ACK: frozenset({PduType.BIND_ACK, PduType.BIND_NAK, PduType.FAULT}),
    _S.WAIT_ALTER_CONTEXT_RESP: frozenset({PduType.ALTER_CONTEXT_RESP, PduType.FAULT}),
    _S.CONTEXT_NEGOTIATED: frozenset({PduType.RESPONSE, PduType.FAULT, PduType.SHUTDOWN}),
    _S.CLOSED: frozenset(),
}
"""PDU types that are allowed in each state."""
