"""What an envelope may look like and what its elements mean: [MC-MQSRM] 2.2.2 to 2.2.7 and 3.1.5.1.1."""

from __future__ import annotations

import re

import pytest
from codec_kit import GUID, MSMQ, PATH, PROPERTIES, STREAM, envelope

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.message import Receipt, StreamId, StreamPosition
from srmp_spark.names import NULL_GUID
from srmp_spark.srmp.codec.decoder import decode
from srmp_spark.srmp.codec.values import parse_date

GOOD = envelope()
OTHER_GUID = "00000000-0000-0000-0000-00000000000A"


def read(xml: bytes | str, old: str = "", new: str = ""):
    text = xml if isinstance(xml, str) else xml.decode()
    changed = text.replace(old, new)
    assert not old or changed != text, f"{old!r} is not in the envelope"
    message = decode(b"text/xml", changed.encode())
    # One blank makes the envelope unlike Windows' layout, so that the XML reader reads it too.
    assert decode(b"text/xml", changed.replace("</se:Envelope>", "</se:Envelope >").encode()) == (
        message
    )
    return message


def refused(xml: bytes, old: str = "", new: str = "") -> str:
    with pytest.raises(RemoteProtocolError) as caught:
        read(xml, old, new)
    assert caught.value.status_hint == 400
    return str(caught.value)


@pytest.mark.parametrize("element", ["action", "to", "id"])
def test_path_needs(element):
    xml = re.sub(f"<{element}>.*?</{element}>", "", GOOD.decode(), count=1)
    assert f"<{element}> is missing" in refused(xml.encode())


@pytest.mark.parametrize("element", ["Class", "Priority", "BodyType", "SourceQmGuid", "TTrq"])
def test_msmq_needs(element):
    xml = re.sub(f"<{element}>.*?</{element}>", "", GOOD.decode(), count=1)
    assert f"<{element}> is missing" in refused(xml.encode())


@pytest.mark.parametrize("element", ["Correlation", "App", "HashAlgorithm"])
def test_msmq_may_lack(element):
    field = {
        "Correlation": "correlation",
        "App": "app_specific",
        "HashAlgorithm": "hash_algorithm",
    }[element]
    xml = re.sub(f"<{element}>.*?</{element}>", "", GOOD.decode(), count=1)
    assert getattr(read(xml), field) == (0 if element == "App" else None)


def test_the_blocks_themselves():
    assert "<to> is missing" in refused(envelope(path=""))
    assert "<expiresAt> is missing" in refused(envelope(properties=""))
    assert "<expiresAt> is missing" in refused(GOOD, "<expiresAt>20380119T031407</expiresAt>", "")
    assert read(GOOD, "<sentAt>20070608T023719</sentAt>", "").sent_at is None
    assert not read(envelope(msmq="")).has_msmq
    assert "needs <Msmq>" in refused(envelope(between=STREAM, msmq=""))


def test_source_qm_guid_wins_over_the_id():
    """Appendix A <7>."""
    message = read(GOOD, f"@{GUID}", f"@{OTHER_GUID}")
    assert (message.lineage, message.uniquifier, message.source_qm) == (GUID, 4494, GUID)


def test_without_msmq_the_id_is_ignored_but_there():
    message = read(envelope(msmq=""), f"uuid:4494@{GUID}", "anything at all")
    assert (message.lineage, message.uniquifier) == (NULL_GUID, 1)
    assert read(envelope(msmq=""), f"<id>uuid:4494@{GUID}</id>", "<id/>").uniquifier == 1


@pytest.mark.parametrize(
    "identifier",
    [
        "",
        "4494",
        f"4494@{GUID}",
        f"uuid:@{GUID}",
        f"uuid:4494{GUID}",
        "uuid:4494@",
        f"uuid:-1@{GUID}",
        f"UUID:1@{GUID}",
        f"uuid:1@{{{GUID}}}",
        f"uuid:1@{GUID}x",
        f"uuid:18446744073709551616@{GUID}",
        f"uuid:1 @{GUID}",
        f"uid:1@{GUID}",
    ],
)
def test_an_id_that_is_none(identifier):
    refused(GOOD, f"uuid:4494@{GUID}", identifier)


