"""A full API port: a flood takes places from itself, and a caller with few connections keeps them and gets one."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest

from srmp_spark.queue_manager.api.port_side import places
from srmp_spark.queue_manager.api.port_side.places import (
    ORDER_SECONDS,
    ORDERED_MIN,
    ApiPlaces,
    ApiStanding,
)

FLOOD, OTHER_FLOOD, GOOD = "127.0.0.2", "127.0.0.3", "127.0.0.22"


@dataclass(eq=False)
class Caller:
    host: str
    standing: ApiStanding
    silent_since: float


class Port:
    """A full port, whoever comes."""

    def __init__(self) -> None:
        self.places: ApiPlaces[Caller] = ApiPlaces()
        self.callers: dict[Caller, None] = {}
        self.now = 0.0

    def enter(self, host: str, standing: ApiStanding, count: int = 1) -> Caller:
        for _ in range(count):
            self.now += 0.000_001
            caller = Caller(host, standing, self.now)
            self.callers[caller] = None
            self.places.enter(host)
        return caller

    def comes(self, host: str, standing: ApiStanding = ApiStanding.SILENT) -> Caller | None:
        """A connection of ``host`` comes; return who made way, or None if it was refused."""
        found = self.places.makes_way(self.callers.keys(), host, self.now)
        if found is not None:
            del self.callers[found]
            self.places.leave(found.host)
            self.enter(host, standing)
        return found

    def rests(self) -> None:
        self.now += ORDER_SECONDS


@pytest.fixture
def port() -> Port:
    return Port()


@pytest.mark.parametrize("standing", [ApiStanding.SILENT, ApiStanding.IDLE, ApiStanding.WAITING])
def test_a_flood_makes_way_for_others_whatever_it_does(port: Port, standing: ApiStanding) -> None:
    kept = port.enter(GOOD, ApiStanding.IDLE)
    port.enter(FLOOD, standing, 100)
    for _ in range(20):
        found = port.comes(GOOD)
        assert found is not None
        assert found.host == FLOOD
    assert kept in port.callers


@pytest.mark.parametrize("standing", [ApiStanding.SILENT, ApiStanding.IDLE])
def test_a_flood_that_goes_on_takes_places_from_itself(port: Port, standing: ApiStanding) -> None:
    """The caller that has just come, and said nothing yet, is not closed for the next one of the flood."""
    port.enter(FLOOD, standing, 100)
    good = [port.enter(GOOD, ApiStanding.SILENT), port.enter(GOOD, ApiStanding.IDLE)]
    for _ in range(1_000):
        found = port.comes(FLOOD, standing)
        assert found is not None
        assert found.host == FLOOD
        port.rests()
    assert all(each in port.callers for each in good)


def test_a_flood_whose_calls_wait_is_refused(port: Port) -> None:
    port.enter(FLOOD, ApiStanding.WAITING, 100)
    port.enter(GOOD, ApiStanding.IDLE)
    for _ in range(3):
        assert port.comes(FLOOD) is None
        port.rests()
    found = port.comes(GOOD)
    assert found is not None
    assert found.host == FLOOD


def test_two_floods_take_places_from_the_larger_one(port: Port) -> None:
    port.enter(FLOOD, ApiStanding.IDLE, 60)
    port.enter(OTHER_FLOOD, ApiStanding.IDLE, 40)
    port.enter(GOOD, ApiStanding.SILENT, 2)
    for _ in range(200):
        port.comes(OTHER_FLOOD, ApiStanding.IDLE)
        port.rests()
    counts = {
        host: sum(each.host == host for each in port.callers) for host in (FLOOD, OTHER_FLOOD, GOOD)
    }
    assert counts[GOOD] == 2
    assert abs(counts[FLOOD] - counts[OTHER_FLOOD]) <= 2


def test_calls_that_have_begun_are_kept(port: Port) -> None:
    port.enter(FLOOD, ApiStanding.BUSY, 100)
    assert port.comes(GOOD) is None


def test_behind_a_proxy_the_longest_silence_makes_way(port: Port) -> None:
    first = port.enter("127.0.0.1", ApiStanding.IDLE)
    silent = port.enter("127.0.0.1", ApiStanding.SILENT)
    port.enter("127.0.0.1", ApiStanding.SILENT)
    port.enter("127.0.0.1", ApiStanding.IDLE)
    port.enter("127.0.0.1", ApiStanding.WAITING)
    assert port.comes("127.0.0.1", ApiStanding.BUSY) is silent
    port.comes("127.0.0.1", ApiStanding.BUSY)
    assert port.comes("127.0.0.1", ApiStanding.BUSY) is first


def test_what_became_busy_since_the_order_was_made_is_kept(port: Port) -> None:
    calls = port.enter(FLOOD, ApiStanding.IDLE)
    other = port.enter(FLOOD, ApiStanding.IDLE)
    last = port.enter(FLOOD, ApiStanding.IDLE)
    assert port.comes(GOOD) is calls
    other.standing = ApiStanding.BUSY
    assert port.comes(GOOD) is last


def test_calls_that_wait_now_do_not_hide_those_that_are_idle(port: Port) -> None:
    waits = port.enter("127.0.0.1", ApiStanding.IDLE)
    waits_too, idle = (
        port.enter("127.0.0.1", ApiStanding.IDLE),
        port.enter("127.0.0.1", ApiStanding.IDLE),
    )
    assert port.comes("127.0.0.1", ApiStanding.BUSY) is waits
    waits_too.standing = ApiStanding.WAITING
    assert port.comes("127.0.0.1", ApiStanding.BUSY) is idle


def test_a_newcomer_finds_a_place_however_fast_others_come(port: Port) -> None:
    """No time passes here: the order is made again when it has given enough places."""
    port.enter(FLOOD, ApiStanding.SILENT, ORDERED_MIN)
    for _ in range(10 * ORDERED_MIN):
        assert port.comes(FLOOD) is not None
    assert port.comes(GOOD) is not None


def test_a_flood_costs_little(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some 16 us for each connection, refused or not; a machine that is busy needs more."""
    made: list[int] = []
    monkeypatch.setattr(
        places, "sorted", lambda *a, **k: made.append(1) or sorted(*a, **k), raising=False
    )
    port.enter(FLOOD, ApiStanding.WAITING, 1_024)
    began = time.process_time()
    for _ in range(1_000):
        assert port.comes(FLOOD) is None
    for _ in range(500):
        assert port.comes(GOOD, ApiStanding.WAITING) is not None
    assert time.process_time() - began < 1
    assert len(made) <= 2 + 1_000 // ORDERED_MIN
