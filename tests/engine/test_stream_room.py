"""How many incoming streams there may be, whose, and which one makes way ([MC-MQSRM] 3.1.1.1.6 ends none)."""

from __future__ import annotations

import pytest

from srmp_spark.message import Arrival, Message
from srmp_spark.srmp.receiving import stream_room
from srmp_spark.srmp.receiving.effects import Accepted, Committed, Pending, Refused, Repeated
from srmp_spark.srmp.receiving.receiver import Receiver
from srmp_spark.srmp.receiving.stream_room import HOLDER_SHARE, LOOK_AGAIN_S, REST_S_MIN, holder_of
from tests.kit.playbook import STREAM, Playbook, stream_message

DAY = REST_S_MIN
SHARE = 5


@pytest.fixture(autouse=True)
def small_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_room, "STREAMS_MAX", HOLDER_SHARE * SHARE)
    monkeypatch.setattr(stream_room, "FORGOTTEN_AT_ONCE", 2)


def guid(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


class Peers:
    """Senders with addresses, against one receiving engine."""

    def __init__(self) -> None:
        self.receiver: Receiver = Playbook().receiver
        self._position = 0

    def post(
        self, message: Message, host: str, now: float = 0.0, name: str | None = None
    ) -> Refused | Pending:
        """A message, committed at once if it is taken."""
        outcome = self.receiver.receive(
            message, Arrival(int(now * 1e6), "http", f"{host}:50001", name), now
        )
        if not isinstance(outcome, Refused):
            self.receiver.changes()
            self._position += 1
            self.receiver.committed(
                [outcome], Committed(self._position), now
            )  # the store is not what is tested
        return outcome

    def begin(
        self, number: int, host: str, now: float = 0.0, name: str | None = None
    ) -> Refused | Pending:
        return self.post(
            stream_message(1, guid=guid(number), uniquifier=number + 1), host, now, name
        )

    def fill(self, now: float = 0.0) -> None:
        """The table, from as many hosts as that needs."""
        for number in range(HOLDER_SHARE * SHARE):
            assert isinstance(self.begin(number, f"192.0.2.{number // SHARE}", now), Accepted)

    def acknowledge(self, now: float) -> None:
        """Every stream receipt that is due reaches its sender."""
        for receipt in self.receiver.due(now):
            self.receiver.receipt_delivered(
                receipt.queue, receipt.stream_id.guid, receipt.stream_id, receipt.last_ordinal, now
            )

    @property
    def numbers(self) -> set[int]:
        return {int(stream.guid[:8], 16) for stream in self.receiver.streams}


def is_full(outcome: Refused | Pending) -> bool:
    return isinstance(outcome, Refused) and (outcome.status, outcome.reason) == (
        503,
        "stream-limit",
    )


def test_one_address_cannot_fill_the_table() -> None:
    peers = Peers()
    for number in range(SHARE):
        assert isinstance(peers.begin(number, "192.0.2.1"), Accepted)
    refusal = peers.begin(SHARE, "192.0.2.1")
    assert is_full(refusal)
    assert isinstance(refusal, Refused)
    assert f"192.0.2.1 has {SHARE} streams" in refusal.message
    assert isinstance(peers.begin(SHARE, "192.0.2.2"), Accepted), "nobody else notices"
    going_on = stream_message(1, guid=guid(3), stream=STREAM + 1, uniquifier=90)
    assert isinstance(peers.post(going_on, "192.0.2.1"), Accepted), (
        "a known sender may begin its next stream"
    )


def test_this_host_may_for_a_reverse_proxy_stands_for_many() -> None:
    peers = Peers()
    for number in range(HOLDER_SHARE * SHARE):
        assert isinstance(peers.begin(number, "127.0.0.1"), Accepted)
    assert is_full(peers.begin(HOLDER_SHARE * SHARE, "127.0.0.1"))


def test_nor_can_one_name() -> None:
    peers = Peers()
    for number in range(SHARE):
        assert isinstance(peers.begin(number, f"192.0.2.{number}", name="CN=mallory"), Accepted)
    assert is_full(peers.begin(SHARE, "192.0.2.9", name="CN=mallory"))
    assert is_full(peers.begin(SHARE, "192.0.2.9", 100 * DAY, name="CN=mallory")), (
        "what has a name makes no way"
    )
    assert isinstance(peers.begin(SHARE, "192.0.2.9", 100 * DAY, name="CN=machine1"), Accepted)


def test_a_full_table_is_503_while_everything_in_it_is_in_use() -> None:
    peers = Peers()
    peers.fill(now=10.0)
    for each in range(5):
        assert is_full(peers.begin(900 + each, f"198.51.100.{each}", DAY))
    assert len(peers.receiver.streams) == HOLDER_SHARE * SHARE


def test_a_flood_makes_way_for_an_honest_sender_when_it_has_rested() -> None:
    """And not what was there before it: the largest holder's, longest at rest first."""
    peers = Peers()
    assert isinstance(peers.begin(700, "203.0.113.1"), Accepted)
    for number in range(HOLDER_SHARE * SHARE - 1):
        assert isinstance(
            peers.begin(number, f"192.0.2.{number // SHARE}", 100.0 + number), Accepted
        )
    assert is_full(peers.begin(800, "203.0.113.2", 200.0))
    assert isinstance(peers.begin(800, "203.0.113.2", 200.0 + DAY), Accepted)
    assert peers.numbers >= {700, 800}
    assert peers.receiver.streams.forgotten == 2
    assert isinstance(
        peers.post(stream_message(2, guid=guid(700), uniquifier=990), "203.0.113.1", 201.0 + DAY),
        Accepted,
    )


def test_a_sender_whose_share_is_used_up_takes_the_place_of_what_it_does_not_use() -> None:
    peers = Peers()
    for number in range(SHARE):
        assert isinstance(peers.begin(number, "192.0.2.1", 10.0 + number), Accepted)
    peers.post(stream_message(2, guid=guid(0), uniquifier=91), "192.0.2.1", DAY)  # in use
    peers.acknowledge(DAY + 0.5)
    assert isinstance(peers.begin(SHARE, "192.0.2.1", DAY + 100), Accepted)
    assert peers.numbers == {0, 3, 4, SHARE}


def test_who_has_its_receipt_makes_way_before_who_has_not() -> None:
    peers = Peers()
    peers.begin(0, "192.0.2.1", 10.0)  # first, and never acknowledged
    peers.receiver.due(11.0)
    for number in range(1, SHARE):
        peers.begin(number, "192.0.2.1", 20.0 + number)
    peers.acknowledge(30.0)
    assert isinstance(peers.begin(SHARE, "192.0.2.1", DAY + 100), Accepted)
    assert peers.numbers == {0, 3, 4, SHARE}


def test_a_sender_that_repeats_what_it_has_no_receipt_for_is_at_work() -> None:
    """A position moves with what is new alone; who repeats would be forgotten in the middle of it."""
    peers = Peers()
    for number in range(SHARE):
        peers.begin(number, "192.0.2.1", 10.0)
    for number in range(SHARE):
        assert isinstance(peers.begin(number, "192.0.2.1", DAY), Repeated)
    assert is_full(peers.begin(SHARE, "192.0.2.1", DAY + 100))


def test_what_makes_way_is_not_there_after_a_restart_and_its_repeats_make_no_rows() -> None:
    peers = Peers()
    for number in range(SHARE):
        peers.begin(number, "192.0.2.1", 10.0 + number)
    peers.receiver.receive(
        stream_message(1, guid=guid(9), uniquifier=99),
        Arrival(int(2 * DAY * 1e6), "http", "192.0.2.1:1"),
        2 * DAY,
    )
    dropped = {key for _, key in peers.receiver.changes().dropped_streams}
    assert dropped == {guid(0), guid(1)}
    again = peers.begin(0, "192.0.2.2", 2 * DAY + 1)
    assert isinstance(again, Repeated)
    assert again.kind == "identifier"


def test_who_begins_streams_without_end_does_not_make_us_look_without_end() -> None:
    peers = Peers()
    peers.fill(now=10.0)
    assert is_full(peers.begin(900, "198.51.100.1", 9.5 + DAY))
    assert is_full(peers.begin(900, "198.51.100.1", 10.1 + DAY)), "not looked for again yet"
    assert isinstance(peers.begin(900, "198.51.100.1", 9.5 + DAY + LOOK_AGAIN_S), Accepted)


@pytest.mark.parametrize(
    ("peer", "name", "holder"),
    [
        ("192.0.2.1:1801", None, "192.0.2.1"),
        ("192.0.2.1:1801", "CN=a", "name CN=a"),
        ("[2001:db8:0:1:aaaa::1]:1801", None, "2001:db8:0:1::/64"),
        ("[2001:db8:0:1:bbbb::2]:1801", None, "2001:db8:0:1::/64"),
        ("[::ffff:192.0.2.1]:1801", None, "192.0.2.1"),
        ("", None, ""),
        ("[what:ever]:1", None, "what:ever"),
    ],
)
def test_whose_share_it_is(peer: str, name: str | None, holder: str) -> None:
    assert holder_of(peer, name) == holder