def test_guids_are_lower_case_and_numbers_canonical():
    message = read(GOOD, f"<SourceQmGuid>{GUID}", f"<SourceQmGuid> {GUID.upper()}\n")
    assert message.lineage == message.source_qm == GUID
    assert read(GOOD, "<App>0", "<App> 0042 ").app_specific == 42, (
        "xs:unsignedLong has leading zeros and white space"
    )


def test_labels_keep_every_blank():
    assert read(GOOD, "MSMQ:mqsender label", "MSMQ:  a\tb\n ").label == "  a\tb\n "
    assert read(GOOD, "MSMQ:mqsender label", "   ").action == "   "
    assert read(GOOD, "MSMQ:mqsender label", "msmq:x").label is None
    assert read(GOOD, "<action>MSMQ:mqsender label</action>", "<action/>").action == ""


def test_texts_are_texts_however_they_are_written():
    for text in (
        "a&lt;b&#38;c",
        "a<![CDATA[<b&c]]>",
        "a&lt;b<!-- no -->&amp;c",
        "&#x61;&lt;b&amp;c",
    ):
        assert read(GOOD, "mqsender label", text).label == "a<b&c"
    assert read(GOOD, "mqsender label", "a\r\nb&#13;c").label == "a\nb\rc"
    assert (
        read(GOOD, "http://machine2/", "http://machine2<!-- @evil -->/").destination
        == "http://machine2/msmq/private$/simpleq"
    )


def test_direct_in_front_of_an_address_is_taken_off():
    """3.1.5.1.1: the receiver puts it there, the sender does not send it."""
    assert read(GOOD, "<to>", "<to>DIRECT=").destination == "http://machine2/msmq/private$/simpleq"
    assert read(GOOD, "<to>", "<to> direct=").destination == "http://machine2/msmq/private$/simpleq"
    assert read(
        GOOD, "<to>http://machine2/msmq/private$/simpleq", "<to>\r\n  HTTPS://M/msmq/my queue \r\n"
    ).destination == ("HTTPS://M/msmq/my queue")


@pytest.mark.parametrize(
    ("via", "expected"),
    [
        ("<via>http://m/msmq/q</via>", "http://m/msmq/q"),
        ("<via> https://m/msmq/q\n</via>", "https://m/msmq/q"),
        ("<via>MSMQ:DIRECT=OS:m\\private$\\q</via>", "DIRECT=OS:m\\private$\\q"),
        ("<via></via>", None),
        ("<via/>", None),
        ("<via>MSMQ:</via>", None),
        ("<via>ftp://m/q</via>", None),
    ],
)
def test_via(via, expected):
    """Appendix A <9>: Windows takes <via/> and refuses <via></via>; both mean none here."""
    assert read(GOOD, "<id>", f"<rev>{via}</rev><id>").response_queue == expected


def test_rev_needs_exactly_one_via_and_may_stand_anywhere():
    refused(GOOD, "<id>", "<rev/><id>")
    refused(GOOD, "<id>", "<rev><via/><via/></rev><id>")
    assert (
        read(GOOD, "</path>", "<rev><via>http://m/msmq/q</via></rev></path>").response_queue
        == "http://m/msmq/q"
    )


def test_what_is_ignored():
    """2.2.4.5, 2.2.5.1.3 and whatever else SRMP does not know."""
    extended = envelope(
        path=PATH.replace(
            "</path>", "<fwd/><from>x</from><relatesTo/><fault><code>1</code></fault></path>"
        ),
        properties=PROPERTIES.replace(
            "</properties>", "<inReplyTo>x</inReplyTo><inReplyTo><y/></inReplyTo></properties>"
        ),
        between='<services se:mustUnderstand="1"><new/></services>',
        msmq=MSMQ.replace("<App>", "<New>1</New><App>"),
        after='<unknown><deep/></unknown><durable/><x:y xmlns:x="urn:x"/>',
    )
    assert read(extended) == read(GOOD)
    assert read(GOOD, "</se:Envelope>", '<x:after xmlns:x="urn:x"/></se:Envelope>') == read(GOOD)
    assert read(GOOD, ' se:mustUnderstand="1"', "") == read(GOOD), (
        "the mark is the sender's duty, not a reason to lose a message"
    )


