"""Fuzzes the RemoteRead server ([MS-MQRR]) with whole conversations.

The owner of the queues in this module carries out each effect of the server at once. An input is a
sequence of calls, each ``opnum u8 · bits u8 · length u16 · stub``. The bits are: 1 NDR64; 2 the
second of two clients; 4 six minutes pass before the call; 8 a message arrives before the call; 16
the client disconnects after the call.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from random import Random
from struct import Struct
from typing import Any

from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.lookup_identifier import rebuilt
from srmp_spark.mqrr.ndr.methods import (
    ACCESS_MOVE,
    ACCESS_RECEIVE,
    METHODS,
    EndReceiveRequest,
    EnlistRequest,
    HandleNumberRequest,
    HandleRequest,
    MoveMessageRequest,
    NoParameters,
    OpenRequest,
    Parameters,
    SetClassRequest,
)
from srmp_spark.mqrr.ndr.receive import StartReceiveRequest
from srmp_spark.mqrr.ndr.stub import ContextHandle
from srmp_spark.mqrr.ndr.transfer_syntax import NDR, NDR64, TransferSyntax
from srmp_spark.mqrr.packets.message_packet import EncodedPacket
from srmp_spark.mqrr.queue_format import queue_format_of
from srmp_spark.mqrr.rpc.associations import Associations
from srmp_spark.mqrr.rpc.binding import REMOTE_READ
from srmp_spark.mqrr.rpc.server_events import CallReceived
from srmp_spark.mqrr.server.effects import (
    AnswerCall,
    Effect,
    FaultCall,
    FindQueue,
    Purge,
    ReadMessage,
    ReleaseQueue,
    ServedMessage,
    Take,
)
from srmp_spark.mqrr.server.positions import ArrivedRun, Positions
from srmp_spark.mqrr.server.remote_read import RemoteReadServer
from srmp_spark.mqrr.server.which_queue import CannotOpenError, which_queue
from srmp_spark.mqrr.status import Status
from tests.kit.fuzz.judge import Outcome, ViolationError

CALL = Struct("<BBH")
CALLS_MAX = 40
"""Most calls of one input, because a changed length can turn a few calls into many.

Further calls are ignored.
"""
_NDR64, _OTHER, _LATER, _CAME, _GONE = 1, 2, 4, 8, 16
_PRIORITIES = (3, 7, 3, 0)
_CONTEXT = 0x5EED


class _Queue:
    """The owner's view of one queue.

    Sequences begin with 1. ``priorities`` has the priority of each message that ever arrived,
    ``left`` the sequences of those that have left the queue.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.transactional = True
        self.priorities: list[int] = []
        self.left: set[int] = set()

    def floor(self) -> int:
        """Return 0, because no message of this queue is ever trimmed."""
        return 0

    def is_behind(self) -> bool:
        """Return False, because every change is reported at once."""
        return False

    def holds_receivers(self) -> bool:
        """Return False, because nobody pauses the readers of this queue."""
        return False

    def has_left(self, sequence: int) -> bool:
        """Return whether the message ``sequence`` has left the queue for good."""
        return sequence in self.left

    def add(self, priority: int) -> ArrivedRun:
        """Add an arriving message, and return it as a run of one for the server's report."""
        self.priorities.append(priority)
        return ArrivedRun(priority, len(self.priorities), len(self.priorities))


