"""The foreign destination sees what a sender may not do: one dialogue, written by hand, for each rule of the document."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from dialogue import LATER, ORDINAL, SENDER, OrderQueue, Sender, now

from srmp_spark.testing.foreign.faults import Fate, Faults
from tests.kit.foreign.destination import Destination

Dialogue = Callable[[Sender], list[bytes]]


@pytest.fixture
def peer() -> Iterator[Destination]:
    with Destination(receipt_wait=60.0) as destination:
        yield destination


def rules(peer: Destination) -> list[str]:
    return sorted({remark.rule for remark in peer.violations})


def test_a_sender_that_keeps_every_rule_is_not_blamed(peer: Destination) -> None:
    s = Sender(peer.port)
    good = [s.stream(1), s.stream(2), s.stream(3), s.plain(7, queue="private$/plain")]
    assert s.say_all(*good, good[0], good[1], good[2], s.stream(6, previous=3)) == [200] * 8
    assert peer.violations == []
    assert [message.current for message in peer.queues["private$/tsimpleq"]] == [1, 2, 3, 6]
    assert [message.body for message in peer.queues["private$/plain"]] == [b"plain"]
    assert [event["outcome"] for event in peer.journal] == ["accepted"] * 4 + ["repeated"] * 3 + [
        "accepted"
    ]


def without(raw: bytes, old: bytes, new: bytes) -> bytes:
    """Change the envelope and set both lengths right."""
    head, content = raw.split(b"\r\n\r\n", 1)
    assert old in content, old
    part_head, rest = content.split(b"\r\n\r\n", 1)
    end = rest.index(b"</se:Envelope>") + 14
    soap = rest[:end].replace(old, new)
    part_head = part_head.replace(b"Content-Length: %d" % end, b"Content-Length: %d" % len(soap))
    changed = part_head + b"\r\n\r\n" + soap + rest[end:]
    return (
        head.replace(b"Content-Length: %d" % len(content), b"Content-Length: %d" % len(changed))
        + b"\r\n\r\n"
        + changed
    )


@pytest.mark.parametrize(
    ("rule", "dialogue"),
    [
        ("first-number", lambda s: [s.stream(2)]),
        ("first-number", lambda s: [s.stream(0, start=True)]),
        ("start", lambda s: [s.stream(1, start=False)]),
        ("start", lambda s: [s.stream(1), s.stream(2, start=True)]),
        (
            "start",
            lambda s: [
                s.stream(1),
                Sender(s.port, "http://127.0.0.1:9/msmq/private$/elsewhere").stream(1),
            ],
        ),
        ("previous", lambda s: [s.stream(1, previous=0)]),
        ("previous", lambda s: [s.stream(1), s.stream(2, previous=2)]),
        ("previous-unknown", lambda s: [s.stream(1), s.stream(3)]),
        ("previous-blocks", lambda s: [s.stream(1), *[s.stream(5, previous=3)] * 3]),
        ("leapt-over", lambda s: [s.stream(1), s.stream(3, previous=1), s.stream(2, number=150)]),
        ("number-order", lambda s: [s.stream(1), s.stream(3), s.stream(2)]),
        ("number-again", lambda s: [s.stream(1), s.stream(2), s.stream(2, number=999)]),
        ("resend-body", lambda s: [s.stream(1), s.stream(1, body=b"another")]),
        ("resend-sent-at", lambda s: [s.stream(1), s.stream(1, sent=now(-3))]),
        ("resend-place", lambda s: [s.stream(1), s.stream(2, number=100, body=b"message 1")]),
        ("resend-place", lambda s: [s.stream(1), s.stream(1, ordinal=ORDINAL + 1, number=100)]),
        (
            "two-live-streams",
            lambda s: [s.stream(1), s.stream(2), s.stream(1, ordinal=ORDINAL + 1)],
        ),
        ("old-stream", lambda s: [s.stream(1), s.stream(1, ordinal=ORDINAL + 1), s.stream(2)]),
        ("ordinal", lambda s: [s.stream(1), s.stream(1, ordinal=ORDINAL - 1, number=500)]),
        ("stream-queue", lambda s: [s.stream(1), s.stream(2, queue="private$/other")]),
        ("stream-guid", lambda s: [s.stream(1, guid="caf195ea-615c-4264-ae08-11a4e60194c0")]),
        ("id-order", lambda s: [s.stream(1), s.stream(2, number=99)]),
        ("overtakes", lambda s: [s.stream(1), s.stream(2), s.stream(2), s.stream(3)]),
        ("after-200", lambda s: [s.plain(7), s.plain(7)]),
        ("durable", lambda s: [s.stream(1, durable=False)]),
    ],
)
def test_each_violation_is_seen(peer: Destination, rule: str, dialogue: Dialogue) -> None:
    s = Sender(peer.port)
    if rule == "overtakes":
        peer.faults.written[3] = Fate("503")
    s.say_all(*dialogue(s))
    assert rule in rules(peer), peer.violations


def test_after_a_400_the_message_does_not_come_again_and_nobody_waits_for_its_number() -> None:
    with Destination(refuse=lambda message: message.body == b"message 2", receipt_wait=60) as peer:
        s = Sender(peer.port)
        assert s.say_all(s.stream(1), s.stream(2), s.stream(3, previous=1)) == [200, 400, 200]
        assert peer.violations == []
        assert s.say_all(s.stream(2)) == [400]
        assert rules(peer) == ["after-400", "leapt-over"]
        s.say(s.stream(4, previous=2))
        assert "previous-refused" in rules(peer)
        verdict = peer.verdict({"private$/tsimpleq": [b"message 1", b"message 2", b"message 3"]})
        assert verdict.missing == ()
        assert verdict.refused == ("private$/tsimpleq: b'message 2'",)


def test_a_400_that_did_not_reach_the_sender_binds_nobody() -> None:
    with Destination(faults=Faults.parse("@2=drop-before,@3=503"), receipt_wait=60) as peer:
        s = Sender(peer.port)
        assert s.say_all(s.stream(1), s.stream(2), s.stream(2), s.stream(2)) == [
            200,
            None,
            503,
            200,
        ]
        assert peer.violations == []
        assert [event["outcome"] for event in peer.journal] == [
            "accepted",
            "unread",
            "failed",
            "accepted",
        ]


def test_a_new_stream_may_begin_when_all_are_acknowledged_refused_or_expired() -> None:
    orders = OrderQueue()
    with Destination(receipt_wait=0.05) as peer:
        s = Sender(peer.port, orders.url)
        s.say_all(s.stream(1), s.stream(2))
        orders.wait(1)
        s.say(s.stream(1, ordinal=ORDINAL + 1))
        orders.wait(2)
        s.say(s.stream(1, ordinal=ORDINAL + 2, expires=now(1)))
        time.sleep(2.1)  # dates have whole seconds
        s.say(s.stream(1, ordinal=ORDINAL + 3))
        assert peer.violations == []
    orders.close()


def test_after_its_receipt_was_answered_a_message_does_not_come_again() -> None:
    orders = OrderQueue()
    with Destination(receipt_wait=0.05) as peer:
        s = Sender(peer.port, orders.url)
        s.say_all(s.stream(1), s.stream(2))
        orders.wait(1)
        time.sleep(1.2)  # what was already on its way is no fault
        s.say(s.stream(2))
        assert rules(peer) == ["after-receipt"]
        s.say(s.stream(5, previous=1))
        assert rules(peer) == ["after-receipt", "previous-low"]
    orders.close()


def test_a_receipt_that_lies_acknowledges_nothing() -> None:
    orders = OrderQueue()
    with Destination(receipt_wait=60) as peer:
        s = Sender(peer.port, orders.url)
        s.say(s.stream(1))
        (owed,) = list(peer._state.due(time.time() + 100))
        peer.send_receipt(owed._replace(last=99, honest=False))
        orders.wait(1)
        s.say(s.stream(1, ordinal=ORDINAL + 1))
        assert rules(peer) == ["two-live-streams"]
    orders.close()


@pytest.mark.parametrize(
    ("rule", "old", "new"),
    [
        ("envelope-flat", b"</path><properties", b"</path>\r\n  <properties"),
        ("envelope-literal", b"<se:Body></se:Body>", b"<se:Body/>"),
        ("envelope-literal", b"<se:Envelope ", b'<?xml version="1.0"?><se:Envelope '),
        ("must-understand", b'<properties se:mustUnderstand="1">', b"<properties>"),
        ("must-understand", b'<stream se:mustUnderstand="1">', b'<stream se:mustUnderstand="0">'),
        (
            "order",
            b"<Class>0</Class><Priority>0</Priority>",
            b"<Priority>0</Priority><Class>0</Class>",
        ),
        ("action", b"MSMQ:mqsender", b"mqsender"),
        ("source-qm", b"<SourceQmGuid>3", b"<SourceQmGuid>4"),
        ("sent-at", b"<sentAt>", b"<sentAt>2037"),
        ("expired", b"LATER", b"20200101T000000"),
        ("expires-before-sent", b"LATER", b"20200101T000000"),
        ("malformed", b"<current>1<", b"<current>-1<"),
        ("malformed", b"<current>1<", b"<current>1</current><current>1<"),
        ("malformed", b"\\" + str(ORDINAL).encode(), b"\\" + b"9" * 21),
        ("malformed", b"uuid:100@", b"uuid:@"),
        ("malformed", b"<expiresAt>2", b"<expiresAt>x"),
        ("malformed", b"<sendReceiptsTo>http:", b"<sendReceiptsTo>file:"),
        ("malformed", b"<se:Envelope ", b"<!DOCTYPE x><se:Envelope "),
        ("malformed", b"</se:Header>", b""),
        ("malformed", b"</se:Header>", b'<x xmlns="urn:x" se:mustUnderstand="1"/></se:Header>'),
        ("malformed", f"<SourceQmGuid>{SENDER}</SourceQmGuid>".encode(), b""),
    ],
)
def test_an_envelope_unlike_the_document_is_seen(
    peer: Destination, rule: str, old: bytes, new: bytes
) -> None:
    s = Sender(peer.port)
    old = old.replace(
        b"LATER", LATER.encode()
    )  # names of tests must not depend on the time: two processes collect them
    if rule == "sent-at":
        old, new = f"<sentAt>{now()[:4]}".encode(), b"<sentAt>2037"
    status = s.say(without(s.stream(1), old, new))
    assert rule in rules(peer), peer.violations
    assert status == (400 if rule == "malformed" else 200)


@pytest.mark.parametrize(
    ("rule", "old", "new"),
    [
        ("request-line", b"HTTP/1.1\r\n", b"HTTP/1.0\r\n"),
        ("head", b'SOAPAction: "MSMQMessage"', b"SOAPAction: MSMQMessage"),
        ("head", b"Proxy-Accept: NonInteractiveClient\r\n", b""),
        ("host", b"Host: 127", b"Host: 128"),
        ("target", b"POST /msmq/private$/tsimpleq", b"POST /msmq/private$/other"),
        ("content-type", b"; type=text/xml", b""),
        (
            "part-head",
            b"Content-Type: text/xml; charset=UTF-8",
            b"content-type: text/xml; charset=UTF-8",
        ),
        ("part-head", b"Content-Id: body@3", b"Content-ID: body@3"),
        ("malformed", b"Content-Id: body@", b"Content-Id: data@"),
        ("malformed", b"SOAPAction", b"SOAPAction: x\r\nSOAPAction"),
        ("malformed", b"SOAPAction", b"Transfer-Encoding: chunked\r\nSOAPAction"),
    ],
)
def test_a_head_unlike_chapter_4_is_seen(
    peer: Destination, rule: str, old: bytes, new: bytes
) -> None:
    s = Sender(peer.port)
    raw = s.stream(1)
    assert old in raw
    s.say(raw.replace(old, new, 1))
    assert rules(peer) == [rule]


def test_a_line_end_before_a_delimiter_is_understood_and_seen(peer: Destination) -> None:
    s = Sender(peer.port)
    head, content = s.stream(1).split(b"\r\n\r\n", 1)
    spaced = content.replace(
        b"--MSMQ - SOAP boundary, 1672--\r\n", b"\r\n--MSMQ - SOAP boundary, 1672--"
    )
    assert len(spaced) == len(content)
    assert s.say(head + b"\r\n\r\n" + spaced) == 200
    assert rules(peer) == ["line-end-before-delimiter", "tail"]


def test_a_part_whose_length_is_wrong_is_refused(peer: Destination) -> None:
    s = Sender(peer.port)
    assert (
        s.say(
            s.stream(1).replace(
                b"Content-Length: 9\r\nContent-Id", b"Content-Length: 8\r\nContent-Id"
            )
        )
        == 400
    )
    assert rules(peer) == ["malformed"]


def test_a_receipt_that_the_sender_refuses_is_seen() -> None:
    orders = OrderQueue()
    orders.answers = [404]
    with Destination(receipt_wait=0.05) as other:
        s = Sender(other.port, orders.url)
        s.say(s.stream(1))
        orders.wait(1)
        end = time.monotonic() + 5
        while not rules(other) and time.monotonic() < end:
            time.sleep(0.01)
        assert rules(other) == ["receipt-refused"]
    orders.close()


def test_a_receipt_is_no_user_message(peer: Destination) -> None:
    s = Sender(peer.port)
    s.say(without(s.plain(1), b"<Class>0<", b"<Class>255<"))
    assert rules(peer) == ["class"]
