"""Each limit: one below passes, one above is refused by its name ([MC-MQSRM] names none; ours are in srmp/limits.py)."""

from __future__ import annotations

import tracemalloc

import pytest
from codec_kit import BOUNDARY, CONTENT_TYPE, envelope, multipart

from srmp_spark.errors import LimitExceededError
from srmp_spark.srmp import limits
from srmp_spark.srmp.codec.decoder import decode
from srmp_spark.srmp.codec.http_head import check_target, content_type_of


def exceeded(
    name: str, content: bytes, content_type: bytes = CONTENT_TYPE, status: int = 400
) -> None:
    with pytest.raises(LimitExceededError) as caught:
        decode(content_type, content)
    assert caught.value.name == name
    assert caught.value.limit == getattr(limits, name)
    assert caught.value.got > caught.value.limit
    assert caught.value.status_hint == status


def padded(length: int) -> bytes:
    """An envelope of exactly ``length`` bytes."""
    xml = envelope()
    return xml.replace(b"mqsender label", b"mqsender label" + b"x" * (length - len(xml)))


def test_envelope():
    assert decode(CONTENT_TYPE, multipart(padded(limits.ENVELOPE_MAX)))
    assert decode(b"text/xml", padded(limits.ENVELOPE_MAX))
    exceeded("ENVELOPE_MAX", multipart(padded(limits.ENVELOPE_MAX + 1)))
    exceeded("ENVELOPE_MAX", padded(limits.ENVELOPE_MAX + 1), b"text/xml")


def test_body_is_the_only_413():
    assert (
        len(decode(CONTENT_TYPE, multipart(envelope(), bytes(limits.BODY_MAX))).body)
        == limits.BODY_MAX
    )
    exceeded("BODY_MAX", multipart(envelope(), bytes(limits.BODY_MAX + 1)), status=413)
    exceeded("BODY_MAX", multipart(envelope(), bytes(limits.BODY_MAX), b"x"), status=413)
    exceeded("BODY_MAX", multipart(envelope(), None, bytes(limits.BODY_MAX + 1)), status=413)


def test_the_largest_message_fits_the_content():
    content = multipart(padded(limits.ENVELOPE_MAX), bytes(limits.BODY_MAX - 5), bytes(5))
    assert len(content) < limits.CONTENT_MAX
    assert decode(CONTENT_TYPE, content).extension == bytes(5)


def test_parts():
    exceeded(
        "PARTS_MAX",
        multipart(envelope(), b"a", b"b").replace(b"--%b--" % BOUNDARY, b"--%b\r\n" % BOUNDARY),
    )


def test_head_of_a_part():
    def with_field(field: bytes) -> bytes:
        return multipart(envelope()).replace(b"Content-Id:", field + b"\r\nContent-Id:")

    assert decode(CONTENT_TYPE, with_field(b"X: " + b"x" * 3_900))
    with pytest.raises(Exception, match="PART_HEAD_MAX"):
        decode(CONTENT_TYPE, with_field(b"X: " + b"x" * limits.PART_HEAD_MAX))
    lines = b"\r\n".join(b"X%d: x" % number for number in range(limits.PART_HEAD_LINES_MAX))
    exceeded("PART_HEAD_LINES_MAX", with_field(lines))
    assert decode(CONTENT_TYPE, with_field(lines.partition(b"X29")[0].rstrip()))


def test_content_type():
    exceeded(
        "CONTENT_TYPE_MAX",
        multipart(envelope()),
        CONTENT_TYPE + b"; x=" + b"x" * limits.CONTENT_TYPE_MAX,
    )
    assert decode(CONTENT_TYPE + b"; x=" + b"x" * 900, multipart(envelope()))


@pytest.mark.parametrize("length", [1, 70])
def test_boundary(length):
    boundary = b"b" * length
    content = multipart(envelope()).replace(BOUNDARY, boundary)
    assert decode(b'multipart/related; boundary="%b"' % boundary, content)
    assert decode(b"multipart/related; boundary=%b" % boundary, content)


@pytest.mark.parametrize("place", ["after", "body"])
def test_depth(place):
    outer = 2  # Envelope and Header, or Envelope and Body
    for levels, fits in ((limits.DEPTH_MAX - outer, True), (limits.DEPTH_MAX - outer + 1, False)):
        nested = "<a>" * levels + "</a>" * levels
        xml = (
            envelope(after=nested)
            if place == "after"
            else envelope(body=f"<se:Body>{nested}</se:Body>")
        )
        if fits:
            assert decode(b"text/xml", xml)
        else:
            exceeded("DEPTH_MAX", xml, b"text/xml")


