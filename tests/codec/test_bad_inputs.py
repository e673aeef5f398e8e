"""The bad inputs that end in the codec, by their number in the list of 33, each with its exact bytes and expected answer.

Here are 1-15: what is no SRMP message at all. 19-32 are in test_bad_values.py; 16-18 are HTTP's.
"""

from __future__ import annotations

import time

import pytest
from codec_kit import (
    BOUNDARY,
    CONTENT_TYPE,
    GOOD,
    GUID,
    MSMQ,
    PATH,
    PROPERTIES,
    STREAM,
    accepted,
    envelope,
    multipart,
    refused,
    refused_envelope,
)

from srmp_spark.errors import LimitExceededError
from srmp_spark.names import NULL_GUID
from srmp_spark.srmp.codec.decoder import decode


def test_the_good_one_is_good():
    assert accepted(GOOD).body == b"First Message"


@pytest.mark.parametrize(
    "prolog",
    [
        b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>',
        b'<!DOCTYPE a SYSTEM "http://169.254.169.254/a.dtd">',
        b'<?xml version="1.0"?><!DOCTYPE a>',
        b"<?xml version='1.0' encoding='UTF-8'?>\r\n<!-- - -->\r\n<!DOCTYPE a>",
        b"\xef\xbb\xbf<!DOCTYPE a>",
        b" <!DOCTYPE a>",
    ],
)
def test_1_any_document_type(prolog):
    assert "document type" in str(refused_envelope(prolog + GOOD))


def test_1_an_external_entity_in_a_label():
    xml = b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>' + GOOD.replace(
        b"mqsender label", b"&x;"
    )
    refused_envelope(xml)
    refused_envelope(GOOD.replace(b"mqsender label", b"&x;"))  # not declared at all


def test_2_an_entity_bomb():
    entities = b"".join(b'<!ENTITY l%d "%b">' % (n + 1, b"&l%d;" % n * 10) for n in range(10))
    xml = (
        b'<!DOCTYPE a [<!ENTITY l0 "lol">'
        + entities
        + b"]>"
        + GOOD.replace(b"mqsender label", b"&l10;")
    )
    started = time.thread_time()
    refused_envelope(xml)
    assert time.thread_time() - started < 0.05


@pytest.mark.parametrize("depth", [17, 300, 4_600])
def test_3_nested_elements(depth):
    nested = "<a>" * depth + "</a>" * depth
    for xml in (
        envelope(after=nested),
        envelope(body=f"<se:Body>{nested}</se:Body>"),
        envelope(between=f"<Stream>{nested}</Stream>"),
    ):
        refused_envelope(xml)


def test_3_ten_thousand_nested_elements_do_not_fit():
    assert refused_envelope(envelope(after="<a>" * 10_000 + "</a>" * 10_000)).name == "ENVELOPE_MAX"
    refused(b"<a>" * 10_000 + b"</a>" * 10_000, b"text/xml")
    refused(b"<a>" * 20_000, b"text/xml")


def test_4_twenty_megabytes_of_label():
    error = refused_envelope(GOOD.replace(b"mqsender label", b"x" * 20_000_000))
    assert isinstance(error, LimitExceededError)
    assert error.name == "ENVELOPE_MAX"


@pytest.mark.parametrize(
    "xml",
    [
        b'<?xml version="1.0" encoding="UTF-16"?>' + GOOD,
        b'<?xml version="1.0" encoding="utf-7"?>' + GOOD,
        b"<?xml version='1.0' encoding='ISO-8859-1'?>" + GOOD,
        b'<?xml version="1.0" encoding="cp037"?>' + GOOD,
        GOOD.decode().encode("utf-16"),
        GOOD.decode().encode("utf-16-le"),
        GOOD.decode().encode("utf-16-be"),
        GOOD.decode().encode("utf-32"),
        GOOD.decode().encode("cp037"),
        b"+ADw-se:Envelope",
    ],
)
def test_5_another_encoding(xml):
    refused_envelope(xml)


