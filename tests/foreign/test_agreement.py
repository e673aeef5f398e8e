"""Two readings of one document: what the foreign writer writes, the package's codec reads as it was meant, and the reverse."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.message import StreamId
from srmp_spark.srmp.codec.decoder import decode
from srmp_spark.srmp.codec.encoder import encode_envelope
from srmp_spark.srmp.receiving.effects import OwedReceipt
from srmp_spark.srmp.receiving.receipts import delivery_receipt, stream_receipt
from srmp_spark.testing.foreign.messages import (
    Dialect,
    ForeignMessage,
    ForeignStream,
    post,
    read_receipt,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "acceptance"))
import hostile

SECOND = 1_000_000
CHARACTERS = st.characters(
    codec="utf-8", exclude_categories=("Cs", "Cc"), exclude_characters="\ufffe\uffff"
)
TEXTS = st.text(CHARACTERS, max_size=40)
GUIDS = st.uuids().map(str)
NUMBERS = st.integers(0, 2**32 - 1)
LONGS = st.integers(1, 2**64 - 1)
MOMENTS = st.integers(0, 2_147_483_646)
URLS = st.from_regex(
    r"http://[a-z]{1,10}(:[1-9][0-9]{1,3})?/msmq/private\$/[a-z]{1,8}", fullmatch=True
)
NAMES = st.lists(URLS, max_size=3).map(tuple)


@st.composite
def streams(draw: st.DrawFn) -> ForeignStream:
    current = draw(st.integers(1, 2**32 - 1))
    return ForeignStream(
        guid=draw(GUIDS),
        ordinal=draw(LONGS),
        current=current,
        previous=draw(st.integers(0, current - 1)) if current > 1 else 0,
        receipts_to=draw(URLS) if current == 1 else None,
    )


@st.composite
def messages(draw: st.DrawFn) -> ForeignMessage:
    commitment = draw(st.none() | URLS)
    return ForeignMessage(
        to=draw(URLS),
        lineage=draw(GUIDS),
        uniquifier=draw(LONGS),
        label=draw(TEXTS),
        sent_at=draw(MOMENTS),
        expires_at=draw(st.none() | MOMENTS),
        time_to_reach_queue=draw(MOMENTS),
        body=draw(st.binary(max_size=200)),
        body_type=draw(NUMBERS),
        extension=draw(st.none() | st.binary(max_size=50)),
        response_queue=draw(st.none() | URLS),
        durable=True,
        delivery_receipt_to=draw(st.none() | URLS),
        commitment_receipt_to=commitment,
        positive_only=commitment is not None and draw(st.booleans()),
        negative_only=commitment is not None and draw(st.booleans()),
        stream=draw(st.none() | streams()),
        priority=draw(st.integers(0, 7)),
        journal=draw(st.booleans()),
        dead_letter=draw(st.booleans()),
        trace=draw(st.booleans()),
        correlation=draw(st.none() | st.binary(min_size=20, max_size=20)),
        connector_type=draw(st.none() | GUIDS),
        app=draw(NUMBERS),
        first_in_transaction=draw(st.booleans()),
        last_in_transaction=draw(st.booleans()),
        connector_qm=draw(st.none() | GUIDS),
        provider_type=draw(NUMBERS),
        provider_name=draw(st.none() | st.text("abc xyz", min_size=1).map(str.strip).filter(bool)),
        destination_list=draw(NAMES),
        admin_list=draw(NAMES),
        response_list=draw(NAMES),
    )


@given(messages(), st.sampled_from(Dialect))
@settings(max_examples=150, deadline=None)
def test_the_codec_reads_what_the_foreign_writer_meant(
    sent: ForeignMessage, dialect: Dialect
) -> None:
    written = post(sent, dialect)
    read = decode(written.content_type.encode("latin-1"), written.content)
    expected = {
        "destination": sent.to,
        "label": sent.label,
        "lineage": sent.lineage,
        "uniquifier": sent.uniquifier,
        "has_msmq": True,
        "message_class": 0,
        "priority": sent.priority,
        "durable": True,
        "sent_at": sent.sent_at * SECOND,
        "time_to_reach_queue": sent.time_to_reach_queue * SECOND,
        "body": sent.body,
        "body_type": sent.body_type,
        "extension": sent.extension,
        "correlation": sent.correlation,
        "app_specific": sent.app,
        "response_queue": sent.response_queue,
        "delivery_receipt_to": sent.delivery_receipt_to,
        "commitment_receipt_to": sent.commitment_receipt_to,
        "commitment_positive": sent.positive_only,
        "commitment_negative": sent.negative_only,
        "journal": sent.journal,
        "dead_letter": sent.dead_letter,
        "trace": sent.trace,
        "first_in_transaction": sent.first_in_transaction,
        "last_in_transaction": sent.last_in_transaction,
        "connector_type": sent.connector_type,
        "connector_qm": sent.connector_qm,
        "source_qm": sent.lineage,
        "destination_list": sent.destination_list,
        "admin_list": sent.admin_list,
        "response_list": sent.response_list,
        "hash_algorithm": 32772,
        "provider_type": sent.provider_type if sent.provider_type or sent.provider_name else None,
        "provider_name": sent.provider_name or ("" if sent.provider_type else None),
        "expires_at": (2_147_483_647 if sent.expires_at is None else sent.expires_at) * SECOND,
        "signature": "none",
    }
    assert {name: getattr(read, name) for name in expected} == expected
    if sent.stream is None:
        assert read.stream is None
    else:
        assert read.stream is not None
        assert (read.stream.id.guid, read.stream.id.ordinal) == (
            sent.stream.guid,
            sent.stream.ordinal,
        )
        assert (read.stream.current, read.stream.start) == (
            sent.stream.current,
            sent.stream.current == 1,
        )
        assert read.stream.send_receipts_to == sent.stream.receipts_to
        if (
            sent.stream.previous
        ):  # a zero is not written (3.1.7.2.4), and what is absent means current - 1
            assert read.stream.previous == sent.stream.previous
        else:
            assert read.stream.previous == sent.stream.current - 1


@given(st.uuids().map(str), LONGS, URLS, GUIDS, LONGS, st.integers(1, 2**32 - 1), MOMENTS)
@settings(max_examples=50, deadline=None)
def test_the_foreign_sender_understands_a_stream_receipt_of_ours(
    identity: str, number: int, to: str, guid: str, ordinal: int, last: int, now: int
) -> None:
    sent = stream_receipt(
        identity=identity, uniquifier=number, to=to, via="http://x/msmq/q", stream_id=StreamId(guid, ordinal),
        last_ordinal=last, sent_at=now * SECOND,
    )  # fmt: skip
    read = read_receipt(encode_envelope(sent).decode(), at=0.0, target="/", headers={})
    assert (read.stream_id, read.last_ordinal, read.to) == (f"uid:{guid}\\{ordinal}", last, to)
    assert (read.action, read.message_class, read.commitment_of) == (
        "MSMQ:QM Ordering Ack",
        255,
        None,
    )


def test_the_foreign_sender_understands_a_delivery_receipt_of_ours() -> None:
    guid = "32221eda-9376-46df-b6ed-783091123831"
    owed = OwedReceipt(
        kind="delivery", url="http://a/msmq/q", queue="q", action="MSMQ:the <label>", lineage=guid, uniquifier=5,
        arrived_at=0, peer="x",
    )  # fmt: skip
    sent = delivery_receipt(owed, identity=guid, uniquifier=9, via="http://x/msmq/q", sent_at=0)
    read = read_receipt(encode_envelope(sent).decode(), at=0.0, target="/", headers={})
    assert (read.delivery_of, read.message_class, read.action) == (
        f"uuid:5@{guid}",
        2,
        "MSMQ:the <label>",
    )


DESTINATION_CASES = (
    "another host",
    "an unknown queue",
    "user info in <to>",
    "a stream message for a queue without transactions",
    "a regular message for a transactional queue",
)
"""The codec reads these; the receiving engine refuses them (3.1.5.1.3)."""
NEVER_RIGHT = [
    case for case in (*hostile.mime_cases(), *hostile.envelope_cases()) if 200 not in case.allowed
]


@pytest.mark.parametrize("case", NEVER_RIGHT, ids=str)
def test_what_can_never_succeed_is_refused_by_the_codec_or_by_the_destination_check(
    case: hostile.Case,
) -> None:
    head, _, content = case.raw.partition(b"\r\n\r\n")
    content_type = re.search(rb"Content-Type: ([^\r]*)", head)[1]
    if case.name in DESTINATION_CASES:
        assert decode(content_type, content).destination is not None
    else:
        with pytest.raises(RemoteProtocolError) as refused:
            decode(content_type, content)
        assert refused.value.status_hint in case.allowed
