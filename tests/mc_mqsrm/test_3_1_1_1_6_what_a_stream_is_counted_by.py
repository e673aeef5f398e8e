"""[MC-MQSRM] 3.1.1.1.6: a stream is known by its queue, and that is the one that ``<to>`` names, wherever its rows are led."""

from __future__ import annotations

import pytest

from srmp_spark.srmp.forward.redirection import Forwarding, Redirection, Redirections
from srmp_spark.srmp.receiving.decisions import Reason
from srmp_spark.srmp.receiving.receiver import Receiver, ReceiverSettings
from tests.kit.playbook import (
    IDENTITY,
    RECEIPTS_URL,
    STREAM,
    Playbook,
    delivered,
    leaves,
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
    told,
)

FRONT, BACK = "private$/front", "private$/back"
LEDGER = "private$/ledger"
TO_FRONT = f"http://machine2/msmq/{FRONT}"


def redirected(source: str = TO_FRONT) -> Playbook:
    rule = Redirection.parse(source, f"http://machine2/msmq/{BACK}")
    settings = ReceiverSettings(forwarding=Forwarding(inbound=Redirections((rule,))))
    return Playbook(settings, {FRONT: True, BACK: True})


@pytest.mark.parametrize("restarts", [False, True])
def test_a_final_stream_receipt_leaves_after_its_stream_receipt_also_of_a_redirected_message(
    restarts: bool,
) -> None:
    """3.1.5.1.9.2 takes back at the sender what 3.1.5.1.8.2 must have counted before."""
    playbook = redirected()
    assert (
        playbook
        >> post(stream_message(1, destination=TO_FRONT, dead_letter=True))
        << row(BACK, 1)
        >> synced()
        << ok()
        >> leaves(BACK, 1, Reason.RECEIVED)
        >> synced()
    )
    if restarts:
        assert playbook >> restart()
    assert (
        playbook
        >> tick(0.5)
        << stream_receipt(last_ordinal=1)
        >> delivered()
        << told("final_stream", "positive", f"{STREAM}@1", to=RECEIPTS_URL)
    )


def remove(name: str) -> object:
    def act(receiver: Receiver) -> None:
        receiver.remove_queue(name)

    return operator(f"remove {name}", act)


@pytest.mark.parametrize("source", [TO_FRONT, "http://localhost:*/msmq/private$/fr*", "http://*"])
def test_a_stream_that_is_led_elsewhere_outlives_the_queue_that_it_is_named_after(
    source: str,
) -> None:
    """Its rows are in another queue, its sender goes on, and after a restart too."""
    to = TO_FRONT.replace("machine2", "localhost")
    assert (
        redirected(source.replace("machine2", "localhost"))
        >> post(stream_message(1, destination=to))
        << row(BACK, 1)
        >> synced()
        << ok()
        >> remove(FRONT)
        >> synced()
        >> post(stream_message(2, destination=to))
        << row(BACK, 2)
        >> synced()
        << ok()
        >> tick(0.5)
        << stream_receipt(last_ordinal=2)
    )


def test_a_stream_outlives_its_queue_and_goes_on_in_one_that_is_created_again() -> None:
    """Its sender is in the middle of a stream and begins no other one: without the stream it would wait for ever."""
    assert (
        Playbook()
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> synced()
        << ok()
        >> remove(LEDGER)
        >> synced()
        >> tick(0.5)
        << stream_receipt(last_ordinal=1)
        >> post(stream_message(2))
        << refused(400, "unknown-queue")
        >> operator("add", lambda r: r.add_queue(LEDGER, True, end=1))
        >> post(stream_message(1))
        << repeated("position")
        >> post(stream_message(2))
        << row(LEDGER, 2)
        >> synced()
        << ok(2)
    )


@pytest.mark.parametrize("name", [None, "CN=mallory"])
def test_our_own_stream_into_a_queue_of_ours_is_moved_by_nothing_that_comes_over_the_wire(
    name: str | None,
) -> None:
    """Our GUID stands in every receipt that we send, so anybody can write a ``<start>`` of ours, with the highest ordinal."""
    playbook = Playbook()
    last = 2**64 - 1
    assert (
        playbook
        >> post(stream_message(1, guid=IDENTITY, uniquifier=1), peer="")
        << row(LEDGER, 1)
        >> post(stream_message(1, guid=IDENTITY, stream=last, uniquifier=901), sender_name=name)
        << row(LEDGER, 2)
        >> post(
            stream_message(2**32 - 1, 1, guid=IDENTITY, stream=last, uniquifier=902),
            sender_name=name,
        )
        << row(LEDGER, 3)
        >> synced()
        << ok(3)
        >> restart()
        >> post(stream_message(2, guid=IDENTITY, uniquifier=2), peer="")
        << row(LEDGER, 4)
    )


def test_our_sender_process_comes_to_our_own_port_with_a_stream_of_its_own() -> None:
    """Both bear our GUID and count for themselves: neither's position is a repeat of the other's."""
    assert (
        Playbook()
        >> post(stream_message(1, guid=IDENTITY, stream=7, uniquifier=1), peer="")
        << row(LEDGER, 1)
        >> post(stream_message(1, guid=IDENTITY, stream=9, uniquifier=2))
        << row(LEDGER, 2)
        >> post(stream_message(2, guid=IDENTITY, stream=7, uniquifier=3), peer="")
        << row(LEDGER, 3)
        >> post(stream_message(2, guid=IDENTITY, stream=9, uniquifier=4))
        << row(LEDGER, 4)
        >> post(stream_message(2, guid=IDENTITY, stream=9, uniquifier=4))
        << repeated("position")
    )


def test_a_queue_that_is_removed_takes_our_own_stream_with_it() -> None:
    playbook = Playbook()
    assert (
        playbook
        >> post(stream_message(1, guid=IDENTITY), peer="")
        << row(LEDGER, 1)
        >> synced()
        << ok()
        >> remove(LEDGER)
    )
    assert playbook >> synced()
    assert len(playbook.receiver.streams) == len(playbook.disk.streams) == 0