class Conversation:
    """A server with two queues, four messages in the first one, and two clients.

    The two clients are numbered ``False`` and ``True``. Methods raise :class:`ViolationError` if
    the server answers a call twice, takes a message twice, or closes too often.
    """

    def __init__(self) -> None:
        contexts, ids, uuids = itertools.count(_CONTEXT), itertools.count(1), itertools.count(1)
        self.server = RemoteReadServer(2103, new_move_context=lambda: next(contexts))
        self.groups: Associations[Any] = Associations(
            new_id=lambda: next(ids), new_uuid=lambda: next(uuids).to_bytes(16, "big")
        )
        self.queues = {
            name: _Queue(name) for name in (r"private$\orders", r"private$\orders;retry")
        }
        self.orders = next(iter(self.queues.values()))
        for priority in _PRIORITIES:
            self.orders.add(priority)
        self.now = 0.0
        self.clients = [self.groups.join(0, "192.0.2.1") for _ in range(2)]
        self.answers: dict[int, tuple[int, bytes | int]] = {}
        self.opened = 0

    # --- the owner --------------------------------------------------------------------------------

    def do(self, effects: list[Effect]) -> None:
        """Carry out all effects, and every effect that follows from them."""
        for effect in effects:
            self._do(effect)

    def _do(self, effect: Effect) -> None:
        server = self.server
        if isinstance(effect, AnswerCall | FaultCall):
            number = effect.call.number
            _demand(number not in self.answers, "answered twice")
            self.answers[number] = (
                (1, effect.stub) if isinstance(effect, AnswerCall) else (0, effect.status)
            )
        elif isinstance(effect, FindQueue):
            queue = self._find(effect)
            if queue is None:
                self.do(server.not_opened(effect.opening, Status.MQ_ERROR_QUEUE_NOT_FOUND))
                return
            self.opened += 1
            there = [
                ArrivedRun(p, n, n)
                for n, p in enumerate(queue.priorities, 1)
                if n not in queue.left
            ]
            positions = Positions()
            positions.add(there)
            self.do(server.opened(effect.opening, queue, positions, self.now))
        elif isinstance(effect, ReadMessage):
            message = ServedMessage(
                EncodedPacket(b"head", b"body", b"tail"), srmp=False, arrived_at=1
            )
            self.do(server.read(effect.reading, message, self.now))
        elif isinstance(effect, Take):
            self._take(effect)
        elif isinstance(effect, Purge):
            queue = _queue(effect.queue)
            queue.left |= set(range(1, len(queue.priorities) + 1)) - set(effect.spared)
            self.do(server.purged(effect.purging))
        else:
            _demand(isinstance(effect, ReleaseQueue), "an effect that nobody knows")
            self.opened -= 1
            _demand(self.opened >= 0, "closed more often than opened")

    def _find(self, asked: FindQueue) -> _Queue | None:
        try:
            return self.queues.get(which_queue(asked.queue).name)
        except CannotOpenError:
            return None

    def _take(self, effect: Take) -> None:
        queue, to = _queue(effect.queue), effect.to
        _demand(effect.sequence not in queue.left, "taken twice")
        queue.left.add(effect.sequence)
        self.do(self.server.stored(effect.storing))
        if to is not None:
            run = _queue(to).add(queue.priorities[effect.sequence - 1])
            self.do(self.server.add_arrived(to, [run], self.now))

    # --- the clients ------------------------------------------------------------------------------

    def call(self, number: int, opnum: int, bits: int, stub: bytes) -> None:
        """Make call ``number`` of the input, with the events that its ``bits`` demand.

        ``opnum`` and ``stub`` are the operation and its encoded parameters.
        """
        server, which = self.server, bool(bits & _OTHER)
        if bits & _LATER:
            self.wait(360.0)
        if bits & _CAME:
            self.do(server.add_arrived(self.orders, [self.orders.add(5)], self.now))
        syntax = NDR64 if bits & _NDR64 else NDR
        received = CallReceived(
            number, REMOTE_READ, syntax, opnum, stub, self.clients[which], None, 1
        )
        self.do(server.call(which, received, self.now))
        if bits & _GONE:
            self.gone(which)
            self.clients[which] = self.groups.join(0, "192.0.2.1")

    def gone(self, which: bool) -> None:
        """Disconnect the client ``which``, as kill -9 of the client does."""
        self.do(self.server.calls_gone(which, range(CALLS_MAX + 1)))
        self.do(self.server.run_down(self.groups.leave(self.clients[which]), self.now))

    def wait(self, seconds: float) -> None:
        """Let ``seconds`` pass and run the timers that expire meanwhile."""
        end = self.now + seconds
        while (due := self.server.timer()) is not None and due <= end:
            self.now = max(self.now, due)
            self.do(self.server.handle_timer(self.now))
        self.now = end

    def left_over(self) -> int:
        """Disconnect both clients, and return the number of messages left.

        Only messages that have not left their queue are counted. Raises :class:`ViolationError` if
        a queue is still open then.
        """
        for which in (False, True):
            self.gone(which)
        self.wait(1_000.0)
        _demand(self.opened == 0, f"{self.opened} queues are open that nobody has open")
        return sum(len(queue.priorities) - len(queue.left) for queue in self.queues.values())

    def drained(self) -> int:
        """Return the number of messages that a new client can receive from all queues.

        The client receives them. Raises :class:`ViolationError` if a received message cannot be
        ended.
        """
        found = 0
        for queue in self.queues:
            self.clients[0] = self.groups.join(0, "192.0.2.1")
            handle = self._ask(
                2, OpenRequest(queue_format_of(f"DIRECT=OS:host\\{queue}"), ACCESS_RECEIVE)
            ).handle
            for request in itertools.count(1):
                if (
                    self._ask(7, StartReceiveRequest(handle, request_id=request)).status
                    != Status.MQ_OK
                ):
                    break
                _demand(
                    self._ask(9, EndReceiveRequest(handle, 2, request)).status == Status.MQ_OK,
                    "locked, and not ended",
                )
                found += 1
            self.gone(False)
        return found

    def _ask(self, opnum: int, asked: Parameters) -> Any:  # noqa: ANN401  # a response of METHODS
        number = len(self.answers) + 1_000
        self.do(
            self.server.call(
                0,
                CallReceived(
                    number, REMOTE_READ, NDR, opnum, asked.encode(NDR), self.clients[0], None, 1
                ),
                self.now,
            )
        )
        kind, answer = self.answers.get(number, (0, 0))
        _demand(
            kind == 1 and isinstance(answer, bytes),
            f"opnum {opnum} of a new client is not answered: {answer!r}",
        )
        assert isinstance(answer, bytes)
        return METHODS[opnum].decode_response(answer, NDR)


