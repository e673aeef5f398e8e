"""What is kept of a message that is forwarded leads back to it, or it is not taken."""

from __future__ import annotations

import pytest
from hypothesis import given
from message_strategies import messages, quick

from srmp_spark.message import Message
from srmp_spark.srmp.codec.decoder import decode
from srmp_spark.srmp.codec.encoder import CALG_SHA1, encode_envelope
from srmp_spark.srmp.forward.forwarding import (
    FORWARDED_ENVELOPE_MAX,
    NUMBER_MAX,
    REACH_MAX,
    forwarded,
    restored,
    unforwardable,
)

TO = "http://a.example/msmq/private$/orders"
SENDER = "2744e4e1-2b48-43e8-b441-42745f280d53"


def never(until: int | None) -> int | None:
    return None if until is None or until >= REACH_MAX else until


@quick
@given(messages)
def test_what_is_forwarded_is_read_again_as_it_came(message: Message) -> None:
    why = unforwardable(message)
    assert (why is None) == (max(message.app_specific, message.body_type) <= NUMBER_MAX), why
    if why is not None:
        return
    found = restored(encode_envelope(forwarded(message, TO)), message.body, message.extension)
    expected = message._replace(
        destination=TO, stream=None, has_msmq=True, durable=message.durable or message.stream is not None,
        expires_at=never(message.expires_at), time_to_reach_queue=never(message.time_to_reach_queue),
        # What a message without <Msmq> does not say is written with its default.
        correlation=message.correlation or bytes(20), source_qm=message.lineage,
        hash_algorithm=CALG_SHA1 if message.hash_algorithm is None else message.hash_algorithm,
    )  # fmt: skip
    assert (
        found._replace(
            correlation=found.correlation or bytes(20), source_qm=found.source_qm or found.lineage
        )
        == expected
    )


def accepted(action: bytes, **fields: object) -> Message:
    """Decoded, with what ``action`` stands for in its envelope."""
    values: dict[str, object] = {
        "lineage": SENDER,
        "uniquifier": 5,
        "has_msmq": True,
        "source_qm": SENDER,
    } | fields
    envelope = encode_envelope(Message(TO, "MSMQ:HERE", **values))  # type: ignore[arg-type]  # fields of a message
    return decode(b"text/xml", envelope.replace(b"MSMQ:HERE", action))


def test_an_envelope_that_grows_when_it_is_written_again_is_not_taken() -> None:
    """30 KB of ``<`` in a CDATA section are 120 KB of ``&lt;``."""
    assert unforwardable(accepted(b"MSMQ:<![CDATA[" + b"<" * 1_000 + b"]]>")) is None
    why = unforwardable(accepted(b"MSMQ:<![CDATA[" + b"<" * 30_000 + b"]]>"))
    assert why is not None
    assert "FORWARDED_ENVELOPE_MAX" in why
    plain = accepted(b"MSMQ:" + b"x" * (FORWARDED_ENVELOPE_MAX - 2_000))
    assert unforwardable(plain) is None
    assert unforwardable(plain._replace(action=plain.action + "x" * 2_000)) is not None


@pytest.mark.parametrize("name", ["app_specific", "body_type"])
def test_a_number_that_no_column_holds_is_not_taken(name: str) -> None:
    assert unforwardable(accepted(b"MSMQ:", **{name: NUMBER_MAX})) is None
    why = unforwardable(accepted(b"MSMQ:", **{name: 2**64 - 1}))
    assert why is not None
    assert str(2**64 - 1) in why


def test_a_change_that_reading_it_again_would_show_is_refused() -> None:
    """A time below a second has no text."""
    why = unforwardable(accepted(b"MSMQ:")._replace(sent_at=1_500_000))
    assert why is not None
    assert "sent_at would change" in why