def test_depth_of_flags_and_unknown_children():
    nested = "<a>" * 16 + "</a>" * 16
    for xml in (
        envelope().replace(b"<App>", f"<Journal>{nested}</Journal><App>".encode()),
        envelope().replace(b"<App>", f"{nested}<App>".encode()),
        envelope(
            after=f'<Signature xmlns="http://www.w3.org/2000/02/xmldsig#">{nested}</Signature>'
        ),
        envelope().replace(
            b"</se:Envelope>", f'<x xmlns="urn:x">{nested}</x></se:Envelope>'.encode()
        ),
    ):
        exceeded("DEPTH_MAX", xml, b"text/xml")


def test_elements():
    own = envelope().count(b"</")
    assert decode(b"text/xml", envelope(after="<a/>" * (limits.ELEMENTS_MAX - own)))
    exceeded("ELEMENTS_MAX", envelope(after="<a/>" * (limits.ELEMENTS_MAX - own + 1)), b"text/xml")


def test_attributes():
    def attributes(count: int) -> str:
        return "".join(f" a{number}=''" for number in range(count))

    assert decode(b"text/xml", envelope(after=f"<a{attributes(limits.ATTRIBUTES_MAX)}/>"))
    exceeded(
        "ATTRIBUTES_MAX",
        envelope(after=f"<a{attributes(limits.ATTRIBUTES_MAX + 1)}/>"),
        b"text/xml",
    )
    assert decode(b"text/xml", envelope(after=f"<a a='{'x' * limits.ATTRIBUTE_LENGTH_MAX}'/>"))
    for quote in "'\"":
        long = f"<a a = {quote}{'x' * (limits.ATTRIBUTE_LENGTH_MAX + 1)}{quote}/>"
        exceeded("ATTRIBUTE_LENGTH_MAX", envelope(after=long), b"text/xml")


def test_what_only_looks_like_a_limit_passed():
    """The cheap counts are over bytes; texts full of the same bytes are no elements and no attributes."""
    assert (
        decode(b"text/xml", envelope().replace(b"mqsender label", b"a=b" * 1_000)).label
        == "a=b" * 1_000
    )
    assert decode(b"text/xml", envelope().replace(b"mqsender label", b"='" + b"x" * 2_000))
    assert decode(b"text/xml", envelope(after="<!--" + "<a>" * 2_500 + "-->"))


def test_target():
    assert check_target(b"/msmq/orders?" + b"x" * (limits.TARGET_MAX - 13)) == "orders"
    with pytest.raises(LimitExceededError) as caught:
        check_target(b"/msmq/orders?" + b"x" * (limits.TARGET_MAX - 12))
    assert (caught.value.name, caught.value.status_hint) == ("TARGET_MAX", 414)


def test_content_type_is_measured_after_unfolding():
    """A fold of any length is one blank of the limit."""
    beginning = b"text/xml;" + b"\r\n" + b" " * 500 + b"x="
    shown = content_type_of(b"POST / HTTP/1.1\r\nContent-Type: " + beginning + b"\r\n\r\n")
    room = limits.CONTENT_TYPE_MAX - len(shown)
    for letters in (room, room + 1):
        field = content_type_of(
            b"POST / HTTP/1.1\r\nContent-Type: " + beginning + b"y" * letters + b"\r\n\r\n"
        )
        if letters == room:
            assert decode(field, envelope())
        else:
            exceeded("CONTENT_TYPE_MAX", envelope(), field)


def test_names_of_strangers_are_forgotten():
    """Why the parser is expat: libxml2 would keep each of these names for the life of the process."""

    def strangers(first: int) -> None:
        for number in range(first, first + 60):
            names = "".join(f"<n{number}_{element}{'x' * 20}/>" for element in range(300))
            decode(b"text/xml", envelope(after=names))

    strangers(0)
    tracemalloc.start()
    try:
        strangers(1_000)
        assert tracemalloc.get_traced_memory()[0] < 3_000_000, (
            "only the learned layouts may stay, each below 8 KB"
        )
    finally:
        tracemalloc.stop()
