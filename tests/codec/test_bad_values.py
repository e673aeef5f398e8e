"""The bad inputs 19-32 as far as the bytes alone decide, each with its exact bytes and expected answer.

Whose queue it is, what is a duplicate and what a receipt may cause is the engine's to say: there the test here is that the
codec hands the value on unchanged.
"""

from __future__ import annotations

import pytest
from codec_kit import GOOD, GUID, MSMQ, STREAM, accepted, envelope, refused_envelope

from srmp_spark.errors import LimitExceededError, RemoteProtocolError
from srmp_spark.message import StreamId
from srmp_spark.srmp.codec.http_head import check_target
from srmp_spark.srmp.codec.values import NEVER_AT, parse_date


@pytest.mark.parametrize(
    "target",
    [
        b"/msmq/../private$/x",
        b"/msmq/private$/..",
        b"/msmq/private$/.",
        b"/msmq/%2e%2e/private$/x",
        b"/msmq/private$/%2e%2e%2fx",
        b"/msmq/private$%5cx",
        b"/msmq/private$/x%00",
        b"/msmq/..;/private$/x",
        b"/msmq/private$/..;a",
        b"/msmq/private$/x::$DATA",
        b"/msmq/private$/x:a:$DATA/y",
        b"/msmq\\..\\private$\\x",
        b"/msmq/private$/x/y",
        b"/msmq//x",
        b"//msmq/x",
        b"/msmq/",
        b"/msmq",
        b"/",
        b"*",
        b"/MSMQ/private$/\xff",
        b"/msmq/private$/%ff",
        b"/msmq/private$/x#y",
        b"/msmq/private$/a%0d%0ab",
        b"http://user@machine2/msmq/private$/x",
        b"ftp://machine2/msmq/private$/x",
        b"234.1.1.1:8001",
        b"",
    ],
)
def test_19_a_target_that_is_no_queue(target):
    with pytest.raises(RemoteProtocolError) as caught:
        check_target(target)
    assert caught.value.status_hint == 400


@pytest.mark.parametrize("to", ["", "  ", "DIRECT=", "<b>http://a/msmq/b</b>"])
def test_20_an_address_that_is_none(to):
    refused_envelope(GOOD.replace(b"http://machine2/msmq/private$/simpleq", to.encode()))


@pytest.mark.parametrize(
    "to",
    [
        "http://foreign/msmq/private$/x",
        "gopher://x/",
        "PRIVATE=1",
        "http://user@host/msmq/x",
        "x" * 5_000,
    ],
)
def test_21_whose_address_it_is_is_not_the_codecs_question(to):
    assert (
        accepted(GOOD.replace(b"http://machine2/msmq/private$/simpleq", to.encode())).destination
        == to
    )


def test_24_a_receipt_that_asks_for_a_receipt_is_read_as_both():
    """The engine sees that it is a receipt and owes nothing."""
    xml = envelope(
        between='<services se:mustUnderstand="1"><deliveryReceiptRequest><sendTo>http://a/msmq/r</sendTo></deliveryReceiptRequest>'
        f"</services><deliveryReceipt><receivedAt>20070719T032454</receivedAt><id>uuid:1@{GUID}</id></deliveryReceipt>"
    )
    message = accepted(xml)
    assert message.receipt is not None
    assert message.delivery_receipt_to == "http://a/msmq/r"


@pytest.mark.parametrize(
    "current",
    [
        "0",
        "-1",
        "18446744073709551616",
        "4294967296",
        "1e3",
        " 1",
        "1 ",
        "01",
        "+1",
        "0x1",
        "1.0",
        "",
        "١",
        "1_000",
        "9" * 5_000,
    ],
)
def test_25_a_position_that_is_none(current):
    refused_envelope(envelope(between=STREAM.replace("<current>2<", f"<current>{current}<")))
    if current != "0":
        refused_envelope(envelope(between=STREAM.replace("<previous>1<", f"<previous>{current}<")))
        receipt = (
            f"<streamReceipt><streamId>uid:{GUID}\\1</streamId><lastOrdinal>"
            f"{current}</lastOrdinal></streamReceipt>"
        )
        refused_envelope(envelope(between=receipt))


def test_25_the_highest_position():
    stream = accepted(
        envelope(between=STREAM.replace("<current>2<", "<current>4294967295<"))
    ).stream
    assert stream is not None
    assert stream.current == 4_294_967_295


