"""Answer as an endpoint mapper (``--rpc-endpoint-mapper``): state the port of remote read.

The specification is [MS-RPCE] 2.2.1.2. Clients since Windows Vista ask at port 135 and do not use a
fixed port. If a service listens at port 135 already, clients ask that service. This mapper is for
machines without one. It needs nothing of the main process, and answers in the gateway process.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.mqrr.rpc.associations import Association
from srmp_spark.mqrr.rpc.binding import SyntaxId
from srmp_spark.mqrr.rpc.endpoint_mapper import NOT_REGISTERED, MapResponse, decode_map_request
from srmp_spark.mqrr.rpc.server_events import CallReceived
from srmp_spark.mqrr.status import Status
from srmp_spark.queue_manager.remote_read.endpoint import CallReplies


class MapperService:
    """Answers the calls of the endpoint mapper (:class:`.endpoint.Service`) without waiting."""

    def __init__(self, ports: Mapping[SyntaxId, int]) -> None:
        self._ports = ports
        self._connections: dict[Hashable, CallReplies] = {}

    def connected(self, key: Hashable, replies: CallReplies) -> None:
        """Record a new connection. ``replies`` sends the answers of its calls."""
        self._connections[key] = replies

    def disconnected(self, key: Hashable) -> None:
        """Forget a connection, because it has ended."""
        self._connections.pop(key, None)

    def answers_taken(self, key: Hashable) -> None:
        """Do nothing, because no answer is held back until a reader takes others."""

    def call(self, key: Hashable, received: CallReceived) -> None:
        """Answer ept_map with the port of the wanted interface, or with "not registered".

        A stub that cannot be decoded is answered with a fault.
        """
        replies = self._connections[key]
        try:
            asked = decode_map_request(received.stub)
        except RemoteProtocolError:
            replies.fail(received.call_id, Status.RPC_X_BAD_STUB_DATA)
            return
        port = None if asked is None else self._ports.get(asked.interface)
        if asked is None or port is None:
            replies.respond(received.call_id, MapResponse((), NOT_REGISTERED).encode())
        else:
            replies.respond(received.call_id, MapResponse((asked._replace(port=port),), 0).encode())

    def cancelled(self, key: Hashable, call_id: int) -> None:
        """Do nothing, because every call is answered at once."""

    def orphaned(self, key: Hashable, call_id: int) -> None:
        """Do nothing, because every call is answered at once."""

    def run_down(self, association: Association[Any]) -> None:
        """Do nothing, because the endpoint mapper opens no handles."""