def _queue(view: object) -> _Queue:
    assert isinstance(view, _Queue)
    return view


def _demand(holds: bool, what: str) -> None:
    if not holds:
        raise ViolationError(what)


def _calls(data: bytes) -> list[tuple[int, int, bytes]]:
    opnums, at = sorted(METHODS), 0
    found: list[tuple[int, int, bytes]] = []
    while at + CALL.size <= len(data) and len(found) < CALLS_MAX:
        opnum, bits, length = CALL.unpack_from(data, at)
        at += CALL.size
        found.append((opnums[opnum % len(opnums)], bits, data[at : at + length]))
        at += length
    return found


def _talk(data: bytes) -> Conversation:
    conversation = Conversation()
    for number, (opnum, bits, stub) in enumerate(_calls(data), 1):
        conversation.call(number, opnum, bits, stub)
    return conversation


def parse_conversation(data: bytes) -> Outcome:
    """Run a conversation. The outcome is accepted if a message left its queue.

    The value has the sequences that left, by queue, and the answers.
    """
    conversation = _talk(data)
    left = {name: tuple(sorted(queue.left)) for name, queue in conversation.queues.items()}
    return Outcome(any(left.values()), (left, conversation.answers))


def check_conversation(data: bytes, _outcome: Outcome, _rng: Random) -> None:
    """Run the conversation again, and check that no message is lost, doubled or locked forever."""
    conversation = _talk(data)
    left = conversation.left_over()
    found = conversation.drained()
    _demand(left == found, f"{left} messages were not taken, and {found} are there")


def conversations() -> Sequence[bytes]:
    """Return the seeds: typical conversations of a client, in both transfer syntaxes."""
    orders, retry = (
        queue_format_of(rf"DIRECT=OS:host\private$\{name}") for name in ("orders", "orders;retry")
    )
    first, second = (ContextHandle(0, number.to_bytes(16, "big")) for number in (1, 2))
    open_it, move_to = (
        (2, OpenRequest(orders, ACCESS_RECEIVE)),
        (11, OpenRequest(retry, ACCESS_MOVE)),
    )
    end, nack = (9, EndReceiveRequest(first, 2, 1)), (9, EndReceiveRequest(first, 1, 1))
    tx, at = b"a transaction id", rebuilt(2, priority=7)
    enlist = (12, EnlistRequest(tx, b"token", orders))

    # ``more`` are fields of the request.
    def start(request: int = 1, opnum: int = 7, **more: Any) -> tuple[int, Parameters]:  # noqa: ANN401
        return opnum, StartReceiveRequest(first, request_id=request, **more)

    talks: list[list[tuple[int, Parameters]]] = [
        [open_it, start(), end, (3, HandleRequest(first))],
        [open_it, start(timeout_ms=1_000), nack, start(), end],
        [
            open_it,
            (4, HandleRequest(first)),
            start(2, action=Action.PEEK_CURRENT, cursor=1),
            start(3, action=Action.PEEK_NEXT, cursor=1),
            start(),
            end,
            (5, HandleNumberRequest(first, 1)),
        ],
        [
            open_it,
            start(2, action=Action.LOOKUP_PEEK_NEXT, lookup_id=at),
            start(action=Action.LOOKUP_RECEIVE_CURRENT, lookup_id=at),
            end,
        ],
        [
            open_it,
            enlist,
            start(opnum=13, transaction=tx),
            (15, EndReceiveRequest(first, 2, 1)),
            (14, SetClassRequest(first, at, 0xC004)),
            (0, NoParameters()),
        ],
        [
            open_it,
            move_to,
            (10, MoveMessageRequest(first, _CONTEXT, at, bytes(16))),
            (3, HandleRequest(second)),
        ],
        [
            open_it,
            move_to,
            enlist,
            (10, MoveMessageRequest(first, _CONTEXT, at, tx)),
            (6, HandleRequest(first)),
            (0, NoParameters()),
        ],
        [
            open_it,
            start(timeout_ms=60_000),
            (8, HandleNumberRequest(first, 1)),
            (6, HandleRequest(first)),
        ],
    ]
    return [_packed(talk, NDR64 if wide else NDR, wide) for talk in talks for wide in (0, _NDR64)]


def _packed(talk: Sequence[tuple[int, Parameters]], syntax: TransferSyntax, bits: int) -> bytes:
    opnums, found = sorted(METHODS), b""
    for opnum, asked in talk:
        stub = asked.encode(syntax)
        found += CALL.pack(opnums.index(opnum), bits, len(stub)) + stub
    return found
