"""[MC-MQSRM] 3.1.6.3: a stream receipt is addressed by Stream.SendReceiptsTo, as 3.1.5.1.6.3 has set it."""

from __future__ import annotations

from tests.kit.playbook import (
    RECEIPTS_URL,
    STREAM,
    Playbook,
    delivered,
    ok,
    post,
    restart,
    row,
    stream_message,
    stream_receipt,
    synced,
    tick,
)

LEDGER = "private$/ledger"
WITH_SECRET = f"{RECEIPTS_URL}?SenderStream=XRntV"
"""As Windows gives it in chapter 4.4; a sender believes only what comes there."""


def test_a_receipt_goes_to_the_whole_address_that_the_stream_began_with() -> None:
    """3.1.6.3: "addressed to the order queue of the sender of the stream", by Stream.SendReceiptsTo, the query with it."""
    first = stream_message(1)
    assert first.stream is not None
    assert (
        Playbook()
        >> post(first._replace(stream=first.stream._replace(send_receipts_to=WITH_SECRET)))
        << row(LEDGER, 1)
        >> post(stream_message(2))  # says nothing about receipts
        << row(LEDGER, 2)
        >> synced()
        << ok(2)
        >> tick(0.5)
        << stream_receipt(last_ordinal=2, to=WITH_SECRET)
        >> restart()
        >> tick(0)
        << stream_receipt(last_ordinal=2, to=WITH_SECRET)
    )


def test_the_next_stream_says_anew_where_its_receipts_go() -> None:
    """3.1.5.1.6.3: "MUST set Stream.SendReceiptsTo to the URI in the <sendReceiptsTo>" of the new ``<start>``."""
    next_first = stream_message(1, stream=STREAM + 1, uniquifier=7)
    assert next_first.stream is not None
    assert (
        Playbook()
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> synced()
        << ok()
        >> tick(0.5)
        << stream_receipt(last_ordinal=1)
        >> delivered()
        >> post(
            next_first._replace(stream=next_first.stream._replace(send_receipts_to=WITH_SECRET))
        )
        << row(LEDGER, 2)
        >> synced()
        << ok()
        >> tick(0.5)
        << stream_receipt(last_ordinal=1, stream=STREAM + 1, to=WITH_SECRET)
    )
