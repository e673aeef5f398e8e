"""A simulated network that loses, doubles, delays and reorders requests.

The network also clogs, and it delivers copies of requests after weeks. The unit is one HTTP
exchange: a request that arrives or not, and an answer that arrives or not. The sender of a request
learns one of three results: the answer, a broken connection, or (after the time-out) nothing. A
copy of a request is a request whose answer no client reads. Examples are a proxy that repeats a
POST, and a sender that was restored from a backup.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from tests.kit.sim_clock import SimClock

Request = TypeVar("Request")
Answer = Callable[[int | None], None]
"""Called with the HTTP status of the answer.

The argument is ``None`` for a broken or silent connection, and -1 if no connection was made.
"""

HTTP_TIMEOUT_S = 10.0
LATE_COPY_S_MIN = 6 * 3600.0
LATE_COPY_S_MAX = 27 * 86400.0
"""Longest delay of a late copy, in seconds.

Identifiers are remembered for 30 days (MESSAGE_ID_HISTORY_DAYS), and for at least 27 days under a
wall clock that jumps.
"""
HEALTHY_DELAY_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class NetFaults:
    """The faults of one network. Probabilities, from 0 to 1, are per message and direction.

    ``loss``: a request or answer is lost. ``duplicate``: a copy arrives soon. ``late_copy``: a copy
    arrives hours or weeks later.
    """

    loss: float = 0.0
    duplicate: float = 0.0
    delay: float = 0.05
    """Mean of the exponentially distributed delay, in seconds.

    The delay is long enough that requests overtake one another.
    """
    clog: float = 0.0
    """Probability that a message blocks its link for itself and for all later messages.

    The link is blocked for up to ``clog_seconds``.
    """
    clog_seconds: float = 5.0
    late_copy: float = 0.0

    @classmethod
    def drawn(cls, random: Random) -> NetFaults:
        """Return random faults, drawn from the generator of a seed."""
        return cls(
            loss=random.choice((0.0, random.uniform(0.0, 0.3))),
            duplicate=random.choice((0.0, random.uniform(0.0, 0.5))),
            delay=random.uniform(0.03, 0.1),
            clog=random.choice((0.0, random.uniform(0.0, 0.02))),
            late_copy=random.choice((0.0, random.uniform(0.0, 0.1))),
        )


class SimNet:
    """Carries requests and answers. Set :attr:`faults` to ``None`` to end all faults."""

    def __init__(self, clock: SimClock, random: Random, faults: NetFaults | None) -> None:
        self._clock = clock
        self._random = random
        self.faults = faults
        self._clogged_until: dict[str, float] = {}

    def post(
        self,
        link: str,
        deliver: Callable[[Request, Answer], None],
        request: Request,
        answered: Answer,
    ) -> None:
        """Send ``request`` over ``link``, which is a name for one direction between two hosts.

        The far end is called as ``deliver(request, answer)`` for each copy that arrives. The sender
        is called once as ``answered(status)``, with ``None`` after a time-out if request or answer
        is lost.
        """
        faults = self.faults
        if faults is None:
            self._clock.after(HEALTHY_DELAY_S, deliver, request, _Way(self, answered))
            return
        random = self._random
        if random.random() < faults.duplicate:
            self._clock.after(self._delay(link, faults), deliver, request, _nobody)
        if faults.late_copy and random.random() < faults.late_copy:
            self._clock.after(
                random.uniform(LATE_COPY_S_MIN, LATE_COPY_S_MAX), deliver, request, _nobody
            )
        if random.random() < faults.loss:
            self._clock.after(HTTP_TIMEOUT_S, answered, None)
        else:
            self._clock.after(self._delay(link, faults), deliver, request, _Way(self, answered))

    def clog(self, link: str, seconds: float) -> None:
        """Block ``link`` for ``seconds``; requests that are sent meanwhile arrive afterwards."""
        self._clogged_until[link] = max(
            self._clogged_until.get(link, 0.0), self._clock.now + seconds
        )

    def _delay(self, link: str, faults: NetFaults) -> float:
        delay = self._random.expovariate(1.0 / faults.delay)
        if faults.clog and self._random.random() < faults.clog:
            self.clog(link, self._random.uniform(0, faults.clog_seconds))
        clogged_until = self._clogged_until.get(link)
        if clogged_until is not None:
            delay += max(0.0, clogged_until - self._clock.now)
        return delay

    def carry_answer(self, status: int | None, answered: Answer) -> None:
        """Send the answer back to the sender, with the faults of the network.

        ``answered`` is called with ``status`` after a delay, or with ``None`` after the time-out.
        """
        faults = self.faults
        if faults is None:
            self._clock.after(HEALTHY_DELAY_S, answered, status)
        elif self._random.random() < faults.loss:
            self._clock.after(HTTP_TIMEOUT_S, answered, None)
        else:
            self._clock.after(self._random.expovariate(1.0 / faults.delay), answered, status)


class _Way:
    """The answer path of one exchange; only the first of several answers is sent."""

    __slots__ = ("_answered", "_net")

    def __init__(self, net: SimNet, answered: Answer) -> None:
        self._net = net
        self._answered: Answer | None = answered

    def __call__(self, status: int | None) -> None:
        if self._answered is not None:
            answered, self._answered = self._answered, None
            self._net.carry_answer(status, answered)


def _nobody(status: int | None) -> None:
    """Ignore the answer to a copy."""
