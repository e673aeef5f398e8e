"""Continues a walk through a remote queue on a new connection, by lookup identifiers.

Theory of operation. A cursor belongs to its connection. A walk by cursor therefore begins at the
head again after each break, and never ends over a line that breaks often. ``MQ_LOOKUP_PEEK_NEXT``
names the message after which to look ([MS-MQRR] 3.1.4.7), and works on any connection. Each call
that succeeds brings one more message. This module decides which call comes next and interprets each
answer, without I/O. Its caller makes the calls and reports the answers.

The walk must handle three problems. First, a message that another reader has received has no place
in the queue any longer ([MS-MQDMPR] 3.1.7.3.3), and a lookup after it gets the same answer as at
the end of the queue. After the answer "nothing" the walk therefore asks whether the last message is
still there. If that message is gone, the walk steps back to the message before it.

Second, the specification can be read in two ways, and the readings number messages differently
(:mod:`.lookup_identifier`). A *number* is the lookup identifier of a message. A number counts as
understood when the other queue manager has answered to a number whose high byte holds the priority.
Messages of priority 7 have the same number in both readings, and no message among them can be
skipped.

Third, a message that cannot be read has no known number. Where the numbers do not show where to
continue, the answer is :attr:`Tells.NOWHERE`, and the walk begins at the head (the first message of
the queue) with a cursor.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import NamedTuple

from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.lookup_identifier import SEQUENCE_BITS, not_ascending

RECENT_MAX = 16
"""Number of messages that are remembered to step back to, and of steps back on one connection.

Other readers may receive this many messages at the place where the line broke. If they receive
more, the walk begins at the head.
"""


class LookupPlace(NamedTuple):
    """The lookup identifier of one message, which gives its position in its queue."""

    lookup_id: int
    message_id: str

    @property
    def is_plain(self) -> bool:
        """Return whether both readings of the specification give the message this number.

        :mod:`.lookup_identifier` describes the two readings.
        """
        return not self.lookup_id >> SEQUENCE_BITS


class Asks(Enum):
    """The question that the next call of a walk asks."""

    HEAD = auto()
    """The call asks for the first message of the queue."""
    NEXT = auto()
    """The call asks for the message after the last message of the walk."""
    PROOF = auto()
    """The call asks for a message by the number that follows from its priority."""
    END = auto()
    """The call asks whether the last message of the walk is still in the queue."""


class Tells(Enum):
    """The meaning that the answer to a call has for a walk."""

    MESSAGE = auto()
    """The answer holds the next message."""
    AGAIN = auto()
    """The walk needs another call."""
    OVER = auto()
    """The walk has reached the end of the queue."""
    NOWHERE = auto()
    """The numbers do not show where to continue: begin at the head, with a cursor."""


class ByNumber:
    """Decides which call one walk makes next, and what each answer means for the walk.

    Call :meth:`connected` for each new connection. Then repeat :meth:`call`, make the call, and
    report its answer with :meth:`found` or :meth:`nothing`.
    """

    def __init__(self) -> None:
        self._recent: deque[LookupPlace] = deque(maxlen=RECENT_MAX)
        self._to_prove: LookupPlace | None = None
        self._is_proven = False
        self._asks = Asks.HEAD
        self._steps_back = 0

    @property
    def last(self) -> LookupPlace | None:
        """Return the last message of the walk, or ``None`` if the walk has none yet."""
        return self._recent[-1] if self._recent else None

    def has(self, place: LookupPlace) -> None:
        """Record ``place`` as the last message of the walk, reached by number or by cursor.

        Raises :class:`RemoteProtocolError` if the message is not after the last message of the
        walk.
        """
        if self.last is not None and place.lookup_id <= self.last.lookup_id:
            raise not_ascending(f"{place.lookup_id:#x}", f"{self.last.lookup_id:#x}")
        self._recent.append(place)

    def begin_at_head(self) -> None:
        """Forget the recorded messages, because a cursor will show them again."""
        self._recent.clear()
        self._to_prove = None

    def connected(self) -> None:
        """Begin on a new connection.

        The walk chooses the question of its next :meth:`call`, and resets the number of steps back.
        """
        self._steps_back = 0
        self._asks = (
            Asks.HEAD if self.last is None else Asks.NEXT if self._to_prove is None else Asks.PROOF
        )

    def call(self) -> tuple[Action, int]:
        """Return the action and the lookup identifier of the next call; change nothing."""
        if self._asks is Asks.HEAD:
            return Action.PEEK_CURRENT, 0
        if self._asks is Asks.PROOF:
            assert self._to_prove is not None, "it is what is asked about"
            return Action.LOOKUP_PEEK_CURRENT, self._to_prove.lookup_id
        assert self.last is not None, "else the head is asked for"
        return (
            Action.LOOKUP_PEEK_NEXT if self._asks is Asks.NEXT else Action.LOOKUP_PEEK_CURRENT
        ), self.last.lookup_id

    def found(self, place: LookupPlace) -> Tells:
        """Process the answer to the last :meth:`call`; return its meaning for the walk.

        ``place`` is the message of the answer. If the result is ``Tells.MESSAGE``, it is the next
        message and is recorded as :attr:`last`. Any other result records nothing. Raises
        :class:`RemoteProtocolError` if the next message is not after :attr:`last`.
        """
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
        """Process an answer without a message; return its meaning for the walk.

        ``held`` means that the message is in the queue but another reader has locked it.
        """
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
