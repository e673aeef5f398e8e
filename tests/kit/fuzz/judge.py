"""One input for one parser, judged by the pass figures of T16: only refusal or acceptance, 50 ms, eight times its memory."""

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
"""CPU time for one input."""
MEMORY_TIMES_MAX = 8
"""Bytes at the peak for each byte of input …"""
MEMORY_FLOOR = 1_048_576
"""… or this, whichever is more: 2,000 elements (ELEMENTS_MAX) of four bytes each are small on the wire and large as objects."""


class Outcome(NamedTuple):
    """What a parser made of an input; two runs are compared by it."""

    accepted: bool
    value: Any
    """A result, or the refusal as (status, section)."""


class ViolationError(AssertionError):
    """Something that must hold did not: two ways of reading that differ, a result out of its limits."""


class HangError(BaseException):
    """The alarm of the long run rang; no parser may catch it."""


@dataclass(frozen=True, slots=True)
class Target:
    """A parser under attack."""

    name: str
    seeds: Sequence[bytes]
    tokens: Sequence[bytes]
    parse: Callable[[bytes], Outcome]
    """Reads an input, catches what the parser may raise and nothing else; this is timed."""
    check: Callable[[bytes, Outcome, Random], None]
    """What else must hold of it. Raises :class:`ViolationError`."""
    files: frozenset[str] = frozenset()
    """Whose lines lead the long run to new inputs."""
    memory_times: int = MEMORY_TIMES_MAX
    is_slow: bool = False
    """An input is a whole conversation: the tests judge a tenth of the list, ``make fuzz`` goes on."""


@dataclass(frozen=True, slots=True)
class Finding:
    """An input that broke a rule."""

    target: str
    kind: str
    """``slow``, ``memory``, ``violation``, ``hang``, ``died``, or the name of an exception."""
    data: bytes
    detail: str

    def __str__(self) -> str:
        return (
            f"{self.target}: {self.kind}: {self.detail}\n  input of {len(self.data)} "
            f"bytes: {self.data[:300]!r}"
        )


@dataclass(slots=True)
class Worst:
    """The most that any input took, for the log of a run."""

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
    """Run ``data`` through ``target``; the finding, if there is one. The same each time: how it is cut comes from ``data``.

    ``memory`` measures the peak in a second run. ``watched`` runs the first one, under a tracer: its time is only a reason to
    look again.
    """
    worst = worst or Worst()
    try:
        outcome, seconds = _timed(target, data, watched)
        for _ in range(
            2
        ):  # a garbage collection of all the run's objects, or the tracer, may have fallen into it
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
    except (Exception, RecursionError) as error:  # whatever a parser lets out is the finding
        where = "".join(traceback.format_exception(error)[-4:])
        return None, Finding(target.name, type(error).__name__, data, where)
    return outcome, None


def _timed(target: Target, data: bytes, watched: Runner | None) -> tuple[Outcome, float]:
    begin = time.thread_time()
    outcome = target.parse(data) if watched is None else watched(lambda: target.parse(data))
    return outcome, time.thread_time() - begin


def _peak(target: Target, data: bytes) -> int:
    """Bytes that ``parse`` holds at once at most. Expat allocates through Python here, so its memory is in it."""
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
    """Blocks of memory that the last of ``rounds`` over the same inputs left behind: what is cached has been cached by then."""
    before = 0
    for _ in range(rounds):
        gc.collect()
        before = sys.getallocatedblocks()
        for data in inputs:
            target.parse(data)
    gc.collect()
    return sys.getallocatedblocks() - before
