"""[MC-MQSRM] 3.1.1.1.6: a stream is known by its queue, and that is the one that ``<to>`` names, wherever its rows are led."""

from __future__ import annotations

import pytest

from srmp_spark.srmp.decisions import Reason
from srmp_spark.srmp.receiver import Receiver, ReceiverSettings
from srmp_spark.srmp.redirection import Forwarding, Redirection, Redirections
from srmp_spark.testing.playbook import (
    RECEIPTS_URL,
    STREAM,
    Playbook,
    delivered,
    leaves,
    ok,
    operator,
    post,
    refused,
    restart,
    row,
    stream_message,
    stream_receipt,
    synced,
    tick,
    told,
)

FRONT, BACK = "private$/front", "private$/back"
TO_FRONT = f"http://machine2/msmq/{FRONT}"


def redirected(source: str = TO_FRONT) -> Playbook:
    rule = Redirection.parse(source, f"http://machine2/msmq/{BACK}")
    settings = ReceiverSettings(forwarding=Forwarding(inbound=Redirections((rule,))))
    return Playbook(settings, {FRONT: True, BACK: True})


@pytest.mark.parametrize("restarts", [False, True])
def test_a_final_stream_receipt_leaves_after_its_stream_receipt_also_of_a_redirected_message(restarts: bool) -> None:
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
def test_a_stream_that_is_led_elsewhere_outlives_the_queue_that_it_is_named_after(source: str) -> None:
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


def test_a_stream_ends_with_the_queue_that_its_rows_are_in() -> None:
    """No rule leads it elsewhere: of another host, or of another queue."""
    playbook = redirected(f"http://machine2/msmq/{FRONT}-two")
    assert (
        playbook
        >> post(stream_message(1, destination=TO_FRONT))
        << row(FRONT, 1)
        >> synced()
        << ok()
        >> remove(FRONT)
        >> synced()
        >> post(stream_message(2, destination=TO_FRONT))
        << refused(400, "unknown-queue")
    )
    assert len(playbook.receiver.streams) == len(playbook.disk.streams) == 0