def test_a_soap_body_is_shown_and_not_refused():
    """2.2.2 says it MUST be empty and ignored; MSMQ's API lets applications fill it."""
    for body in (
        "<a/>",
        'text &amp; <m:Order xmlns:m="urn:m">\r\n<m:Id> 3 </m:Id></m:Order> <!-- c --><b>></b>',
        "<![CDATA[x]]>",
    ):
        assert read(
            GOOD, "<se:Body></se:Body>", f"<se:Body a='>'>{body}</se:Body>"
        ).soap_body == body.replace("\r\n", "\n")
    prefixed = '<?xml version="1.0"?>\n' + GOOD.decode().replace("se:", "S:").replace(
        "xmlns:se", "xmlns:S"
    )
    assert read(prefixed.replace("<S:Body></S:Body>", "<S:Body >ü</S:Body\n>")).soap_body == "ü"
    assert (
        read(
            "\ufeff" + GOOD.decode().replace("<se:Body></se:Body>", "<se:Body>x</se:Body>")
        ).soap_body
        == "x"
    )
    for empty in ("<se:Body/>", "<se:Body> \r\n</se:Body>", "<se:Body><!-- --></se:Body>"):
        assert read(GOOD, "<se:Body></se:Body>", empty).soap_body in (None, "<!-- -->")


def test_services():
    message = read(
        envelope(
            between='<services se:mustUnderstand="1"><durable></durable>'
            "<deliveryReceiptRequest><sendTo>\n http://a/msmq/r </sendTo></deliveryReceiptRequest>"
            "<commitmentReceiptRequest><positiveOnly >x</positiveOnly><sendTo>file:///etc/passwd</sendTo>"
            "</commitmentReceiptRequest></services>"
        )
    )
    assert message.durable
    assert message.delivery == "recoverable"
    assert message.delivery_receipt_to == "http://a/msmq/r"
    assert message.commitment_receipt_to == "file:///etc/passwd", (
        "kept as text; the allow-list decides whether it is called"
    )
    assert (message.commitment_positive, message.commitment_negative) == (True, False)


@pytest.mark.parametrize("asked", ["", "<positiveOnly/>", "<negativeOnly/>"])
def test_each_child_of_services_is_optional(asked):
    message = read(
        envelope(
            between='<services se:mustUnderstand="1"><commitmentReceiptRequest>'
            f"<sendTo>http://a/msmq/r</sendTo>{asked}</commitmentReceiptRequest></services>"
        )
    )
    assert not message.durable
    assert message.delivery_receipt_to is None
    assert message.commitment_receipt_to == "http://a/msmq/r"
    assert message.commitment_positive == (asked == "<positiveOnly/>")
    assert message.commitment_negative == (asked == "<negativeOnly/>")


@pytest.mark.parametrize("request_", ["deliveryReceiptRequest", "commitmentReceiptRequest"])
@pytest.mark.parametrize(
    "content", ["", "<sendTo/>", "<sendTo> </sendTo>", "<sendTo>a</sendTo><sendTo>b</sendTo>"]
)
def test_a_request_needs_an_address(request_, content):
    refused(
        envelope(
            between=f'<services se:mustUnderstand="1"><{request_}>{content}</{request_}></services>'
        )
    )


@pytest.mark.parametrize("name", ["stream", "Stream"])
def test_both_spellings_of_stream(name):
    """The text has <stream>, all examples <Stream>."""
    stream = read(
        envelope(between=STREAM.replace("Stream ", f"{name} ").replace("/Stream", f"/{name}"))
    ).stream
    assert stream == StreamPosition(
        StreamId("2744e4e1-2b48-43e8-b441-42745f280d53", 4839986701558349830), 2, 1
    )


def test_an_absent_previous_is_one_less():
    """3.1.1.2 as printed, "<previous> - 1", says nothing."""
    stream = read(
        envelope(
            between=STREAM.replace("<previous>1</previous>", "").replace("<current>2", "<current>7")
        )
    ).stream
    assert stream is not None
    assert stream.previous == 6


def test_a_stream_message_without_durable_is_tolerated():
    """2.2.5.3 requires <durable/>; the document's own 4.4 has none."""
    message = read(envelope(between=STREAM))
    assert not message.durable
    assert message.delivery == "transactional"


