"""A dialogue with the client core of remote read that reads like the specification.

    assert (
        ReaderPlaybook()
        >> connected()
        << sends("bind")
        >> accepts()
        << ready()
        >> call(*open_queue(QUEUE, ACCESS_PEEK))
        << sends("R_OpenQueue")
        >> answers(HandleRequest(HANDLE))
        << outcome(2, HandleRequest(HANDLE))
    )

A ``>>`` step is an input, a ``<<`` step is an expected output. ``tests/kit/dialogue.py`` explains the
notation. The server is the RPC engine of the package. Its answers reach the reader in the steps
:func:`accepts`, :func:`answers` and :func:`faults`. The bind is call 1, so calls count from 2.
"""

from __future__ import annotations

import itertools
from typing import Any

from srmp_spark.mqrr.client.failures import NotSentError
from srmp_spark.mqrr.client.reader_states import Connect
from srmp_spark.mqrr.client.remote_reader import Answer, Outcome, RemoteReader
from srmp_spark.mqrr.ndr.methods import METHODS, Parameters
from srmp_spark.mqrr.rpc.associations import Associations
from srmp_spark.mqrr.rpc.binding import NDR_ID, REMOTE_READ
from srmp_spark.mqrr.rpc.client_connection import ClientSettings
from srmp_spark.mqrr.rpc.endpoint_mapper import (
    ENDPOINT_MAPPER,
    ENDPOINT_MAPPER_PORT,
    EPT_MAP,
    NOT_REGISTERED,
    MapResponse,
    Tower,
)
from srmp_spark.mqrr.rpc.server_connection import ServerConnection, ServerSettings
from srmp_spark.mqrr.rpc.server_events import CallReceived
from tests.kit.dialogue import Dialogue, Input, Output

HOST = "windows.example"
PORT = 2103
_INTERFACES = {
    ENDPOINT_MAPPER_PORT: {ENDPOINT_MAPPER: frozenset((EPT_MAP,))},
    PORT: {REMOTE_READ: frozenset(METHODS)},
}


# --- inputs: what the owner and the server do ---


def connected() -> Input:
    return Input("connected", lambda playbook: playbook.connected())


def not_connected(reason: str) -> Input:
    return Input("not connected", lambda playbook: playbook.reader.not_connected(reason))


def prepared() -> Input:
    return Input("prepared", lambda playbook: playbook.reader.prepared(ClientSettings()))


def lost(reason: str = "reset") -> Input:
    def act(playbook: ReaderPlaybook) -> None:
        playbook.take(playbook.reader.connection_lost(reason))

    return Input(f"lost: {reason}", act)


def tick(seconds: float) -> Input:
    return Input(f"{seconds} s", lambda playbook: playbook.tick(seconds))


def accepts() -> Input:
    """The server's answer to the bind is received."""
    return Input("accepts", lambda playbook: playbook.carry())


def names(port: int | None) -> Input:
    """The endpoint mapper names a port, or ``None``."""
    towers = () if port is None else (Tower(REMOTE_READ, NDR_ID, port, bytes(4)),)
    stub = MapResponse(towers, 0 if towers else NOT_REGISTERED).encode()
    return Input(f"names {port}", lambda playbook: playbook.respond(stub, 0))


def answers(response: Parameters | bytes, *, nth: int = 0) -> Input:
    """The server answers a call that waits; ``nth`` 0 is the oldest one."""
    return Input(f"answers {response!r}", lambda playbook: playbook.respond(response, nth))


def faults(status: int) -> Input:
    return Input(f"faults {status:#x}", lambda playbook: playbook.fault(status))


def receives(data: bytes) -> Input:
    """The reader receives other bytes than those of the server."""
    return Input(f"receives {data[:8]!r}", lambda playbook: playbook.receive(data))


def call(opnum: int, asked: Parameters, wait_s: float = 0.0) -> Input:
    return Input(
        f"call {METHODS[opnum].name}", lambda playbook: playbook.call(opnum, asked, wait_s)
    )


# --- outputs: what the owner is to do, and what becomes of calls ---


def connects(port: int) -> Output:
    return Output(f"connect to {port}")


def prepares() -> Output:
    return Output("prepare")


def disconnects() -> Output:
    return Output("disconnect")


def ready() -> Output:
    return Output("ready")


