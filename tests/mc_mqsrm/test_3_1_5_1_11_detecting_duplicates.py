"""[MC-MQSRM] 3.1.5.1.11 Detecting Duplicates."""

from __future__ import annotations

import pytest

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.message import Arrival, Receipt, StreamId
from srmp_spark.names import NULL_GUID, ORDER_QUEUE
from srmp_spark.srmp.codec.decoder import decode
from srmp_spark.srmp.codec.encoder import encode
from srmp_spark.srmp.receiving.history import HistoryRun, MessageIdHistory
from srmp_spark.srmp.receiving.trust_domain import lineage_key
from tests.kit.playbook import (
    IDENTITY,
    SENDER,
    Playbook,
    commit_begins,
    commit_ends,
    ok,
    operator,
    post,
    refused,
    repeated,
    restart,
    row,
    stream_message,
    stream_receipt,
    synced,
    tick,
    user_message,
)

ORDERS = "private$/orders"
OTHER = "dc1cd9a6-8130-4504-88d2-851707fe4632"
DAY = 86_400.0


def test_an_identifier_in_the_history_is_discarded_and_answered_200() -> None:
    assert (
        Playbook()
        >> post(user_message(7))
        << row(ORDERS, 1)
        >> post(user_message(7))
        << repeated("identifier")
        >> post(user_message(8))
        << row(ORDERS, 2)
        >> post(user_message(7, lineage=OTHER))
        << row(ORDERS, 3)
        >> synced()
        << ok(4)
    )


def test_the_history_is_one_for_all_queues() -> None:
    assert (
        Playbook(queues={ORDERS: False, "copies": False})
        >> post(user_message(7))
        << row(ORDERS, 1)
        >> post(user_message(7, queue="copies"))
        << repeated("identifier")
    )


def test_a_null_guid_with_1_bypasses_duplicate_detection() -> None:
    """Such messages have no <Msmq>: nothing tells one from another."""
    message = user_message(1, lineage=NULL_GUID, has_msmq=False)
    assert (
        Playbook()
        >> post(message)
        << row(ORDERS, 1)
        >> post(message)
        << row(ORDERS, 2)
        >> synced()
        << ok(2)
    )


def test_a_null_guid_with_another_number_does_not() -> None:
    message = user_message(2, lineage=NULL_GUID)
    assert Playbook() >> post(message) << row(ORDERS, 1) >> post(message) << repeated("identifier")


def test_the_identifier_is_saved_with_its_row_and_not_before() -> None:
    """Saved before, it would turn the sender's retry after a crash into a loss."""
    playbook = Playbook()
    assert (
        playbook
        >> post(user_message(7))
        << row(ORDERS, 1)
        >> commit_begins()
        >> restart(commit_survives=False)
        >> post(user_message(7))
        << row(ORDERS, 1)
        >> commit_begins()
        >> restart(commit_survives=True)
        >> post(user_message(7))
        << repeated("identifier")
        >> synced()
        << ok()
    )
    assert [(run.lineage, run.first, run.last) for run in playbook.disk.history.values()] == [
        (SENDER, 7, 7)
    ]


def test_a_repeat_of_what_is_still_on_its_way_to_the_disk_rides_behind_it() -> None:
    assert (
        Playbook()
        >> post(user_message(7))
        << row(ORDERS, 1)
        >> commit_begins()
        >> post(user_message(7))
        << repeated("identifier")
        >> commit_ends()
        << ok(1)
        >> synced()
        << ok(1)
    )


def test_what_was_refused_is_not_in_the_history() -> None:
    def pause(paused: bool) -> None:
        playbook.receiver.queues[ORDERS].paused = paused

    playbook = Playbook()
    assert (
        playbook
        >> operator("pause", lambda r: pause(True))
        >> post(user_message(7))
        << refused(503, "paused")
        >> operator("resume", lambda r: pause(False))
        >> post(user_message(7))
        << row(ORDERS, 1)
    )


def test_identifiers_are_remembered_for_thirty_days_and_then_forgotten() -> None:
    """Windows: 30 minutes (appendix A <16>), while its own resend goes on every 6 hours (<18>)."""
    assert (
        Playbook()
        >> post(user_message(7))
        << row(ORDERS, 1)
        >> tick(29 * DAY)
        >> post(user_message(7))
        << repeated("identifier")
        >> tick(1.1 * DAY)
        >> post(user_message(70))  # something new makes the history look for what is old
        << row(ORDERS, 2)
        >> post(user_message(7))
        << row(ORDERS, 3)
        >> synced()
        << ok(4)
    )


ALICE, BOB = "CN=alice", "CN=bob"
LEDGER = "private$/ledger"


RECEIPT = Receipt("stream", stream_id=StreamId(SENDER, 5), last_ordinal=3)
"""Our order queue takes nothing else."""