def test_26_a_jump_is_data():
    """Whether it fits is the engine's to say, which answers 200 and keeps nothing."""
    jump = STREAM.replace("<current>2<", "<current>5<").replace("<previous>1<", "<previous>0<")
    stream = accepted(envelope(between=jump)).stream
    assert stream is not None
    assert (stream.current, stream.previous, stream.start) == (5, 0, False)
    assert stream.id == StreamId("2744e4e1-2b48-43e8-b441-42745f280d53", 4839986701558349830)


def test_28_the_same_bytes_are_the_same_message():
    assert accepted(GOOD) == accepted(GOOD)
    assert accepted(GOOD).id == f"{{{GUID}}}\\4494"


@pytest.mark.parametrize(
    "date",
    [
        "20070231T000000",
        "20070229T000000",
        "19000229T000000",
        "20071301T000000",
        "20070001T000000",
        "20070100T000000",
        "20070101T240000",
        "20070101T006000",
        "20070101T000060",
        "00000101T000000",
        "2007-01-01T00:00:00",
        "20070101T000000Z",
        "20070101",
        "",
        "20070101 000000",
        "２００７0101T000000",
        "never",
    ],
)
def test_29_a_date_that_no_calendar_has(date):
    good = b"20070608T023719"
    refused_envelope(GOOD.replace(good, date.encode()))
    refused_envelope(GOOD.replace(b"20380119T031407", date.encode()))
    refused_envelope(GOOD.replace(b"20070612T023719", date.encode()))


def test_29_odd_dates_are_data():
    assert accepted(GOOD.replace(b"20070608T023719", b"99991231T235959")).sent_at == parse_date(
        "99991231T235959"
    )
    assert accepted(GOOD.replace(b"20070608T023719", b"20080229T000000")).sent_at == parse_date(
        "20080229T000000"
    )
    assert (
        accepted(GOOD.replace(b"20070612T023719", b"19700101T000000")).time_to_reach_queue == 0
    ), "before sentAt, long past"
    assert accepted(GOOD).expires_at == NEVER_AT == 2_147_483_647_000_000


@pytest.mark.parametrize(
    "correlation",
    [
        "",
        "x",
        "AAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "AAAAAAAAAAAAAAAAAAAAAAAAAA==",
        "AAAA AAAAAAAAAAAAAAAAAAAAAAA=",
        "AAAAAAAAAAAAAAAAAAAAAAAAA-_=",
        "A" * 5_000,
    ],
)
def test_31_a_correlation_that_is_not_20_bytes(correlation):
    refused_envelope(GOOD.replace(b"AAAAAAAAAAAAAAAAAAAAAAAAAAA=", correlation.encode()))


@pytest.mark.parametrize("priority", ["8", "-1", "3.0", "", "99999999999999999999999"])
def test_31_a_priority_that_is_none(priority):
    refused_envelope(GOOD.replace(b"<Priority>3<", f"<Priority>{priority}<".encode()))


def test_31_unknown_classes_and_types_are_numbers():
    assert (
        accepted(GOOD.replace(b"<Class>0<", b"<Class>4294967295<")).message_class == 4_294_967_295
    )
    assert (
        accepted(GOOD.replace(b"<BodyType>8<", b"<BodyType>18446744073709551615<")).body_type
        == 2**64 - 1
    )
    refused_envelope(GOOD.replace(b"<Class>0<", b"<Class>4294967296<"))
    refused_envelope(GOOD.replace(b"<BodyType>8<", b"<BodyType>18446744073709551616<"))


@pytest.mark.parametrize("element", ["DestinationMqf", "AdminMqf", "ResponseMqf"])
def test_32_too_many_names(element):
    def listed(count: int) -> bytes:
        return envelope(msmq=MSMQ.replace("<TTrq>", f"<{element}>{'a ' * count}</{element}><TTrq>"))

    accepted(listed(100))
    error = refused_envelope(listed(101))
    assert isinstance(error, LimitExceededError)
    assert error.name == "NAMES_MAX"
    refused_envelope(listed(100_000))


def test_32_names_of_other_schemes_are_text():
    names = "http://m/msmq/q\r\n DIRECT=OS:m\\private$\\q\tfile:///etc/passwd"
    message = accepted(
        envelope(msmq=MSMQ.replace("<TTrq>", f"<DestinationMqf>\n{names}\n</DestinationMqf><TTrq>"))
    )
    assert message.destination_list == (
        "http://m/msmq/q",
        "DIRECT=OS:m\\private$\\q",
        "file:///etc/passwd",
    )
