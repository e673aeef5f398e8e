"""What comes out of the server: values, never actions. The owner does them in this order."""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum, auto
from typing import NamedTuple, Protocol

from srmp_spark.mqrr.ndr.transfer_syntax import TransferSyntax
from srmp_spark.mqrr.packets.message_packet import EncodedPacket
from srmp_spark.mqrr.queue_format import QueueFormat


class QueueView(Protocol):
    """What its owner knows of a queue at any moment. Equal views are the same queue."""

    @property
    def name(self) -> str:
        """Canonical: ``private$/orders``, ``private$/orders;retry`` of a subqueue, ``private$/orders;journal``."""
        ...

    @property
    def transactional(self) -> bool:
        """Whether it takes transactional messages."""
        ...

    def floor(self) -> int:
        """Every message up to this sequence has left the queue."""
        ...

    def is_behind(self) -> bool:
        """Whether messages are in the queue that were not told yet. ``came`` follows, if only to say that it is so no more."""
        ...

    def has_left(self, sequence: int) -> bool:
        """Whether this one has, up to the floor or beyond it."""
        ...


class CallId(NamedTuple):
    """Which call is to be answered, and how."""

    connection: Hashable
    number: int
    syntax: TransferSyntax


class Reason(Enum):
    """Why a message leaves the queue ([MS-MQDMPR] 3.1.7.2.1)."""

    RECEIVED = auto()
    REJECTED = auto()
    """NackReceiveRejected: the application does not want it, and whoever asked is told."""
    PURGED = auto()
    MOVED = auto()
    """It is in another queue now: nothing is decided, and nobody is told."""


class Message(NamedTuple):
    """A message as its owner has read it."""

    packet: EncodedPacket
    srmp: bool
    """It came over HTTP: the other limit counts."""
    arrived_at: int
    """Seconds since 1970, UTC."""


class Answer(NamedTuple):
    """The answer of a call."""

    call: CallId
    stub: bytes


class Fault(NamedTuple):
    """The call failed in a way that only a fault can say."""

    call: CallId
    status: int


class Open(NamedTuple):
    """Find the queue, hold it against other receivers if ``receive``, and say ``opened`` or ``not_opened`` with ``opening``.

    Each that was opened is closed once."""

    opening: int
    queue: QueueFormat
    receive: bool
    move: bool = False
    """Messages are to be moved there: a queue that takes none is refused."""
    caller: str | None = None
    """Who asks; ``None`` without sign-in."""


class Read(NamedTuple):
    """Say ``read``, ``not_read`` or ``vanished`` with ``reading``."""

    reading: int
    queue: QueueView
    sequence: int
    connection: Hashable
    """Whose answer the message becomes: the owner may wait until that reader has taken what it was answered before."""


class Taken(NamedTuple):
    """One message that leaves its queue."""

    queue: QueueView
    sequence: int
    reason: Reason
    to: QueueView | None = None
    """``MOVED``: where it is from then on."""


class Take(NamedTuple):
    """Store in one transaction that these have left their queues, and that those that were moved are where they were moved to;
    then say ``stored`` or ``not_stored`` with ``storing``."""

    storing: int
    messages: tuple[Taken, ...]


class Purge(NamedTuple):
    """Take all that is there but ``spared``, which are locked; then say ``purged`` or ``not_purged`` with ``purging``."""

    purging: int
    queue: QueueView
    spared: tuple[int, ...]
    """In the order in which they were locked."""


class LookOn(NamedTuple):
    """Say ``look_on`` with ``purging`` in another turn: there are more locked messages to spare than one turn looks at."""

    purging: int


class Close(NamedTuple):
    """What was ``opened`` once is done with, and so is everything that was received through it."""

    queue: QueueView
    receive: bool


class OutcomeStored(NamedTuple):
    """The outcome of a transaction is stored."""

    transaction: bytes


class OutcomeNotStored(NamedTuple):
    """It could not be stored, or came too late: everything is as it was before the transaction."""

    transaction: bytes


Effect = (
    Answer | Fault | Open | Read | Take | Purge | LookOn | Close | OutcomeStored | OutcomeNotStored
)
