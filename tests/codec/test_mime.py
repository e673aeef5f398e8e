"""Multipart as Windows and others write it: read by lengths, [MC-MQSRM] 2.2.2 and RFC 2387."""

from __future__ import annotations

import pytest
from codec_kit import BOUNDARY, CONTENT_TYPE, GUID, envelope, multipart

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.srmp.codec.mime import boundary_of, split

XML = envelope()


def texts(content_type: bytes, content: bytes) -> tuple[bytes | None, ...]:
    parts = split(content_type, content)
    return tuple(None if span is None else content[slice(*span)] for span in parts[:3])


def test_envelope_body_extension():
    assert texts(CONTENT_TYPE, multipart(XML, b"body", b"extension")) == (
        XML,
        b"body",
        b"extension",
    )
    assert texts(CONTENT_TYPE, multipart(XML, None, b"extension")) == (XML, None, b"extension")
    assert texts(CONTENT_TYPE, multipart(XML, None)) == (XML, None, None)
    assert texts(CONTENT_TYPE, multipart(XML, b"")) == (XML, b"", None)


def test_the_extension_may_come_first():
    content = (
        multipart(XML, b"1", b"2")
        .replace(b"body@", b"x@")
        .replace(b"extension@", b"body@")
        .replace(b"x@", b"extension@")
    )
    assert texts(CONTENT_TYPE, content) == (XML, b"2", b"1")


def test_content_ids_are_handed_on_in_lower_case():
    parts = split(CONTENT_TYPE, multipart(XML, b"a", b"b").replace(b"Id: body@", b"Id: Body@X"))
    assert parts.body_id == b"body@x" + GUID.encode()
    assert parts.extension_id == b"extension@" + GUID.encode()


@pytest.mark.parametrize(
    "content_type",
    [b"text/xml", b"text/xml; charset=UTF-8", b'TEXT/XML;charset="utf-8"', b" text/xml "],
)
def test_plain_xml_is_all_envelope(content_type):
    assert split(content_type, XML) == ((0, len(XML)), None, None, b"", b"")


@pytest.mark.parametrize(
    "content_type",
    [
        b'multipart/related; type=text/xml; boundary="MSMQ - SOAP boundary, 292"',
        b'Multipart/Related;BOUNDARY="MSMQ - SOAP boundary, 292";type="text/xml";start="<a>"',
        b'multipart/related; boundary="MSMQ - SOAP boundary, 292";\r\n type=text/xml',
        b'multipart/related;\r\n\tboundary="MSMQ - SOAP boundary, 292";\r\n\ttype=text/xml',
        b'multipart/related; boundary="MSMQ - SOAP boundary, 292" ;',
    ],
)
def test_parameters_in_any_order_quoted_and_folded(content_type):
    assert boundary_of(content_type) == BOUNDARY
    assert texts(content_type, multipart(XML))[1] == b"First Message"


def test_an_unquoted_boundary():
    content = multipart(XML).replace(BOUNDARY, b"----=_Part_1.2")
    with pytest.raises(RemoteProtocolError):
        split(b"multipart/related; boundary=----=_Part_1.2", content)  # "=" is no token character
    assert texts(b'multipart/related; boundary="----=_Part_1.2"', content)[1] == b"First Message"
    assert (
        texts(b"multipart/related; boundary=abc", multipart(XML).replace(BOUNDARY, b"abc"))[1]
        == b"First Message"
    )


@pytest.mark.parametrize(
    "content_type",
    [
        b"",
        b"application/json",
        b"application/soap+xml",
        b"multipart/mixed; boundary=x",
        b"text/plain",
        b"text",
        b"\x00",
        b"a/b/c",
        b"multipart/related, boundary=x",
        b";",
    ],
)
def test_another_media_type_is_415(content_type):
    with pytest.raises(RemoteProtocolError) as caught:
        split(content_type, XML)
    assert caught.value.status_hint == 415


@pytest.mark.parametrize(
    "field", [b'multipart/related; a="', b"multipart/related; =b", b"text/xml; a=\r\nb"]
)
def test_a_malformed_parameter(field):
    with pytest.raises(RemoteProtocolError) as caught:
        split(field, XML)
    assert caught.value.status_hint == 400


