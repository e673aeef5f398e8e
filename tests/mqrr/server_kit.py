"""A queue, its owner, and readers of it, without a network: what the tests of the RemoteRead server share."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from typing import Any

from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.lookup_identifier import SEQUENCE_MAX
from srmp_spark.mqrr.ndr.methods import (
    ACCESS_MOVE,
    ACCESS_PEEK,
    ACCESS_RECEIVE,
    METHODS,
    RR_ACK,
    SHARE_DENY_NONE,
    EndReceiveRequest,
    HandleNumberRequest,
    HandleRequest,
    MoveMessageRequest,
    OpenRequest,
)
from srmp_spark.mqrr.ndr.receive import NO_TRANSACTION, StartReceiveRequest
from srmp_spark.mqrr.ndr.transfer_syntax import NDR
from srmp_spark.mqrr.packets.base_header import BaseHeader
from srmp_spark.mqrr.packets.message_packet import MessagePacket
from srmp_spark.mqrr.packets.message_properties_header import MessagePropertiesHeader
from srmp_spark.mqrr.packets.queue_names import direct_queue
from srmp_spark.mqrr.packets.sections import join_sections
from srmp_spark.mqrr.packets.user_header import UserHeader
from srmp_spark.mqrr.queue_format import queue_format_of
from srmp_spark.mqrr.rpc.associations import Associations
from srmp_spark.mqrr.rpc.binding import REMOTE_READ
from srmp_spark.mqrr.rpc.server_events import CallReceived
from srmp_spark.mqrr.server.effects import (
    AnswerCall,
    Effect,
    FaultCall,
    FindQueue,
    LookOn,
    Purge,
    ReadMessage,
    ReleaseQueue,
    RemovalReason,
    ServedMessage,
    Take,
)
from srmp_spark.mqrr.server.positions import ArrivedRun, Positions
from srmp_spark.mqrr.server.remote_read import RemoteReadServer
from srmp_spark.mqrr.status import Status

GUID = "11223344-5566-7788-99aa-bbccddeeff00"
ARRIVED = 1_790_000_000


class Box:
    """A queue of the owner: which messages came, and which have left for good."""

    def __init__(self, name: str = "private$/orders", *, transactional: bool = False) -> None:
        self.name = name
        self.transactional = transactional
        self.priorities: dict[int, int] = {}
        self.left: set[int] = set()
        self.deleted = False
        self.behind = False
        self.holds = False
        """Whether nobody may receive now."""

    def floor(self) -> int:
        low = 0
        while low + 1 in self.left:
            low += 1
        return low

    def is_behind(self) -> bool:
        return self.behind

    def holds_receivers(self) -> bool:
        return self.holds

    def has_left(self, sequence: int) -> bool:
        return self.deleted or sequence in self.left

    def add(self, *priorities: int) -> list[ArrivedRun]:
        runs = []
        for priority in priorities:
            sequence = len(self.priorities) + 1
            self.priorities[sequence] = priority
            runs.append(ArrivedRun(priority, sequence, sequence))
        return runs


def message(sequence: int, priority: int = 3, body: bytes | None = None) -> ServedMessage:
    packet = MessagePacket(
        base=BaseHeader(priority=priority),
        user=UserHeader(
            source_queue_manager=GUID,
            message_id=sequence,
            sent_time=ARRIVED,
            destination_queue=direct_queue(r"OS:host\private$\orders"),
        ),
        properties=MessagePropertiesHeader(
            message_body=f"body {sequence}".encode() if body is None else body
        ),
    )
    return ServedMessage(packet.encode_pieces(), srmp=False, arrived_at=ARRIVED + sequence)


class World:
    """The server, the owner of one or two queues, and time. What the server asks is done at once, unless held back."""

    def __init__(self, *boxes: Box, hold: tuple[type, ...] = ()) -> None:
        self.boxes = {box.name.replace("/", "\\"): box for box in boxes or (Box(),)}
        self.moved: list[tuple[str, int, str, int]] = []
        """(queue, sequence, to, sequence there)."""
        self.box = next(iter(self.boxes.values()))
        contexts = itertools.count(0x5EED)
        self.server = RemoteReadServer(2103, new_move_context=lambda: next(contexts))
        self.now = 1000.0
        self.hold = hold
        """Kinds of effects that are kept in ``held`` and not done."""
        self.held: deque[Effect] = deque()
        self.answers: dict[tuple[object, int], Any] = {}
        self.taken: list[Take] = []
        self.open: list[tuple[Box, bool]] = []
        self.refuse: Status | None = None
        """What every Take fails with."""
        ids, uuids = itertools.count(1), itertools.count(1)
        self.groups: Associations[Any] = Associations(
            new_id=lambda: next(ids), new_uuid=lambda: next(uuids).to_bytes(16, "big")
        )
        self.numbers = itertools.count(1)
        self.opnums: dict[tuple[object, int], int] = {}

    # --- the owner

    def do(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, self.hold):
                self.held.append(effect)
            else:
                self.do_now(effect)

    def do_now(self, effect: Effect) -> None:
        if isinstance(effect, AnswerCall):
            key = effect.call.connection, effect.call.number
            assert key not in self.answers, "answered twice"
            self.answers[key] = METHODS[self.opnums[key]].decode_response(
                effect.stub, effect.call.syntax
            )
        elif isinstance(effect, FaultCall):
            key = effect.call.connection, effect.call.number
            assert key not in self.answers, "answered twice"
            self.answers[key] = Status(effect.status)
        elif isinstance(effect, FindQueue):
            box = self.boxes.get(effect.queue.text.partition("\\")[2])
            if box is None:
                self.do(self.server.not_opened(effect.opening, Status.MQ_ERROR_QUEUE_NOT_FOUND))
                return
            self.open.append((box, effect.receive))
            runs = [
                ArrivedRun(priority, n, n)
                for n, priority in box.priorities.items()
                if n not in box.left
            ]
            positions = Positions()
            positions.add(runs)
            self.do(self.server.opened(effect.opening, box, positions, self.now))
        elif isinstance(effect, ReadMessage):
            box = effect.queue
            if box.has_left(effect.sequence):
                self.do(self.server.vanished(effect.reading))
            else:
                priority = box.priorities[effect.sequence]
                self.do(
                    self.server.read(effect.reading, message(effect.sequence, priority), self.now)
                )
        elif isinstance(effect, Take):
            if self.refuse is not None:
                self.do(self.server.not_stored(effect.storing, self.refuse))
                return
            box, to = effect.queue, effect.to
            assert effect.sequence not in box.left, "taken twice"
            box.left.add(effect.sequence)
            self.taken.append(effect)
            self.do(self.server.stored(effect.storing))
            if to is not None:
                self.came(box.priorities[effect.sequence], box=to)
                self.moved.append((box.name, effect.sequence, to.name, len(to.priorities)))
        elif isinstance(effect, Purge):
            box = effect.queue
            box.left |= box.priorities.keys() - set(effect.spared)
            self.do(self.server.purged(effect.purging))
        elif isinstance(effect, LookOn):
            self.do(self.server.look_on(effect.purging))
        else:
            assert isinstance(effect, ReleaseQueue)
            self.open.remove((effect.queue, effect.receive))

    def release(self) -> None:
        """Do what was held back."""
        while self.held:
            self.do_now(self.held.popleft())

    def came(self, *priorities: int, box: Box | None = None) -> None:
        box = box or self.box
        runs = box.add(*priorities)
        self.do(self.server.add_arrived(box, runs, self.now))

    def wait(self, seconds: float) -> None:
        """Time passes; timers fire when they are due, not before."""
        end = self.now + seconds
        while (due := self.server.timer()) is not None and due <= end:
            self.now = max(self.now, due)
            self.do(self.server.handle_timer(self.now))
        self.now = end

    def reader(self, name: str = "one") -> Reader:
        return Reader(self, name)

    def reasons(self) -> list[tuple[int, RemovalReason]]:
        return [(each.sequence, each.reason) for each in self.taken]


class Reader:
    """One client: an association with one connection. It names statuses and reads packets."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.association = world.groups.join(0, "192.0.2.7")
        self.handle: Any = None
        self.requests = itertools.count(1)

    def call(self, opnum: int, asked: Any, connection: object | None = None) -> int:
        """Begin a call; its number."""
        number = next(self.world.numbers)
        connection = connection or self.name
        self.world.opnums[connection, number] = opnum
        stub = asked.encode(NDR)
        received = CallReceived(number, REMOTE_READ, NDR, opnum, stub, self.association, None, 1)
        self.world.do(self.world.server.call(connection, received, self.world.now))
        return number

    def answer(self, number: int, connection: object | None = None) -> Any:
        """What came back; ``None``: nothing yet."""
        return self.world.answers.get((connection or self.name, number))

    def ask(self, opnum: int, asked: Any) -> Any:
        return self.answer(self.call(opnum, asked))

    # --- the methods

    def opened(
        self,
        access: int = ACCESS_RECEIVE,
        share: int = SHARE_DENY_NONE,
        name: str = r"private$\orders",
    ) -> Reader:
        answer = self.open(access, share, name)
        assert not isinstance(answer, Status), answer.name
        return self

    def open(
        self,
        access: int = ACCESS_RECEIVE,
        share: int = SHARE_DENY_NONE,
        name: str = r"private$\orders",
    ) -> Any:
        answer = self.ask(2, OpenRequest(queue_format_of(f"DIRECT=OS:host\\{name}"), access, share))
        if isinstance(answer, HandleRequest):
            self.handle = answer.handle
        return answer

    def peeking(self) -> Reader:
        return self.opened(ACCESS_PEEK)

    def open_for_move(self, name: str) -> Any:
        """The answer: a move context and a handle, or a fault."""
        return self.ask(11, OpenRequest(queue_format_of(f"DIRECT=OS:host\\{name}"), ACCESS_MOVE))

    def move(
        self, context: int, lookup_id: int, transaction: bytes = NO_TRANSACTION
    ) -> Status | None:
        answer = self.ask(10, MoveMessageRequest(self.handle, context, lookup_id, transaction))
        return None if answer is None else Status(answer.status)

    def close(self) -> Any:
        return self.ask(3, HandleRequest(self.handle))

    def start(
        self, action: int = Action.RECEIVE, *, request: int | None = None, **more: Any
    ) -> int:
        """Begin R_StartReceive, or R_StartTransactionalReceive if there is a ``transaction``; the number of the call."""
        number = next(self.requests) if request is None else request
        opnum = 13 if more.get("transaction") is not None else 7
        asked = StartReceiveRequest(self.handle, action=action, request_id=number, **more)
        self.last = number
        return self.call(opnum, asked)

    def shown(self, call: int) -> Any:
        """(sequence, body) of an answer, or its status; ``None``: nothing yet."""
        answer = self.answer(call)
        if answer is None or isinstance(answer, Status):
            return answer
        if answer.status:
            assert not answer.sections
            return Status(answer.status)
        packet = join_sections(answer.sections)
        assert answer.arrive_time == ARRIVED + answer.sequence_id, "pdwArriveTime"
        return answer.sequence_id, packet.body.decode()

    def get(self, action: int = Action.RECEIVE, **more: Any) -> Any:
        """The sequence of a message that comes at once, or the status."""
        found = self.shown(self.start(action, **more))
        return found[0] if isinstance(found, tuple) else found

    def end(self, request: int | None = None, ack: int = RR_ACK, opnum: int = 9) -> Any:
        answer = self.ask(
            opnum, EndReceiveRequest(self.handle, ack, self.last if request is None else request)
        )
        return (
            None
            if answer is None
            else answer
            if isinstance(answer, Status)
            else Status(answer.status)
        )

    def receive(self, **more: Any) -> Any:
        """Start and end."""
        found = self.get(**more)
        if not isinstance(found, Status):
            assert self.end() == Status.MQ_OK
        return found

    def cancel(self, request: int, connection: str = "another") -> Status:
        number = self.call(8, HandleNumberRequest(self.handle, request), connection)
        return Status(self.answer(number, connection).status)

    def cursor(self) -> int:
        answer = self.ask(4, HandleRequest(self.handle))
        assert answer.status == Status.MQ_OK
        return int(answer.cursor)

    def gone(self) -> None:
        """kill -9: the transport is lost."""
        world = self.world
        calls = [number for connection, number in world.opnums if connection == self.name]
        world.do(world.server.calls_gone(self.name, calls))
        world.do(world.server.run_down(world.groups.leave(self.association), world.now))

    def all(self, **more: Any) -> Iterator[int]:
        """Receive until there is nothing."""
        while isinstance(found := self.receive(**more), int) and not isinstance(found, Status):
            yield found


def lookup_id(sequence: int, priority: int = 3) -> int:
    assert sequence <= SEQUENCE_MAX
    return (7 - priority) << 56 | sequence