def sends(what: str) -> Output:
    """A bind or a call is sent; the call is named by its method."""
    return Output(f"send {what}")


def outcome(number: int, response: Parameters) -> Output:
    return Output(f"call {number}: {response!r}")


def fails(number: int, kind: type[Exception], text: str) -> Output:
    return Output(f"call {number}: {kind.__name__}: {text}")


def not_sent(text: str) -> Output:
    return Output(f"{NotSentError.__name__}: {text}")


def ends(kind: type[Exception], text: str) -> Output:
    """The connection ends with an error for the owner."""
    return Output(f"end: {kind.__name__}: {text}")


# --- the dialogue ---------------------------------------------------------------------------------


class ReaderPlaybook(Dialogue):
    """A reader, its owner, and a server that answers when the dialogue says so."""

    def __init__(self, port: int | None = PORT, *, multiplexing: bool = True) -> None:
        """Begin with a reader that is to connect; with ``port``, the sign-in is prepared."""
        super().__init__()
        self.reader = RemoteReader(HOST, port)
        if port is not None:
            self.reader.prepared(ClientSettings(multiplexing=multiplexing))
        self.now = 0.0
        ids, uuids = itertools.count(1), itertools.count(1)
        self._groups: Associations[Any] = Associations(
            new_id=lambda: next(ids), new_uuid=lambda: next(uuids).to_bytes(16, "big")
        )
        self._server = self._new_server(port or ENDPOINT_MAPPER_PORT)
        self._received: list[CallReceived] = []
        self._told = self._state()

    def describe(self) -> str:
        return repr(self.reader)

    def step(self, step: Input) -> list[Output]:
        self.heard = []
        step.act(self)
        self._pump()
        if (state := self._state()) != self._told and state is not None:
            self.heard.append(state)
        self._told = state
        return self.heard

    def connected(self) -> None:
        effect = self.reader.effect
        assert isinstance(effect, Connect)
        self._server = self._new_server(effect.port)
        self.reader.connected(self.now)

    def tick(self, seconds: float) -> None:
        self.now += seconds
        due = self.reader.timer()
        if due is not None and due <= self.now:
            self.take(self.reader.handle_timer(self.now))

    def carry(self) -> None:
        self.receive(self._server.data_to_send())

    def receive(self, data: bytes) -> None:
        self.take(self.reader.receive(data, self.now))

    def respond(self, response: Parameters | bytes, nth: int) -> None:
        asked = self._received.pop(nth)
        stub = response if isinstance(response, bytes) else response.encode(asked.syntax)
        self._server.respond(asked.call_id, stub)
        self.carry()

    def fault(self, status: int) -> None:
        self._server.fail(self._received.pop(0).call_id, status)
        self.carry()

    def call(self, opnum: int, asked: Parameters, wait_s: float) -> None:
        try:
            self.reader.call(opnum, asked, self.now, wait_s)
        except NotSentError as error:
            self.heard.append(not_sent(str(error)))

    def take(self, outcomes: list[Outcome]) -> None:
        for each in outcomes:
            if isinstance(each, Answer):
                self.heard.append(outcome(each.number, each.response))
            else:
                self.heard.append(fails(each.number, type(each.error), str(each.error)))

    def _pump(self) -> None:
        data = self.reader.data_to_send()
        if not data:
            return
        events = self._server.receive(data, self.now)
        if not events:
            self.heard.append(sends("bind"))
        for each in events:
            assert isinstance(each, CallReceived), each
            is_mapper = each.interface == ENDPOINT_MAPPER
            self.heard.append(sends("ept_map" if is_mapper else METHODS[each.opnum].name))
            self._received.append(each)

    def _new_server(self, port: int) -> ServerConnection:
        settings = ServerSettings(interfaces=_INTERFACES[port], port=port)
        return ServerConnection(settings, self._groups, "192.0.2.7", 0.0)

    def _state(self) -> Output | None:
        """Return what the owner learns from the state of the reader, if it is something new."""
        reader = self.reader
        if reader.failure is not None:
            return ends(type(reader.failure), str(reader.failure))
        if reader.is_ready:
            return ready()
        effect = reader.effect
        if isinstance(effect, Connect):
            return connects(effect.port)
        return None if effect is None else Output(type(effect).__name__.lower())