def test_crlf_before_a_delimiter_is_accepted():
    """RFC 2046's layout, in which the lengths do not count it."""
    content = multipart(XML, b"body", b"extension").replace(b"--" + BOUNDARY, b"\r\n--" + BOUNDARY)
    assert texts(CONTENT_TYPE, content) == (XML, b"body", b"extension")


def test_a_body_that_ends_in_crlf_keeps_it():
    assert texts(CONTENT_TYPE, multipart(XML, b"body\r\n")) == (XML, b"body\r\n", None)
    assert texts(CONTENT_TYPE, multipart(XML, b"\r\n\r\n", b"\r\n")) == (XML, b"\r\n\r\n", b"\r\n")


@pytest.mark.parametrize("end", [b"", b"\r\n", b"\r\n\r\n", b" \r\n", b"\n"])
def test_line_ends_after_the_last_delimiter(end):
    assert texts(CONTENT_TYPE, multipart(XML).removesuffix(b"\r\n") + end)[1] == b"First Message"


@pytest.mark.parametrize(
    "end",
    [b"x", b"\r\nPOST / HTTP/1.1\r\n\r\n", b"\r\n--MSMQ - SOAP boundary, 292--\r\n", b" " * 100],
)
def test_anything_else_after_it_is_refused(end):
    with pytest.raises(RemoteProtocolError):
        split(CONTENT_TYPE, multipart(XML).removesuffix(b"\r\n") + end)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"Content-Type: application/octet-stream\r\n", b""),
        (b"Content-Type: application/octet-stream", b"content-TYPE:text/plain;charset=utf-16 "),
        (
            b"Content-Type: application/octet-stream",
            b"Content-Type: application/octet-stream;\r\n name=a",
        ),
        (b"Content-Length: 13", b"CONTENT-LENGTH:\t0013 "),
        (b"Content-Id: body@" + GUID.encode(), b"Content-ID: <BODY@x>"),
        (b"Content-Length: 13", b"X-Other: a:b\r\nContent-Length: 13"),
        (b"292\r\nContent-Type: app", b"292 \t\r\nContent-Type: app"),
    ],
)
def test_heads_that_are_not_windows(old, new):
    content = multipart(XML).replace(old, new)
    assert content != multipart(XML)
    assert texts(CONTENT_TYPE, content) == (XML, b"First Message", None)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"Content-Length: 13\r\n", b"Content-Length: 13\r\nContent-Length: 13\r\n"),
        (b"Content-Length: 13\r\n", b"Content-Length: 13\r\ncontent-length: 14\r\n"),
        (b"Content-Length: 13\r\n", b"Content-Length: 13\n"),
        (b"Content-Length: 13\r\n", b"Content-Length : 13\r\n"),
        (b"Content-Length: 13\r\n", b" Content-Length: 13\r\n"),
        (b"Content-Length: 13\r\n", b"Content-Length\r\n"),
        (b"Content-Length: 13\r\n", b"Content-Length: 1\r\n 3\r\n"),
        (b"Content-Type: application/octet-stream", b"Content-Type: octets"),
        (b"Content-Id: body@" + GUID.encode() + b"\r\n", b""),
        (b"Content-Id: body@" + GUID.encode(), b"Content-Id: body@"),
        (b"Content-Id: body@", b"Content-Id: other@"),
        (b"Content-Id: body@", b"Content-Id: body"),
        (b"Content-Type: text/xml; charset=UTF-8", b"Content-Type: application/xml"),
        (b"Content-Type: text/xml; charset=UTF-8\r\n", b""),
        (
            b"--MSMQ - SOAP boundary, 292\r\nContent-Type: text",
            b"preamble--MSMQ - SOAP boundary, 292\r\nContent-Type: text",
        ),
        (b"292--\r\n", b"292\r\n"),
        (b"292--\r\n", b""),
        (b"\r\n\r\nFirst", b"\r\nFirst"),
    ],
)
def test_heads_and_delimiters_that_are_wrong(old, new):
    content = multipart(XML).replace(old, new)
    assert content != multipart(XML)
    with pytest.raises(RemoteProtocolError) as caught:
        split(CONTENT_TYPE, content)
    assert caught.value.status_hint == 400


def test_a_multipart_without_a_part():
    for content in (b"", b"--%b--\r\n" % BOUNDARY, b"--%b" % BOUNDARY, b"\r\n"):
        with pytest.raises(RemoteProtocolError):
            split(CONTENT_TYPE, content)