@pytest.mark.parametrize("stranger", [None, BOB])
@pytest.mark.parametrize("queue", [ORDERS, ORDER_QUEUE])
def test_an_identifier_that_a_stranger_uses_up_takes_nothing_from_a_named_sender(
    stranger: str | None, queue: str
) -> None:
    """Identifiers are no secret, and who may not write to one queue writes to another."""
    playbook = Playbook()
    assert (
        playbook
        >> post(stream_message(1), sender_name=ALICE)
        << row(LEDGER, 1)
        >> post(user_message(102, queue=queue, receipt=RECEIPT), sender_name=stranger)
        << row(queue, 1)
        >> post(stream_message(2), sender_name=ALICE)
        << row(LEDGER, 2)
        >> synced()
        << ok(3)
        >> tick(0.5)
        << stream_receipt(last_ordinal=2)
    )


def test_a_repeat_is_known_within_its_domain_at_any_queue_and_after_a_restart() -> None:
    """The MUST holds for each of them: for a name, for what has none, and for what is made here."""
    playbook = Playbook(queues={ORDERS: False, "copies": False})
    senders: list[dict[str, str | None]] = [
        {"sender_name": ALICE},
        {"sender_name": BOB},
        {},
        {"peer": ""},
    ]
    for number, sender in enumerate(senders, 1):
        assert playbook >> post(user_message(7), **sender) << row(ORDERS, number)  # type: ignore[arg-type]
    assert playbook >> synced() << ok(4)
    for queue in (ORDERS, "copies"):
        for sender in senders:
            assert (
                playbook >> post(user_message(7, queue=queue), **sender) << repeated("identifier")
            )  # type: ignore[arg-type]
        assert playbook >> synced() << ok(4) >> restart()
    assert {(run.first, run.last) for run in playbook.disk.history.values()} == {(7, 7)}
    assert len(playbook.disk.history) == 4


def test_what_is_made_here_is_not_erased_by_our_own_identifiers_from_the_wire() -> None:
    """Our GUID and our last number stand in each receipt that we send: the next ones are easily used up."""
    playbook = Playbook()
    for number in (8, 9, 10):
        for name in (None, ALICE):
            playbook.step(
                post(
                    user_message(number, lineage=IDENTITY, queue=ORDER_QUEUE, receipt=RECEIPT),
                    sender_name=name,
                )
            )
    assert (
        playbook
        >> post(user_message(9, lineage=IDENTITY), peer="")
        << row(ORDERS, 1)
        >> synced()
        << ok(7)
        >> restart()
        >> post(user_message(9, lineage=IDENTITY), peer="")
        << repeated("identifier")
    )


def test_no_lineage_from_the_wire_is_the_key_of_a_domain() -> None:
    """Whoever could write one into ``<SourceQmGuid>`` could use it up."""
    keys = {
        lineage_key(SENDER, transport, name)
        for transport, name in (("https", ALICE), ("https", BOB), ("api", None))
    }
    assert len(keys | {lineage_key(SENDER, "http", None)}) == 4
    for key in keys:
        content_type, content = encode(user_message(7), boundary="b")
        assert decode(content_type, content).lineage == SENDER
        with pytest.raises(RemoteProtocolError):
            decode(content_type, content.replace(SENDER.encode(), key.encode()))


def test_what_a_version_without_domains_knew_is_a_repeat_for_everybody_until_it_is_forgotten() -> (
    None
):
    """It did not note whose an identifier is; without this a sender with a name would make second rows after the update."""
    old, new = HistoryRun(SENDER, 1, 10, 5_000), HistoryRun(SENDER, 20, 29, 5_001)
    history = MessageIdHistory.load([old, new], undivided_until=5_000)
    alice = lineage_key(SENDER, "https", ALICE)
    assert [history.seen(alice, n) for n in (1, 10, 11, 20)] == [True, True, False, False]
    assert history.seen(lineage_key(SENDER, "api", None), 10)
    assert not history.seen(lineage_key(OTHER, "https", ALICE), 10)
    assert not MessageIdHistory.load([old, new]).seen(alice, 1)


def test_setting_the_wall_clock_makes_nothing_new() -> None:
    playbook = Playbook()
    receive = playbook.receiver.receive
    day_us = 86_400_000_000
    receive(user_message(7), Arrival(playbook.clock.utc(), "http", "p"), 0.0)
    for jump in (+3650 * day_us, -3650 * day_us):
        receive(user_message(8), Arrival(playbook.clock.utc() + jump, "http", "p"), 7200.0)
        receive(user_message(9), Arrival(playbook.clock.utc() + jump, "http", "p"), 14400.0)
    for number in (7, 8, 9):
        assert playbook.receiver.history.seen(SENDER, number)


@pytest.mark.parametrize("years", [[+10], [-10], [+10, -10], [-10, +10], [+1] * 20])
def test_restarts_under_a_wrong_clock_make_nothing_new(years: list[int]) -> None:
    """Before the restart a message arrives under the wrong clock, too, and is the newest then."""
    playbook = Playbook()
    assert playbook >> post(user_message(1)) << row(ORDERS, 1) >> synced() << ok()
    number = 1
    for jump in years:
        playbook.clock.utc_offset_us += jump * 365 * 86_400_000_000
        for _ in range(2):
            number += 10  # far from the others: each is a run of its own
            playbook.step(post(user_message(number)))
            playbook.step(synced())
            playbook.step(tick(7200))
            playbook.step(restart())
    assert [run.first for run in playbook.receiver.history.rows()] == list(range(1, number + 1, 10))
