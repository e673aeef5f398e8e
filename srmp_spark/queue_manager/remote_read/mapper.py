"""An endpoint mapper of our own (``--rpc-endpoint-mapper``): where remote read is, and nothing else ([MS-RPCE] 2.2.1.2).

Clients since Windows Vista ask at port 135 and not at a port that they know. Where somebody listens there already they ask that
one: this is for machines on which nobody does.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.mqrr.rpc.binding import SyntaxId
from srmp_spark.mqrr.rpc.endpoint_mapper import NOT_REGISTERED, MapResponse, decode_map_request
from srmp_spark.mqrr.rpc.server_events import CallReceived
from srmp_spark.mqrr.server.shared_queue import OpenQueue
from srmp_spark.mqrr.status import Status
from srmp_spark.queue_manager.remote_read.service import Answers


class MapperService:
    """Answers at once, and keeps nothing."""

    def __init__(self, ports: Mapping[SyntaxId, int]) -> None:
        self._ports = ports
        self._connections: dict[Hashable, Answers] = {}

    def connected(self, key: Hashable, answers: Answers) -> None:
        """A connection whose calls will be named by ``key``."""
        self._connections[key] = answers

    def disconnected(self, key: Hashable, calls: Iterable[int]) -> None:
        """It is gone."""
        del calls
        self._connections.pop(key, None)

    def has_room(self) -> None:
        """Nothing waits here."""

    def call(self, key: Hashable, received: CallReceived) -> None:
        """ept_map."""
        answers = self._connections[key]
        try:
            asked = decode_map_request(received.stub)
        except RemoteProtocolError:
            answers.fail(received.call_id, Status.RPC_X_BAD_STUB_DATA)
            return
        port = None if asked is None else self._ports.get(asked.interface)
        if asked is None or port is None:
            answers.respond(received.call_id, MapResponse((), NOT_REGISTERED).encode())
        else:
            answers.respond(received.call_id, MapResponse((asked._replace(port=port),), 0).encode())

    def cancelled(self, key: Hashable, call_id: int) -> None:
        """Nothing waits here."""

    def orphaned(self, key: Hashable, call_id: int) -> None:
        """Nothing waits here."""

    def run_down(self, descriptors: Iterable[OpenQueue]) -> None:
        """There are no handles here."""