@pytest.mark.parametrize(
    "start",
    [
        "<start/>",
        "<start><sendReceiptsTo/></start>",
        "<start><sendReceiptsTo> \n</sendReceiptsTo></start>",
        "<start>http://a/b</start>",
    ],
)
def test_start_needs_an_address(start):
    refused(envelope(between=STREAM.replace("</Stream>", f"{start}</Stream>")))


@pytest.mark.parametrize(
    ("content", "url"),
    [
        ("http://m/msmq/q?SenderStream=x", "http://m/msmq/q?SenderStream=x"),
        ("\n\thttp://m/msmq/q \r\n", "http://m/msmq/q"),
        ("\r\n http://m/msmq/q<b>SenderStream=x</b>\r\n", "http://m/msmq/q?SenderStream=x"),
        (
            ' http://m/msmq/q<x:b xmlns:x="u"> SenderStream=x </x:b>',
            "http://m/msmq/q?SenderStream=x",
        ),
    ],
)
def test_send_receipts_to(content, url):
    stream = read(
        envelope(
            between=STREAM.replace(
                "</Stream>", f"<start><sendReceiptsTo>{content}</sendReceiptsTo></start></Stream>"
            )
        )
    ).stream
    assert stream is not None
    assert stream.start
    assert stream.send_receipts_to == url


@pytest.mark.parametrize(
    "content",
    [
        "http://m/q<i>SenderStream=x</i>",
        "http://m/q<b>other</b>",
        "http://m/q<b>SenderStream=x</b>y",
        "http://m/q?a<b>SenderStream=x</b>",
        "<b>SenderStream=x</b>",
        "http://m/q<b>SenderStream=x<c/></b>",
        "http://m/q<b>SenderStream=x</b><b/>",
    ],
)
def test_only_the_documents_misprint_is_mended(content):
    refused(
        envelope(
            between=STREAM.replace(
                "</Stream>", f"<start><sendReceiptsTo>{content}</sendReceiptsTo></start></Stream>"
            )
        )
    )


@pytest.mark.parametrize(
    "stream_id",
    [
        "",
        GUID,
        f"uid:{GUID}",
        f"{GUID}\\1",
        f"UID:{GUID}\\1",
        f"uid:{GUID}/1",
        f"uid:{GUID}\\",
        f"uid:{GUID}\\-1",
        f"uuid:{GUID}\\1",
        "uid:x\\1",
        f"uid:{GUID}\\18446744073709551616",
        f"uid:{GUID}\\1\\1",
    ],
)
def test_a_stream_id_that_is_none(stream_id):
    good = "uid:2744e4e1-2b48-43e8-b441-42745f280d53\\4839986701558349830"
    refused(envelope(between=STREAM), good, stream_id)
    refused(
        envelope(
            between=f"<streamReceipt><streamId>{stream_id}</streamId><lastOrdinal>1</lastOrdinal></streamReceipt>"
        )
    )


DELIVERY = (
    f"<deliveryReceipt><receivedAt>20070719T032454</receivedAt><id>uuid:3@{GUID}</i"
    "d></deliveryReceipt>"
)
COMMITMENT = (
    "<commitmentReceipt><decidedAt>20070719T032454</decidedAt><decision>negative</decision>"
    f"<id>uuid:3@{GUID}</id></commitmentReceipt>"
)
STREAM_RECEIPT = (
    f"<streamReceipt><streamId>uid:{GUID}\\5</streamId><lastOrdinal>0</lastOrdinal></streamReceipt>"
)


def test_kinds_of_receipts():
    at = parse_date("20070719T032454")
    stream_id = StreamId(GUID, 5)
    assert read(envelope(between=DELIVERY)).receipt == Receipt("delivery", GUID, 3, at)
    assert read(envelope(between=COMMITMENT)).receipt == Receipt(
        "commitment", GUID, 3, at, "negative"
    )
    assert read(envelope(between=STREAM_RECEIPT)).receipt == Receipt(
        "stream", stream_id=stream_id, last_ordinal=0
    )
    final = Receipt("final_stream", GUID, 3, at, "negative", stream_id, 0)
    assert read(envelope(between=STREAM_RECEIPT + COMMITMENT)).receipt == final
    assert read(envelope(between=COMMITMENT + STREAM_RECEIPT)).receipt == final
    for pair in (DELIVERY + COMMITMENT, DELIVERY + STREAM_RECEIPT):
        assert "3.1.5.1.5" in _section(envelope(between=pair))


