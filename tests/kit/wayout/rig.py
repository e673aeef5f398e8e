"""Runs the dispatcher of the sender process between a simulated outbox and simulated peers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar, cast
from unittest import mock

from srmp_spark.errors import SrmpSparkError
from srmp_spark.message import CLASS_ORDER_ACK, Message, Receipt
from srmp_spark.queue_manager.posting.http_exchange import Exchange
from srmp_spark.queue_manager.sender.dispatcher import CommittedBatch, Dispatcher
from srmp_spark.queue_manager.sender.http.addresses import HostAddresses, Resolve
from srmp_spark.queue_manager.sender.http.connections import Wire
from srmp_spark.queue_manager.sender.receipts import FoundReceipts
from srmp_spark.srmp.codec.message_types import ORDERING_ACK_ACTION
from srmp_spark.srmp.receiving.effects import Committed
from srmp_spark.srmp.sending.outgoing_effects import (
    DeadLetter,
    Enqueued,
    Load,
    OutgoingChanges,
    QueueKey,
    SerialRun,
    StoredMessage,
)
from srmp_spark.srmp.sending.outgoing_states import SenderSettings
from srmp_spark.srmp.sending.sender import Sender
from srmp_spark.store.outbox.messages.packed_group import BatchPart
from srmp_spark.store.outbox.preparing.prepared import CommitResult, Numbered
from tests.kit.sim_disk import Synced
from tests.kit.wayout.peers import Net, Peer
from tests.kit.wayout.virtual_loop import VirtualLoop

IDENTITY = "aaaaaaaa-0000-4000-8000-000000000009"
RECEIPTS_URL = "http://here.example/msmq/private$/order_queue$"
WRITE_S, READ_S = 0.005, 0.001
"""Virtual seconds that an outbox job takes: with a sync, and without one."""

_T = TypeVar("_T")


@dataclass(slots=True)
class Batch:
    """A batch to be committed, with rows for queues: queue → names of its rows.

    It stands in for :class:`~srmp_spark.store.outbox.preparing.prepared.Prepared`.
    """

    rows: Mapping[QueueKey, Sequence[str]]
    result: CommitResult | None = None
    stages: Sequence[Any] = ()
    lost: Sequence[Any] = ()
    letters: int = 0
    unwritten_bytes: int = 0

    @property
    def parts(self) -> list[BatchPart]:
        """Return the groups of messages of the batch, one for each queue."""
        return [
            BatchPart(number, key, len(rows), False)
            for number, (key, rows) in enumerate(self.rows.items())
        ]

    @property
    def identifiers(self) -> int:
        """Return the number of messages in the batch."""
        return sum(map(len, self.rows.values()))

    def step(self) -> bool:
        """Prepare the whole batch in one step, and return ``True`` because it is complete."""
        self.result = CommitResult(self.identifiers, 0)
        return True

    def abort_step(self) -> bool:
        """Return ``True``, because nothing was written that must be removed."""
        return True

    def numbered(
        self, ids_first: int, enqueued: Iterable[Enqueued], unsent: AbstractSet[int] = frozenset()
    ) -> Numbered:
        """Return the batch with its first identifier and its serials.

        ``unsent`` has the numbers of the parts for which there is no room.
        """
        return Numbered(cast("Any", self), ids_first, tuple(enqueued), unsent)


class SimOutboxTables(Synced[tuple[OutgoingChanges, Sequence[Numbered]]]):
    """The part of the outbox that the dispatcher uses, in memory.

    ``dead`` has the dead letter of each row that was given up, by the row's name.
    """

    def __init__(self) -> None:
        super().__init__()
        self.messages: dict[QueueKey, dict[int, StoredMessage]] = {}
        """Queue → its unfinished messages by ascending serial."""
        self.dead: dict[str, DeadLetter] = {}
        self.database = self
        self.damage = self
        self._identifiers = 0

    def text(self, _key: QueueKey) -> None:
        """Return ``None``, because no destination has damaged messages."""

    @contextmanager
    def transaction(self) -> Iterator[mock.Mock]:
        """Yield a mock connection, to which the dispatcher writes how far receipts were read.

        The position is not needed, because the simulated dispatcher never restarts.
        """
        yield mock.Mock()

    def load(self, load: Load) -> list[StoredMessage]:
        """Return the stored messages that ``load`` requests: its queue, serials and most rows."""
        found: list[StoredMessage] = []
        for serial, stored in self.messages.get(load.key, {}).items():
            if serial > load.last or len(found) >= load.rows_max:
                break
            if serial > load.after:
                found.append(stored)
        return found

    def write(
        self,
        changes: OutgoingChanges,
        at: int,
        *,
        batches: Sequence[Numbered],
        sent: object,
        sessions: object,
    ) -> Committed:
        """Store new messages and changes of older ones in one transaction; return its proof."""
        self.begin((changes, batches))
        return self.finish()

    def apply(self, transaction: tuple[OutgoingChanges, Sequence[Numbered]]) -> None:
        """Apply a transaction in the same order as the real outbox writes.

        See :meth:`srmp_spark.store.outbox.outbox.Outbox.write`.
        """
        changes, batches = transaction
        anew = {QueueKey(row.destination, row.kind) for row in changes.queues}
        self._forget(key for key in changes.forgotten if key in anew)
        for batch in batches:
            for part, enqueued, rows in zip(
                batch.preparation.parts,
                batch.enqueued,
                cast("Batch", batch.preparation).rows.values(),
                strict=True,
            ):
                if part.number in batch.unsent:
                    run = SerialRun(enqueued.key, enqueued.first, enqueued.last)
                    self.dead |= dict.fromkeys(rows, DeadLetter(run, "no-room", None, False))
                    continue
                queue = self.messages.setdefault(enqueued.key, {})
                for serial, row in enumerate(rows, enqueued.first):
                    self._identifiers += 1
                    queue[serial] = StoredMessage(serial, self._message(enqueued.key, row))
        for key, first, last in changes.finished:
            self._take(key, first, last)
        for letter in changes.dead_letters:
            for stored in self._take(*letter.run):
                self.dead[stored.message.body.decode()] = letter
        self._forget(key for key in changes.forgotten if key not in anew)

    def _forget(self, keys: Iterable[QueueKey]) -> None:
        for key in keys:
            assert not self.messages.get(key), f"{key} was to be forgotten and has messages"

    def _message(self, key: QueueKey, row: str) -> Message:
        return Message(
            destination=key.destination,
            action="MSMQ:",
            lineage=IDENTITY,
            uniquifier=self._identifiers,
            has_msmq=True,
            durable=True,
            body=row.encode(),
            source_qm=IDENTITY,
        )

    def _take(self, key: QueueKey, first: int, last: int) -> list[StoredMessage]:
        queue = self.messages.get(key, {})
        taken = []
        for serial in list(queue):
            if serial > last:
                break
            if serial >= first:
                taken.append(queue.pop(serial))
        if not queue:
            self.messages.pop(key, None)
        return taken


class SimStoreThread:
    """Runs the jobs of the outbox one after another, in virtual time.

    The loop's own thread runs them.
    """

    def __init__(self, loop: VirtualLoop, write: Callable[..., Committed]) -> None:
        """Create a thread without jobs. ``write`` is the only job with a sync."""
        self._loop = loop
        self._write = write
        self._free_at = 0.0

    def run(self, job: Callable[[], _T], *, later: bool = False) -> Any:  # noqa: ANN401  # a future
        """Run ``job`` when all earlier jobs are done, and return a future of its result.

        An error of the job becomes that of the future. ``later`` is ignored.
        """
        future = self._loop.create_future()
        is_write = getattr(job, "func", None) == self._write
        self._free_at = max(self._free_at, self._loop.time()) + (WRITE_S if is_write else READ_S)
        self._loop.call_at(self._free_at, self._do, job, future)
        return future

    @staticmethod
    def _do(job: Callable[[], _T], future: Any) -> None:  # noqa: ANN401  # a future
        if not future.cancelled():
            try:
                future.set_result(job())
            # The real thread passes every exception to the future, too.
            except Exception as error:
                future.set_exception(error)

    def die(self, doing: str, error: BaseException) -> NoReturn:
        """Raise :class:`AssertionError`, because a job that fails is a bug.

        ``doing`` says what failed.
        """
        raise AssertionError(f"{doing}: {error!r}") from error


@dataclass(slots=True)
class Limits:
    """Limits that a run changes.

    ``connections`` is the most connections of the sender process. ``names`` maps dotted names below
    ``srmp_spark`` to their values in the run.
    """

    connections: int = 1_000
    names: Mapping[str, int] = field(default_factory=dict)

    @contextmanager
    def set(self) -> Iterator[None]:
        """Apply the limits while the context is active."""
        with ExitStack() as stack:
            place = "srmp_spark.queue_manager.sender.http.connections"
            stack.enter_context(
                mock.patch(f"{place}.connections_allowed", return_value=self.connections)
            )
            for name, value in self.names.items():
                stack.enter_context(mock.patch(f"srmp_spark.{name}", value))
            yield


class Rig:
    """Connects dispatcher, outbox and network in one loop. Create this object inside the loop."""

    def __init__(self, loop: VirtualLoop, net: Net, *, settings: SenderSettings) -> None:
        self.loop = loop
        self.net = net
        self.outbox = SimOutboxTables()
        self.sender = Sender(IDENTITY, settings)
        self._receipts: list[Message] = []
        self._identifiers = 0
        store = SimStoreThread(loop, self.outbox.write)
        self.dispatcher = Dispatcher(
            cast("Any", self.outbox),
            self.sender,
            cast("Any", store),
            cast("Any", self),
            loop,
            receipts_url=RECEIPTS_URL,
            receipts_read_to=0,
            reserve=self._reserve,
        )
        self.dispatcher.receipts_came()

    async def _reserve(self, count: int) -> int:
        first, self._identifiers = self._identifiers + 1, self._identifiers + count
        return first

    def read(self, after: int) -> FoundReceipts:
        """Return the receipts after position ``after``, as the dispatcher reads the order queue."""
        found = self._receipts[after:]
        return FoundReceipts(after + len(found), found, more=False)

    def receipt(self, peer: Peer, message: Message) -> None:
        """Store a stream receipt for the stream of ``message``, as if ``peer`` had sent it.

        The dispatcher is notified.
        """
        assert message.stream is not None
        receipt = Receipt("stream", stream_id=message.stream.id, last_ordinal=peer.number)
        found = Message(
            RECEIPTS_URL,
            ORDERING_ACK_ACTION,
            has_msmq=True,
            message_class=CLASS_ORDER_ACK,
            receipt=receipt,
        )
        self._receipts.append(found)
        self.dispatcher.receipts_came()

    async def commit(
        self, rows: Mapping[QueueKey, Sequence[str]]
    ) -> CommittedBatch | SrmpSparkError:
        """Commit a batch of rows by queue, and wait for the result.

        Return the result, or the error that the caller of the dispatcher would get.
        """
        try:
            return await self.dispatcher.commit(lambda _at: cast("Any", Batch(rows)))
        except SrmpSparkError as error:
            return error

    @property
    def is_idle(self) -> bool:
        """Return whether no message and no change of one waits in the outbox or the engine."""
        return not self.outbox.messages and not self.sender.has_changes


@contextmanager
def simulated(net: Net, limits: Limits, resolve: Resolve | None = None) -> Iterator[None]:
    """Replace the sender process's connections by simulated ones of ``net`` in this context.

    The limits apply, and the log is turned off. ``resolve`` returns the addresses of host names.
    """
    log = logging.getLogger("srmp_spark")
    level = log.level
    with ExitStack() as stack:
        stack.enter_context(limits.set())
        stack.enter_context(
            mock.patch.object(Wire, "request", lambda _wire, send: net.request(send))
        )
        unsent = property(
            # The transport is a :class:`~tests.kit.wayout.peers.SimTransport`.
            lambda exchange: exchange._transport.unsent_bytes if exchange.usable else 0  # noqa: SLF001
        )
        stack.enter_context(mock.patch.object(Exchange, "unsent_bytes", unsent))
        if resolve is not None:
            stack.enter_context(
                mock.patch.object(HostAddresses.__init__, "__defaults__", (resolve,))
            )
        log.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            log.setLevel(level)
