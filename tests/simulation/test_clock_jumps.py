"""T15 of the reliability report: somebody sets the clock, in ways that are drawn for each seed.

A run and the same run with another wall clock must be one and the same: whatever happens, happens at the same moment of the
monotonic clock. So no resend, no receipt and no duplicate memory asks the wall clock, which is stronger than a tolerance of one
tick. Expiry alone may ask it: ``engine/test_expiry_clock.py``. Live: ``queue_manager/test_clock_jumps_live.py``. The long
version is ``make clocks SEEDS=100000``.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable
from itertools import zip_longest
from random import Random
from typing import Any

import pytest

from tests.kit import simulation
from tests.kit.sending_simulation import SendingSimulation
from tests.kit.sim_clock import START_MONOTONIC_S, START_UTC_US, SimClock
from tests.kit.sim_outbox import SimSender
from tests.kit.sim_queue_manager import SimQueueManager
from tests.kit.simulation import Simulation

SEEDS = int(os.environ.get("SRMP_SPARK_CLOCK_SEEDS", "80"))
PLANTED_SEEDS = 2
SECOND, HOUR, YEAR = 1_000_000, 3_600_000_000, 365 * 86_400_000_000
JUMPS_US: dict[str, Callable[[Random], int]] = {
    "a second": lambda dice: dice.choice((-SECOND, SECOND)),
    "a leap second": lambda dice: -SECOND,
    "daylight saving": lambda dice: dice.choice((-HOUR, HOUR)),
    "minutes": lambda dice: dice.randint(-HOUR, HOUR),
    "years": lambda dice: dice.randint(-10 * YEAR, 10 * YEAR),
    "2038": lambda dice: (2**31 - 2) * SECOND - START_UTC_US,
}
"""By how much, at a moment that is drawn too."""
FROZEN = "frozen"
"""The wall clock stands still for a while."""
SPAN_S = 400.0
STAMPED = re.compile(r"ordinal=\d{10,}")
"""The identifier of a stream begins with the time: that it grows whatever the clock does is tested elsewhere (T1, T2)."""


class SetClock:
    """A simulated clock as somebody sees it whose wall clock is set again and again."""

    def __init__(self, true: SimClock, dice: Random, marks: Counter[str]) -> None:
        self._true = true
        self._jumps: list[tuple[float, int]] = []
        self._frozen: list[tuple[float, float]] = []
        for _ in range(dice.randint(1, 6)):
            kind = dice.choice((*JUMPS_US, FROZEN))
            marks[kind] += 1
            when = true.now + dice.uniform(0.0, SPAN_S)
            if kind == FROZEN:
                self._frozen.append((when, when + dice.uniform(1.0, SPAN_S)))
            else:
                self._jumps.append((when, JUMPS_US[kind](dice)))
        self.at, self.after = true.at, true.after

    @property
    def now(self) -> float:
        return self._true.now

    def utc(self) -> int:
        now = self._true.now
        stood = sum(min(now, end) - begin for begin, end in self._frozen if begin < now)
        return (
            self._true.utc()
            + sum(by for when, by in self._jumps if when <= now)
            - int(stood * 1_000_000)
        )


class ByWallClock(SetClock):
    """The planted bug: timers that run on the wall clock."""

    @property
    def now(self) -> float:
        return (self.utc() - START_UTC_US) / 1_000_000 + START_MONOTONIC_S


@pytest.fixture(autouse=True)
def nothing_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    """Expiry may ask the wall clock."""
    monkeypatch.setattr(simulation, "REFUSES_EXPIRED_SHARE", 0.0)


def with_clock(
    base: type[Any], clock: type[SetClock] | None, seed: int, marks: Counter[str]
) -> type[Any]:
    """``base`` with a clock of its own, which draws nothing from the dice of the run; and without what asks the wall clock."""

    class With(base):  # type: ignore[misc]
        def __init__(self, true: SimClock, *args: Any, **keywords: Any) -> None:
            super().__init__(
                true if clock is None else clock(true, Random(f"clock {seed}"), marks),
                *args,
                **keywords,
            )

        def submit(
            self,
            destination: str,
            kind: Any,
            batch: str,
            rows: list[str],
            until: float | None,
            *more: Any,
        ) -> None:
            super().submit(destination, kind, batch, rows, None, *more)

    return With


def told(seed: int, clock: type[SetClock] | None, marks: Counter[str]) -> list[str]:
    """All that happens in both halves of a seed, but for the time stamps in it."""
    lines: list[str] = []
    receiving = Simulation(
        seed, queue_manager_class=with_clock(SimQueueManager, clock, seed, marks), log=lines.append
    )
    outcome = receiving.run()
    sending = SendingSimulation(
        seed, sender_class=with_clock(SimSender, clock, seed, marks), log=lines.append
    )
    problems = outcome.problems + sending.run()
    assert outcome.verdict.clean, f"seed {seed}: {outcome.verdict}"
    assert sending.oracle.verdict().clean, f"seed {seed}: {sending.oracle.verdict()}"
    assert problems == [], f"seed {seed}: {problems}"
    return [STAMPED.sub("ordinal=…", line) for line in lines]


def difference(seed: int, clock: type[SetClock], marks: Counter[str]) -> str | None:
    """Where the run goes another way under ``clock``; ``None`` if it does not."""
    for true, found in zip_longest(told(seed, None, Counter()), told(seed, clock, marks)):
        if true != found:
            return f"seed {seed}: {true!r} became {found!r}"
    return None


@pytest.mark.timeout(300 + SEEDS // 20)
def test_nothing_that_happens_depends_on_the_wall_clock() -> None:
    marks: Counter[str] = Counter()
    for seed in range(SEEDS):
        assert difference(seed, SetClock, marks) is None
    print(f"{SEEDS} schedules with and without jumps: the same; {dict(marks)}")
    assert set(marks) == {*JUMPS_US, FROZEN}
    assert min(marks.values()) >= SEEDS / 20


def test_timers_on_the_wall_clock_are_found() -> None:
    """The self-check."""
    found = 0
    for seed in range(PLANTED_SEEDS):
        try:
            found += difference(seed, ByWallClock, Counter()) is not None
        except (AssertionError, OverflowError, ValueError):
            found += 1
    assert found >= PLANTED_SEEDS / 2
