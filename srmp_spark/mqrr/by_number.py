"""A walk through a remote queue that goes on over the next connection, behind what it has: by lookup identifiers.

Theory of operation. A cursor belongs to its connection, so a walk by cursor begins at the head again after each break, and over
a line that breaks often it never ends. ``MQ_LOOKUP_PEEK_NEXT`` names the message behind which to look ([MS-MQRR] 3.1.4.7), on
whatever connection: one call that comes through is one message more. This is the order of the calls and what their answers
mean, without I/O; whoever makes them reports each answer.

Three things are in the way. A message that was received meanwhile has no place any more ([MS-MQDMPR] 3.1.7.3.3), and the end of
the queue has the same answer: so the answer "nothing" is followed by the question whether that message is still there, and if
it is not, the walk steps back to the one before it. Two readings of the document number messages differently
(:mod:`.lookup_identifier`): a number counts as understood when the other queue manager has answered to one whose high byte
says its priority; messages of priority 7 have the same number in both, and among them nothing can be passed over. And one
that cannot be read tells no number. Where numbers do not say where to go on the walk is :attr:`Tells.NOWHERE`, and begins
at the head by a cursor.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import NamedTuple

from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.lookup_identifier import SEQUENCE_BITS, not_ascending

RECENT_MAX = 16
"""Messages that are remembered to step back to, and steps back over one connection: as many as other readers may receive at the
place where the line broke. Beyond, the walk begins at the head."""


class Place(NamedTuple):
    """Says where a message stands, and which one it is."""

    lookup_id: int
    message_id: str

    @property
    def is_plain(self) -> bool:
        """Whether both readings of the document give it this number."""
        return not self.lookup_id >> SEQUENCE_BITS


class Asks(Enum):
    """What the next call asks."""

    HEAD = auto()
    """For the first message of the queue."""
    NEXT = auto()
    """For the one behind the last one that the walk has."""
    PROOF = auto()
    """For a message by the number that its priority gives it."""
    END = auto()
    """Whether the last one that the walk has is still there."""


class Tells(Enum):
    """What an answer means for the walk."""

    MESSAGE = auto()
    """It is the next one."""
    AGAIN = auto()
    """Another call is needed."""
    OVER = auto()
    """The end of the queue."""
    NOWHERE = auto()
    """Numbers do not tell where to go on: begin at the head, by a cursor."""


class ByNumber:
    """Says what one walk asks next, and what each answer means for it."""

    def __init__(self) -> None:
        self._recent: deque[Place] = deque(maxlen=RECENT_MAX)
        self._to_prove: Place | None = None
        self._is_proven = False
        self._asks = Asks.HEAD
        self._steps_back = 0

    @property
    def last(self) -> Place | None:
        """The last message that the walk has; ``None``: none yet."""
        return self._recent[-1] if self._recent else None

    def has(self, place: Place) -> None:
        """Note a message that the walk has come to, by number or by cursor. Raises :class:`RemoteProtocolError` for one that is
        not behind the last one."""
        if self.last is not None and place.lookup_id <= self.last.lookup_id:
            raise not_ascending(f"{place.lookup_id:#x}", f"{self.last.lookup_id:#x}")
        self._recent.append(place)

    def begin_at_head(self) -> None:
        """Forget the places: a cursor shows them anew."""
        self._recent.clear()
        self._to_prove = None

    def connected(self) -> None:
        """Begin over a new connection."""
        self._steps_back = 0
        self._asks = (
            Asks.HEAD if self.last is None else Asks.NEXT if self._to_prove is None else Asks.PROOF
        )

    def call(self) -> tuple[Action, int]:
        """Return the next call: its action and lookup identifier."""
        if self._asks is Asks.HEAD:
            return Action.PEEK_CURRENT, 0
        if self._asks is Asks.PROOF:
            assert self._to_prove is not None, "it is what is asked about"
            return Action.LOOKUP_PEEK_CURRENT, self._to_prove.lookup_id
        assert self.last is not None, "else the head is asked for"
        return (
            Action.LOOKUP_PEEK_NEXT if self._asks is Asks.NEXT else Action.LOOKUP_PEEK_CURRENT
        ), self.last.lookup_id

    def found(self, place: Place) -> Tells:
        """Take the answer that has a message. Raises as :meth:`has` for a next one that is not behind the last one."""
        if self._asks is Asks.PROOF:
            self._is_proven, self._to_prove = place == self._to_prove, None
            return self._go_on() if self._is_proven else Tells.NOWHERE
        if self._asks is Asks.END:
            return Tells.OVER if place == self.last else Tells.NOWHERE
        if self._asks is Asks.NEXT and not self._last_is_understood():
            if not place.is_plain:
                self._to_prove, self._asks = place, Asks.PROOF
                return Tells.AGAIN
        elif self._asks is Asks.NEXT:
            self._is_proven = True
        self.has(place)
        self._asks = Asks.NEXT
        return Tells.MESSAGE

    def nothing(self, *, held: bool = False) -> Tells:
        """Take the answer that has none. ``held``: the message is there, and somebody has locked it."""
        if self._asks is Asks.HEAD:
            return Tells.OVER
        if self._asks is Asks.PROOF:
            self._to_prove = None
            return Tells.NOWHERE
        if self._asks is Asks.NEXT:
            if not self._last_is_understood():
                return Tells.NOWHERE
            self._asks = Asks.END
            return Tells.AGAIN
        if held:
            return Tells.OVER
        self._recent.pop()
        self._steps_back += 1
        return self._go_on() if self._recent and self._steps_back < RECENT_MAX else Tells.NOWHERE

    def _last_is_understood(self) -> bool:
        return self._is_proven or (self.last is not None and not self.last.is_plain)

    def _go_on(self) -> Tells:
        self._asks = Asks.NEXT
        return Tells.AGAIN

    def __repr__(self) -> str:
        return f"<ByNumber asks={self._asks.name} last={self.last}>"
