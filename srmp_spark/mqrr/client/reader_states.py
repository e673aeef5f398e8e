"""The states of a connection to a remote queue manager, in one table ([MS-MQRR] 3.2.3, 3.2.4).

Theory of operation. Without a port, the reader first connects to the endpoint mapper of the host,
binds, asks for the port of RemoteRead, and leaves. Then the owner prepares the sign-in, which may
need another server. Then the reader connects to the port and binds, and calls can be made. A queue
is opened, read and closed by calls, which do not change the state: the server keeps the queue, and
closes it with the connection.

What a failure means depends on the state. Before ``READY`` nothing was done, and the owner gets one
error that says what to check. In ``READY`` each call that waits for its answer may have been
carried out. A call that is made after the loss was not sent, and so was not carried out
(:mod:`.failures`). No call is repeated here: only the caller knows whether it may be.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple

CONNECT_SECONDS = 10.0
"""Longest wait for a TCP connection, in seconds.

A machine that has not accepted by then counts as unreachable.
"""
ANSWER_SECONDS = 60.0
"""Longest wait for an answer, in seconds, in addition to the wait that the call requests.

After that the connection is ended, because a later answer would belong to no call.
"""


class ReaderState(Enum):
    """State of one connection to a remote queue manager."""

    CONNECTING_TO_MAPPER = auto()
    BINDING_TO_MAPPER = auto()
    ASKING_MAPPER = auto()
    LEAVING_MAPPER = auto()
    PREPARING = auto()
    """The port is known, and the owner prepares the sign-in."""
    CONNECTING = auto()
    BINDING = auto()
    READY = auto()
    CLOSED = auto()


class ReaderEvent(Enum):
    """Events that change the state of a connection to a remote queue manager."""

    CONNECTED = auto()
    BOUND = auto()
    PORT_FOUND = auto()
    LEFT = auto()
    """The owner has closed the connection to the endpoint mapper."""
    PREPARED = auto()
    FAILED = auto()
    """The server refused or did not answer in time, or the connection was lost or closed."""


_S, _E = ReaderState, ReaderEvent
TRANSITIONS: Mapping[tuple[ReaderState, ReaderEvent], ReaderState] = {
    (_S.CONNECTING_TO_MAPPER, _E.CONNECTED): _S.BINDING_TO_MAPPER,
    (_S.BINDING_TO_MAPPER, _E.BOUND): _S.ASKING_MAPPER,
    (_S.ASKING_MAPPER, _E.PORT_FOUND): _S.LEAVING_MAPPER,
    (_S.LEAVING_MAPPER, _E.LEFT): _S.PREPARING,
    (_S.PREPARING, _E.PREPARED): _S.CONNECTING,
    (_S.CONNECTING, _E.CONNECTED): _S.BINDING,
    (_S.BINDING, _E.BOUND): _S.READY,
    **{(state, _E.FAILED): _S.CLOSED for state in _S},
}


class Connect(NamedTuple):
    """Order to connect to ``port`` of the host within ``seconds``.

    Then call :meth:`.RemoteReader.connected` or ``not_connected``.
    """

    port: int
    seconds: float = CONNECT_SECONDS


class Prepare(NamedTuple):
    """Order to make the settings of the connection, then call :meth:`.RemoteReader.prepared`."""


class Disconnect(NamedTuple):
    """Order to close the transport, then call :meth:`.RemoteReader.connection_lost`."""


ReaderEffect = Connect | Prepare | Disconnect
