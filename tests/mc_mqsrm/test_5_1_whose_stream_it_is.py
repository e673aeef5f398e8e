"""[MC-MQSRM] 5.1 Security: a stream belongs to the authenticated peer that began it, and nobody begins one in its place."""

from __future__ import annotations

import pytest

from tests.kit.playbook import (
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
)

LEDGER = "private$/ledger"
HIGHEST = 2**64 - 1


@pytest.mark.parametrize(
    "ordinal", [HIGHEST, STREAM + 1, STREAM], ids=["highest", "higher", "the same"]
)
def test_nobody_keeps_an_authenticated_peer_out_by_beginning_its_stream_before_it(
    ordinal: int,
) -> None:
    """[MC-MQSRM] 5.1: what began without a name proves nothing by its ordinal. Else what follows is "stale", with 200."""
    playbook = Playbook()
    assert (
        playbook
        >> post(
            stream_message(1, stream=ordinal, uniquifier=101)
        )  # a stranger, with machine1's identifiers
        << row(LEDGER, 1)
        >> post(stream_message(2, stream=ordinal, uniquifier=102))
        << row(LEDGER, 2)
        >> post(stream_message(1), sender_name="CN=machine1")
        << row(LEDGER, 3)
        >> synced()
        << ok(3)
        >> tick(0.5)
        << stream_receipt(last_ordinal=1)  # for machine1, and nothing of what the stranger sent
        >> delivered()
        >> post(stream_message(1, stream=HIGHEST, uniquifier=902))
        << refused(403, "stream-sender")
        >> post(stream_message(2), sender_name="CN=machine1")
        << row(LEDGER, 4)
        >> synced()
        << ok()
        >> restart()
        >> post(stream_message(3), sender_name="CN=machine1")
        << row(LEDGER, 5)
    )
    [stream] = playbook.receiver.streams
    assert (stream.ordinal, stream.sequence_number, stream.sender_name) == (
        STREAM,
        3,
        "CN=machine1",
    )


def test_a_sender_that_gets_a_name_in_the_middle_of_its_stream_goes_on() -> None:
    assert (
        Playbook()
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> post(stream_message(2))
        << row(LEDGER, 2)
        >> post(stream_message(3), sender_name="CN=machine1")
        << row(LEDGER, 3)
    )


def test_a_start_without_a_name_that_is_too_low_stays_a_late_copy() -> None:
    playbook = Playbook()
    assert (
        playbook
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> post(stream_message(1, stream=STREAM - 1, uniquifier=9))
        << repeated("stale")
        >> post(
            stream_message(2, stream=STREAM - 1, uniquifier=10), sender_name="CN=machine1"
        )  # no <start>
        << repeated("stale")
        >> synced()
        << ok(3)
    )
    [stream] = playbook.receiver.streams
    assert [stream.take_stale(), stream.take_stale()] == [True, False], "told once"