@pytest.mark.parametrize(
    "prolog",
    [
        b"\xef\xbb\xbf",
        b'<?xml version="1.0" encoding="utf-8"?>\r\n',
        b'\xef\xbb\xbf<?xml version="1.0"?>',
    ],
)
def test_5_utf_8_with_mark_or_declaration_is_fine(prolog):
    xml = GOOD.replace(b"mqsender", "Grüße 😀".encode())
    assert accepted(prolog + xml) == accepted(xml)


@pytest.mark.parametrize("charset", [b"UTF-16", b"iso-8859-1", b'"us-ascii"'])
def test_5_another_charset_of_the_part(charset):
    refused(multipart(GOOD).replace(b"charset=UTF-8", b"charset=" + charset))
    refused(GOOD, b"text/xml; charset=" + charset)


@pytest.mark.parametrize(
    "bad",
    [
        b"\x00",
        b"\x01",
        b"\x08",
        b"\x0b",
        b"\x1b",
        b"\x1f",
        b"\xff",
        b"\xc3",
        b"\xc0\x80",
        b"\xed\xa0\x80",
        b"\xef\xbf\xbe",
        b"\xef\xbf\xbf",
        b"\xf4\x90\x80\x80",
        b"&#0;",
        b"&#1;",
        b"&#xD800;",
        b"&#xFFFE;",
    ],
)
def test_6_characters_that_xml_has_not(bad):
    refused_envelope(GOOD.replace(b"mqsender label", bad))
    refused_envelope(GOOD.replace(b"mqsender label", b"label" + bad + b"label"))


@pytest.mark.parametrize(
    "xml",
    [
        envelope(path=PATH + PATH),
        envelope(properties=PROPERTIES + PROPERTIES),
        envelope(msmq=MSMQ + MSMQ),
        envelope(between=STREAM + STREAM),
        envelope(
            between=STREAM + STREAM.replace("Stream ", "stream ").replace("/Stream", "/stream")
        ),
        envelope(path=PATH.replace("<id>", "<to>http://machine2/msmq/private$/other</to><id>")),
        envelope(path=PATH.replace("<id>", "<action>MSMQ:x</action><id>")),
        envelope(path=PATH.replace("</path>", f"<id>uuid:1@{GUID}</id></path>")),
        envelope(
            path=PATH.replace(
                "<id>", "<rev><via>http://a/msmq/b</via><via>http://a/msmq/c</via></rev><id>"
            )
        ),
        envelope(path=PATH.replace("<id>", "<rev><via/></rev><rev><via/></rev><id>")),
        envelope(
            properties=PROPERTIES.replace(
                "<sentAt>", "<expiresAt>20380119T031407</expiresAt><sentAt>"
            )
        ),
        envelope(msmq=MSMQ.replace("<App>", "<Class>1</Class><App>")),
        envelope(msmq=MSMQ.replace("<App>", "<Journal/><Journal/><App>")),
        envelope(msmq=MSMQ.replace("<App>", "<DeadLetter/><Deadletter/><App>")),
        envelope(between=STREAM.replace("<previous>", "<current>3</current><previous>")),
    ],
)
def test_7_twice(xml):
    assert "twice" in str(refused_envelope(xml))