def _section(xml: bytes) -> str:
    with pytest.raises(RemoteProtocolError) as caught:
        read(xml)
    return caught.value.section


@pytest.mark.parametrize("receipt", [DELIVERY, COMMITMENT, STREAM_RECEIPT])
def test_receipts_need_all_they_have(receipt):
    for element in re.findall(r"<(\w+)>[^<]+<", receipt):
        refused(envelope(between=re.sub(f"<{element}>.*?</{element}>", "", receipt)))
        refused(
            envelope(
                between=re.sub(f"<{element}>.*?</{element}>", f"<{element}>x</{element}>", receipt)
            )
        )


def test_flags_by_presence():
    everything = (
        MSMQ.replace(
            "<Correlation>", "<Journal ></Journal><Deadletter>no</Deadletter><Correlation>"
        )
        .replace("<App>", "<Trace><!-- --></Trace><App>")
        .replace("<SourceQm", "<Eod><Last/><First></First></Eod><SourceQm")
    )
    message = read(envelope(msmq=everything))
    assert message.journal
    assert message.dead_letter
    assert message.trace
    assert message.first_in_transaction
    assert message.last_in_transaction
    assert read(GOOD)[24:29] == (False,) * 5


@pytest.mark.parametrize(
    ("field", "before", "flag"),
    [
        ("journal", "<Correlation>", "<Journal/>"),
        ("dead_letter", "<Correlation>", "<DeadLetter/>"),
        ("trace", "<App>", "<Trace/>"),
        ("first_in_transaction", "<SourceQm", "<Eod><First/></Eod>"),
        ("last_in_transaction", "<SourceQm", "<Eod><Last/></Eod>"),
    ],
)
def test_each_flag_stands_for_itself(field, before, flag):
    message = read(GOOD, before, flag + before)
    flags = ("journal", "dead_letter", "trace", "first_in_transaction", "last_in_transaction")
    assert [name for name in flags if getattr(message, name)] == [field]


def test_the_rest_of_msmq():
    rest = MSMQ.replace(
        "<App>",
        f"<ConnectorType>{GUID.upper()}</ConnectorType><Provider><Name>P</Name><Type>12</Type></Provider><Eod><ConnectorId>{GUID}</ConnectorId></Eod>"
        "<DestinationMqf>a b</DestinationMqf><AdminMqf> d </AdminMqf><ResponseMqf>\n "
        "c\n</ResponseMqf><App>",
    )
    message = read(envelope(msmq=rest))
    assert (message.connector_type, message.connector_qm) == (GUID, GUID)
    assert (message.provider_type, message.provider_name) == (12, "P")
    assert (message.destination_list, message.admin_list, message.response_list) == (
        ("a", "b"),
        ("d",),
        ("c",),
    )
    assert read(envelope(msmq=rest.replace("> d <", "> <"))).admin_list == ()
    half = read(envelope(msmq=MSMQ.replace("<App>", "<Provider><Name>P</Name></Provider><App>")))
    assert (half.provider_type, half.provider_name) == (None, "P"), (
        "3.1.7.2.4 leaves out a type of 0"
    )
    for element in ("ConnectorType", "SourceQmGuid"):
        refused(envelope(msmq=MSMQ.replace("<App>", f"<{element}>x</{element}><App>")))


def test_prefixes_are_the_senders_affair():
    xml = (
        GOOD.decode()
        .replace("<se:", "<soap:")
        .replace("</se:", "</soap:")
        .replace("xmlns:se", "xmlns:soap")
        .replace(" se:", " soap:")
    )
    assert read(xml) == read(GOOD)
    prefixed = MSMQ.replace("<", "<m:").replace("<m:/", "</m:").replace("xmlns=", "xmlns:m=")
    assert read(envelope(msmq=prefixed)) == read(GOOD)


def test_a_signature_is_noticed():
    signature = '<Signature xmlns="http://www.w3.org/2000/02/xmldsig#"><SignedInfo/></Signature>'
    assert read(envelope(after=signature)).signature == "unverified"
    assert read(envelope(after=signature.replace("2000/02", "2000/09"))).signature == "none", (
        "WS-Security's, not SRMP's"
    )
    refused(envelope(after=signature + signature))
