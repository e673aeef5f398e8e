"""[MC-MQSRM] 3.1.3 Initialization: a new life begins with what was saved."""

from __future__ import annotations

from tests.kit.playbook import (
    SENDER,
    STREAM,
    Playbook,
    delivered,
    ok,
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

ORDERS, LEDGER = "private$/orders", "private$/ledger"


def test_a_first_start_is_empty() -> None:
    receiver = Playbook().receiver
    assert len(receiver.history) == 0
    assert len(receiver.streams) == 0
    assert receiver.next_timer() is None


def test_the_history_of_identifiers_is_loaded_from_persistent_storage() -> None:
    assert (
        Playbook()
        >> post(user_message(7))
        << row(ORDERS, 1)
        >> synced()
        << ok()
        >> restart()
        >> post(user_message(7))
        << repeated("identifier")
    )


def test_streams_are_loaded_from_persistent_storage_and_go_on() -> None:
    assert (
        Playbook()
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> post(stream_message(2))
        << row(LEDGER, 2)
        >> synced()
        << ok(2)
        >> restart()
        >> post(stream_message(1))
        << repeated("position")
        >> post(stream_message(4))
        << repeated("gap")
        >> post(stream_message(3))
        << row(LEDGER, 3)
        >> post(stream_message(1, stream=STREAM - 5, uniquifier=9))
        << repeated("stale")
    )


def test_the_address_for_receipts_survives_although_3_1_3_2_empties_it() -> None:
    """Only the first message of a stream carries it: emptied, the stream could never be acknowledged again."""
    assert (
        Playbook()
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> synced()
        << ok()
        >> restart()
        >> tick(0)
        << stream_receipt(last_ordinal=1, to="http://machine1/MSMQ/private$/order_queue$")
    )


def test_what_was_acknowledged_and_saved_is_not_owed_again() -> None:
    playbook = Playbook()
    assert (
        playbook
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> synced()
        << ok()
        >> tick(0.5)
        << stream_receipt(last_ordinal=1)
        >> delivered()
        >> synced()
    )
    assert playbook.disk.streams[LEDGER, SENDER].last_acknowledged == 1
    playbook.step(restart())
    assert playbook.step(tick(86400)) == []


def test_an_authenticated_stream_stays_its_peers_after_a_restart() -> None:
    assert (
        Playbook()
        >> post(stream_message(1), sender_name="CN=machine1")
        << row(LEDGER, 1)
        >> synced()
        << ok()
        >> restart()
        >> post(stream_message(2), sender_name="CN=mallory")
        << refused(403, "stream-sender")
        >> post(stream_message(2), sender_name="CN=machine1")
        << row(LEDGER, 2)
    )