@pytest.mark.parametrize(
    "xml",
    [
        envelope(path=PATH.replace("soap.org/rp/", "soap.org/rp")),
        envelope(path=PATH.replace(' xmlns="http://schemas.xmlsoap.org/rp/"', "")),
        envelope(
            properties='<x:properties xmlns:x="urn:x"'
            f"{PROPERTIES[len('<properties') : -len('</properties>')]}</x:prope"
            "rties>"
        ),
        envelope(msmq=MSMQ.replace("msmq.namespace.xml", "http://msmq.namespace.xml")),
        envelope(msmq=MSMQ.replace(' xmlns="msmq.namespace.xml"', "")),
        envelope(between=STREAM.replace("<Stream ", '<Stream xmlns="urn:x" ')),
        envelope(path=PATH.replace("<to>", '<to xmlns="urn:x">')),
        envelope(msmq=MSMQ.replace("<Class>", '<Class xmlns="">')),
        envelope(path="", body=f"<se:Body>{PATH}</se:Body>"),
        envelope(path="", properties=PROPERTIES.replace("<expiresAt>", f"{PATH}<expiresAt>")),
        envelope(path=f"<wrapper>{PATH}</wrapper>"),
        GOOD.replace(
            b"http://schemas.xmlsoap.org/soap/envelope/", b"http://www.w3.org/2003/05/soap-envelope"
        ),
        GOOD.replace(b"<se:Envelope ", b'<x:Envelope xmlns:x="urn:x" ').replace(
            b"</se:Envelope>", b"</x:Envelope>"
        ),
        GOOD.replace(b"<se:Header>", b'<x:Header xmlns:x="urn:x">').replace(
            b"</se:Header>", b"</x:Header>"
        ),
        GOOD.replace(b"<se:Header>", b"").replace(b"</se:Header>", b""),
        GOOD.replace(b"<se:Body></se:Body>", b""),
        GOOD.replace(b"<se:Body></se:Body>", b"").replace(
            b"<se:Header>", b"<se:Body></se:Body><se:Header>"
        ),
        GOOD.replace(b"<se:Body></se:Body>", b"<x/><se:Body></se:Body>"),
        GOOD.replace(b"<se:Body></se:Body>", b'<x:Body xmlns:x="urn:x"></x:Body>'),
        GOOD.replace(b"<se:Body></se:Body>", b"<se:Body></se:Body><se:Header></se:Header>"),
        GOOD.replace(b"<se:Body></se:Body>", b"<se:Body></se:Body><se:Body></se:Body>"),
    ],
)
def test_8_not_in_its_place_or_namespace(xml):
    refused_envelope(xml)


def test_9_a_header_entry_that_must_be_understood():
    refused_envelope(envelope(after='<x:pay xmlns:x="urn:x" se:mustUnderstand="1">5</x:pay>'))
    refused_envelope(envelope(between='<STREAM se:mustUnderstand="1"/>'))


@pytest.mark.parametrize(
    "attribute", ["", ' se:mustUnderstand="0"', ' mustUnderstand="1"', ' x:mustUnderstand="1"']
)
def test_9_any_other_is_ignored(attribute):
    assert accepted(
        envelope(after=f'<x:pay xmlns:x="urn:x"{attribute}><x:sum>5</x:sum></x:pay>')
    ) == accepted(GOOD)


@pytest.mark.parametrize(
    "length",
    [
        b"14",
        b"1000",
        b"9999999999",
        b"-13",
        b"+13",
        b"0x0d",
        b"00000000000000000013",
        b"13 13",
        b"",
        b"13.0",
        b"1e1",
    ],
)
def test_10_a_parts_length_that_is_too_large_or_no_number(length):
    refused(multipart(GOOD).replace(b"Content-Length: 13", b"Content-Length: " + length))


def test_10_a_parts_length_that_is_missing():
    refused(multipart(GOOD).replace(b"Content-Length: 13\r\n", b""))
    refused(multipart(GOOD).replace(b"Content-Length: %d\r\n" % len(GOOD), b""))


@pytest.mark.parametrize("length", [b"0", b"1", b"12"])
def test_11_a_parts_length_that_is_too_small(length):
    assert "no delimiter" in str(
        refused(multipart(GOOD).replace(b"Content-Length: 13", b"Content-Length: " + length))
    )


def test_11_the_envelopes_length():
    for wrong in (len(GOOD) - 1, len(GOOD) + 1, 0):
        refused(
            multipart(GOOD).replace(
                b"Content-Length: %d\r\n" % len(GOOD), b"Content-Length: %d\r\n" % wrong
            )
        )


def test_12_a_body_that_contains_the_boundary():
    body = (
        b"--" + BOUNDARY + b"--\r\n\r\n--" + BOUNDARY + b"\r\nContent-Type: text/xml\r\n\r\n" + GOOD
    )
    assert decode(CONTENT_TYPE, multipart(GOOD, body)).body == body
    assert decode(CONTENT_TYPE, multipart(GOOD, body, body)).extension == body


