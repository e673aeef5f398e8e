"""Judges one input of one parser by the limits of acceptance test T16.

The parser may only accept or refuse the input, within 50 ms of CPU time and eight times the memory
of the input.
"""

from __future__ import annotations

import gc
import sys
import time
import traceback
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

SECONDS_MAX = 0.05
"""Most CPU time for one input, in seconds. More is a finding of kind ``slow``."""
MEMORY_TIMES_MAX = 8
"""Most bytes at the peak for each byte of input, or :data:`MEMORY_FLOOR` if that is more."""
MEMORY_FLOOR = 1_048_576
"""Bytes at the peak that are always allowed.

For example, 2,000 elements (ELEMENTS_MAX) of four bytes each are small on the wire and large as
objects.
"""


class Outcome(NamedTuple):
    """The result of a parser for an input. Two runs are compared by their outcomes."""

    accepted: bool
    value: Any
    """The parsed value, or the refusal as (status, section)."""


class ViolationError(AssertionError):
    """Raised when a rule is broken: two readings differ, or a result is out of its limits."""


class HangError(BaseException):
    """Raised by the alarm of the long run. A parser must not catch it."""


@dataclass(frozen=True, slots=True)
class Target:
    """One parser, with its valid inputs and the rules for its results."""

    name: str
    seeds: Sequence[bytes]
    tokens: Sequence[bytes]
    parse: Callable[[bytes], Outcome]
    """Parses an input and returns its outcome. Its time is measured.

    The function catches only the errors that the parser may raise.
    """
    check: Callable[[bytes, Outcome, Random], None]
    """Raises :class:`ViolationError` if the outcome breaks a further rule.

    The arguments are the input, its outcome, and a random generator that follows from the input.
    """
    files: frozenset[str] = frozenset()
    """Files whose lines lead the long run to new inputs."""
    memory_times: int = MEMORY_TIMES_MAX
    is_slow: bool = False
    """Whether an input is a whole conversation.

    The tests then judge a tenth of the list, and ``make fuzz`` judges more.
    """


@dataclass(frozen=True, slots=True)
class Finding:
    """An input that broke a rule."""

    target: str
    kind: str
    """Kind of finding, or the name of an unexpected exception.

    The kinds are ``slow``, ``memory``, ``violation``, ``hang`` and ``died`` (the process ended).
    """
    data: bytes
    detail: str

    def __str__(self) -> str:
        return (
            f"{self.target}: {self.kind}: {self.detail}\n  input of {len(self.data)} "
            f"bytes: {self.data[:300]!r}"
        )


@dataclass(slots=True)
class Worst:
    """The most CPU seconds and memory (bytes) that any input took, for the log of a run.

    ``memory_times`` is the most bytes for each byte of input.
    """

    seconds: float = 0.0
    memory: int = 0
    memory_times: float = 0.0


Runner = Callable[[Callable[[], Outcome]], Outcome]


def judge(
    target: Target,
    data: bytes,
    *,
    memory: bool = False,
    worst: Worst | None = None,
    watched: Runner | None = None,
) -> tuple[Outcome | None, Finding | None]:
    """Run ``data`` through ``target`` and return the outcome and the finding.

    The finding is ``None`` if the input kept the rules. The outcome is ``None`` if the parser or
    its check raised. ``memory`` measures the peak in a second run. ``worst`` is updated.
    ``watched`` runs the parser under a tracer in the first run. An input that is too slow is
    measured up to twice again, without the tracer, and the shortest time counts. The ways to cut
    the input follow from ``data``.
    """
    worst = worst or Worst()
    try:
        outcome, seconds = _timed(target, data, watched)
        # A garbage collection of all the run's objects, or the tracer, may have taken the time.
        for _ in range(2):
            if seconds <= SECONDS_MAX:
                break
            outcome, again = _timed(target, data, None)
            seconds = min(seconds, again)
        worst.seconds = max(worst.seconds, seconds)
        if seconds > SECONDS_MAX:
            return outcome, Finding(
                target.name, "slow", data, f"{seconds * 1000:.0f} ms of CPU, three times"
            )
        target.check(data, outcome, Random(data))
        if memory:
            peak = _peak(target, data)
            worst.memory = max(worst.memory, peak)
            worst.memory_times = max(
                worst.memory_times, peak / max(len(data), MEMORY_FLOOR // MEMORY_TIMES_MAX)
            )
            if peak > max(target.memory_times * len(data), MEMORY_FLOOR):
                return outcome, Finding(target.name, "memory", data, f"{peak} bytes at the peak")
    except ViolationError as error:
        return None, Finding(target.name, "violation", data, str(error))
    except HangError:
        return None, Finding(target.name, "hang", data, "the alarm rang")
    # Every exception that a parser does not catch is a finding.
    except (Exception, RecursionError) as error:
        where = "".join(traceback.format_exception(error)[-4:])
        return None, Finding(target.name, type(error).__name__, data, where)
    return outcome, None


def _timed(target: Target, data: bytes, watched: Runner | None) -> tuple[Outcome, float]:
    begin = time.thread_time()
    outcome = target.parse(data) if watched is None else watched(lambda: target.parse(data))
    return outcome, time.thread_time() - begin


def _peak(target: Target, data: bytes) -> int:
    """Return the most bytes that ``parse`` holds at once, in addition to those before the call.

    Expat allocates its memory through Python here, so its memory is included.
    """
    begun = not tracemalloc.is_tracing()
    if begun:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        target.parse(data)
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        if begun:
            tracemalloc.stop()


def growth(target: Target, inputs: Sequence[bytes], rounds: int = 3) -> int:
    """Return the number of memory blocks that runs over ``inputs`` leave behind.

    ``rounds`` runs are made, and only the last one counts. Caches are already full then, so
    remaining growth is a leak.
    """
    before = 0
    for _ in range(rounds):
        gc.collect()
        before = sys.getallocatedblocks()
        for data in inputs:
            target.parse(data)
    gc.collect()
    return sys.getallocatedblocks() - before
