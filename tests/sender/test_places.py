"""Who gets a place, who waits, and who makes way."""

from __future__ import annotations

from srmp_spark.queue_manager.sender.http.places import (
    SHARE,
    SLOW_SECONDS,
    ConnectionPlaces,
    ConnectionStanding,
)

SLOW_MOST = 1_000
WORKING, SLOW, IDLE = (
    ConnectionStanding(False, 0.1),
    ConnectionStanding(False, SLOW_SECONDS + 1),
    ConnectionStanding(True, 5.0),
)


class Fleet:
    """Wires by name; what each of them does is chosen by a test."""

    def __init__(self, most: int, slow_max: int) -> None:
        self.places: ConnectionPlaces[str] = ConnectionPlaces(most, slow_max)
        self.does: dict[str, ConnectionStanding] = {}

    def want(
        self,
        wire: str,
        address: str,
        *,
        host: str = "",
        is_slow: bool = False,
        does: ConnectionStanding = WORKING,
    ) -> list[str]:
        self.does[wire] = does
        self.places.want(
            wire, f"{host or address}:80", (f"host {host or address}", address), is_slow=is_slow
        )
        return self.places.admit(SLOW_MOST)

    def make_way(self) -> tuple[list[str], list[str]]:
        """Return who made way, and who has a place now."""
        gone = self.places.make_way(self.does.__getitem__)
        for wire in gone:
            assert self.places.release(wire)
        return gone, self.places.admit(SLOW_MOST)


def test_an_address_has_a_share_and_no_more_whatever_its_names() -> None:
    fleet = Fleet(100, 20)  # 80 prompt places
    admitted = [fleet.want(f"w{n}", "192.0.2.1", host=f"h{n}.example") for n in range(50)]
    assert sum(map(len, admitted)) == 80 // SHARE
    assert fleet.want("other", "192.0.2.2") == ["other"]


def test_a_host_has_a_share_and_no_more_whatever_its_addresses() -> None:
    fleet = Fleet(100, 20)
    assert (
        sum(len(fleet.want(f"w{n}", f"192.0.2.{n}", host="h.example")) for n in range(50))
        == 80 // SHARE
    )


def test_an_idle_one_makes_way_first_then_a_slow_one_and_never_one_at_work() -> None:
    fleet = Fleet(8, 2)  # 6 prompt places
    for n, does in enumerate([WORKING, WORKING, SLOW, IDLE, WORKING, WORKING]):
        assert fleet.want(f"w{n}", f"192.0.2.{n}", does=does) == [f"w{n}"]
    assert fleet.want("a", "192.0.2.10") == []
    assert fleet.make_way() == (["w3"], ["a"])
    assert fleet.want("b", "192.0.2.11") == []
    assert fleet.make_way() == ([], ["b"]), "the slow one moved to the slow pool and goes on"
    assert fleet.want("c", "192.0.2.12") == []
    assert fleet.make_way() == ([], []), "who is at work stays"
    assert fleet.places.is_wanted("w0"), "until its turn is over"


def test_those_that_had_trouble_are_admitted_a_few_at_a_time() -> None:
    places: ConnectionPlaces[str] = ConnectionPlaces(100, 20)
    for n in range(9):
        places.want(f"troubled{n}", f"192.0.2.{n}:80", (f"192.0.2.{n}",), is_slow=True)
    places.want("other", "198.51.100.1:80", ("198.51.100.1",), is_slow=False)
    assert places.admit(2) == ["troubled0", "troubled1", "other"]
    assert places.admit(0) == []
    assert places.admit(20) == [f"troubled{n}" for n in range(2, 9)]


def test_when_the_slow_pool_is_full_too_the_slow_of_the_greediest_ends() -> None:
    fleet = Fleet(20, 4)  # 16 and 4; shares 4 and 1
    for n in range(4):
        fleet.want(f"in-slow{n}", f"198.51.100.{n}", is_slow=True, does=SLOW)
    fleet.want("single", "192.0.2.1", does=SLOW)
    for n in range(15):
        fleet.want(
            f"greedy{n}",
            f"203.0.113.{n // 4}",
            does=ConnectionStanding(False, SLOW_SECONDS + 1 + n),
        )
    assert fleet.want("new", "192.0.2.2") == []
    gone, admitted = fleet.make_way()
    assert (gone, admitted) == (["greedy11"], ["new"]), "the oldest of an address with four"


def test_within_a_full_share_the_slow_make_way_for_the_next_queue_of_the_same_address() -> None:
    fleet = Fleet(100, 20)
    for n in range(20):
        fleet.want(f"silent{n}", "192.0.2.1", does=SLOW)
    for n in range(5):
        assert fleet.want(f"more{n}", "192.0.2.1") == []
    fleet.does["other"] = WORKING
    fleet.places.want("other", "other-port", ("host 192.0.2.1", "192.0.2.1"), is_slow=False)
    gone, admitted = fleet.make_way()
    assert len(gone) + 5 == len(admitted) == 6, "five moved to the slow pool, whose share is five"
    assert "other" in admitted[:2], "servers take turns"


def test_a_single_slow_one_is_never_cut_off_for_other_slow_ones() -> None:
    fleet = Fleet(20, 4)
    for n in range(4):
        fleet.want(f"large{n}", f"192.0.2.{n}", is_slow=True, does=ConnectionStanding(False, 60.0))
    assert fleet.want("another", "192.0.2.9", is_slow=True) == []
    assert fleet.make_way() == ([], [])
    fleet.places.release("large0")
    assert fleet.places.admit(SLOW_MOST) == ["another"]


def test_one_that_waits_no_longer_gets_nothing() -> None:
    fleet = Fleet(8, 2)
    for n in range(6):
        fleet.want(f"w{n}", f"192.0.2.{n}")
    fleet.want("gone", "192.0.2.9")
    fleet.places.withdraw("gone")
    assert not fleet.places.somebody_waits
    assert fleet.places.release("w0")
    assert fleet.places.admit(SLOW_MOST) == []
    assert not fleet.places.release("gone")
