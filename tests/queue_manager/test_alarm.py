"""An alarm rings once for each time that it is set to, and not at a time that was taken back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from srmp_spark.queue_manager.alarm import Alarm


class Loop:
    """The timers of a loop, on a clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.timers: list[tuple[float, Callable[[], None], Timer]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, call: Callable[[], None]) -> Timer:
        timer = Timer()
        self.timers.append((self.now + seconds, call, timer))
        return timer

    def until(self, when: float) -> None:
        self.now = when
        due = [each for each in self.timers if each[0] <= when]
        self.timers = [each for each in self.timers if each[0] > when]
        for _, call, timer in due:
            if not timer.cancelled:
                call()


class Timer:
    cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Rig:
    def __init__(self) -> None:
        self.loop = Loop()
        self.rung: list[float] = []
        self.alarm = Alarm(
            self.loop,  # type: ignore[arg-type]  # the two methods that an alarm calls
            lambda: self.rung.append(self.loop.now),
        )


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_at_is_that_time_and_no_other(rig: Rig) -> None:
    rig.alarm.at(1005.0)
    rig.alarm.at(1009.0)
    rig.alarm.at(1009.0)
    assert len(rig.loop.timers) == 2, "the same time is not set twice"
    rig.loop.until(1006.0)
    assert rig.rung == []
    rig.loop.until(1009.0)
    assert rig.rung == [1009.0]
    assert not rig.alarm.is_set
    rig.alarm.at(1020.0)
    rig.alarm.at(None)
    rig.loop.until(1030.0)
    assert rig.rung == [1009.0]


def test_by_rings_earlier_rather_than_setting_a_timer_anew(rig: Rig) -> None:
    rig.alarm.by(1005.0)
    rig.alarm.by(1009.0)
    rig.alarm.by(None)
    assert len(rig.loop.timers) == 1
    rig.alarm.by(1003.0)
    rig.loop.until(1003.0)
    rig.loop.until(1006.0)
    assert rig.rung == [1003.0]


def test_within_does_not_put_off_what_is_set(rig: Rig) -> None:
    rig.alarm.within(2.0)
    rig.loop.now = 1001.0
    rig.alarm.within(2.0)
    rig.loop.until(1002.0)
    assert rig.rung == [1002.0]
    rig.alarm.within(2.0)
    rig.alarm.stop()
    rig.loop.until(1010.0)
    assert rig.rung == [1002.0]


def test_a_time_that_has_passed_rings_at_once_and_may_set_itself_again() -> None:
    async def main() -> list[float]:
        loop, rung = asyncio.get_running_loop(), []
        over = loop.create_future()

        def ring() -> None:
            rung.append(loop.time())
            if len(rung) == 3:
                over.set_result(None)
            else:
                alarm.at(loop.time() - 5.0)

        alarm = Alarm(loop, ring)
        alarm.at(0.0)
        await asyncio.wait_for(over, 60)
        assert not alarm.is_set
        return rung

    assert len(asyncio.run(main())) == 3


def test_the_clock_may_be_another_one_than_the_loops(rig: Rig) -> None:
    clock = [50.0]
    alarm = Alarm(rig.loop, lambda: rig.rung.append(clock[0]), lambda: clock[0])  # type: ignore[arg-type]
    alarm.by(60.0)
    assert rig.loop.timers[0][0] == 1010.0