@pytest.mark.parametrize(
    "parameter",
    [
        b"",
        b"; boundary=",
        b'; boundary=""',
        b'; boundary="' + b"x" * 71 + b'"',
        b"; boundary=" + b"x" * 71,
        b'; boundary="MSMQ - SOAP\r\nboundary, 292"',
        b'; boundary="MSMQ - SOAP\r\n boundary, 292"',
        b'; boundary="MSMQ - SOAP boundary, 292',
        b'; boundary="MSMQ - SOAP boundary, 292""',
        b'; boundary="MSMQ\\" - SOAP boundary, 292"',
        b"; boundary='MSMQ - SOAP boundary, 292'",
        b"; boundary=MSMQ - SOAP boundary, 292",
        b'; boundary="MSMQ - SOAP boundary, 292 "',
        b'; boundary="a"; boundary="MSMQ - SOAP boundary, 292"',
        b'; boundary="MSMQ - SOAP boundary, 292"; BOUNDARY=a',
        b'; boundary="MSMQ\x00"',
        '; boundary="ü"'.encode(),
        b' boundary="MSMQ - SOAP boundary, 292"',
        b'; x="a"boundary="MSMQ - SOAP boundary, 292"',
    ],
)
def test_13_a_boundary_that_is_none(parameter):
    refused(multipart(GOOD), b"multipart/related" + parameter)


def test_14_ten_thousand_parts():
    part = (
        b"--%b\r\nContent-Type: text/plain\r\nContent-Length: 0\r\nContent-Id: %%b@x\r\n\r\n"
        % BOUNDARY
    )
    end = b"--%b--\r\n" % BOUNDARY
    start = multipart(GOOD, None).removesuffix(end)
    error = refused(start + part % b"body" + part % b"extension" + part % b"body" * 10_000 + end)
    assert isinstance(error, LimitExceededError)
    assert error.name == "PARTS_MAX"


def test_14_a_multipart_inside_and_an_encoded_body():
    refused(multipart(GOOD).replace(b"application/octet-stream", b"multipart/mixed; boundary=x"))
    for encoding in (b"base64", b"quoted-printable", b"gzip"):
        refused(
            multipart(GOOD).replace(
                b"Content-Id:", b"Content-Transfer-Encoding: " + encoding + b"\r\nContent-Id:"
            )
        )
    for encoding in (b"binary", b"7bit", b"8Bit"):
        fine = multipart(GOOD).replace(
            b"Content-Id:", b"Content-Transfer-Encoding: " + encoding + b"\r\nContent-Id:"
        )
        assert decode(CONTENT_TYPE, fine) == accepted(GOOD)


def test_15_two_bodies():
    assert "two parts" in str(refused(multipart(GOOD, b"a", b"b").replace(b"extension@", b"body@")))
    assert "two parts" in str(
        refused(multipart(GOOD, b"a", b"b").replace(b"Id: body@", b"Id: extension@"))
    )


def test_15_a_signature_that_names_another_part():
    def signed(reference: str) -> bytes:
        return envelope(
            after='<Signature xmlns="http://www.w3.org/2000/02/xmldsig#"><SignedInfo>'
            f'<Reference URI="cid:{reference}"><DigestValue>x</DigestValue></Reference></S'
            "ignedInfo></Signature>"
        )

    assert accepted(signed(f"body@{GUID}")).signature == "unverified"
    assert accepted(signed(f"BODY@{GUID.upper()}")).signature == "unverified"
    refused_envelope(signed(f"body@{NULL_GUID}"))
    refused(multipart(signed(f"extension@{NULL_GUID}"), b"a", b"b"))


def test_15_an_unsigned_message_may_name_its_parts_as_it_likes():
    """4.1 and 4.4 do: body@ff3af301-… in messages of other machines."""
    assert (
        decode(
            CONTENT_TYPE, multipart(GOOD).replace(b"body@" + GUID.encode(), b"<Body@anything>")
        ).body
        == b"First Message"
    )
