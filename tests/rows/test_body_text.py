"""body_text by body type: what the sender said the body is, never a guess where it said anything."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srmp_spark.rows.body_text import body_of, body_text, is_plain_text
from tests.kit.xml_formatter import xml_string

XML_FORMATTER = '<?xml version="1.0"?>\r\n<string>Tom &amp; Jerry &lt;3 &#xE9;</string>'


def test_a_com_string_is_utf_16() -> None:
    """[MC-MQSRM] 4.5: BodyType 8 and the 20 bytes of "ardenwhite"."""
    body = "ardenwhite".encode("utf-16-le")
    assert len(body) == 20
    assert body_text(8, body) == "ardenwhite"
    assert body_text(31, "Größe 💶\0".encode("utf-16-le")) == "Größe 💶"


def test_an_ansi_string() -> None:
    assert body_text(30, b"order 7\0") == "order 7"
    assert body_text(30, "Größe".encode()) == "Größe"
    assert body_text(30, "Größe".encode("cp1252")) == "Größe"


@settings(max_examples=50)
@given(st.sampled_from([8, 30, 31]), st.text(st.characters(exclude_categories=["Cs", "Cc"])))
def test_what_is_written_for_a_text_is_read_as_that_text(body_type: int, text: str) -> None:
    assert body_text(body_type, body_of(body_type, text)) == text
    assert body_of(8, "ardenwhite") == "ardenwhite".encode("utf-16-le"), (
        "[MC-MQSRM] 4.5: no NUL at the end"
    )


@pytest.mark.parametrize(("body_type", "body"), [(8, b"odd"), (31, b"\x00\xd8"), (30, b"\x81\xff")])
def test_a_broken_string_is_no_text(body_type: int, body: bytes) -> None:
    assert body_text(body_type, body) is None


def test_the_xml_formatter_writes_a_document() -> None:
    assert body_text(0, XML_FORMATTER.encode()) == XML_FORMATTER
    assert xml_string(XML_FORMATTER) == "Tom & Jerry <3 é"
    assert xml_string('<?xml version="1.0"?>\n<string />') == ""
    assert xml_string("<order><string>1</string></order>") is None
    assert xml_string("&amp;lt;".join(("<string>", "</string>"))) == "&lt;"


def test_a_document_says_its_encoding() -> None:
    text = '<?xml version="1.0" encoding="windows-1252"?><o>Größe</o>'
    assert body_text(0, text.encode("cp1252")) == text
    assert body_text(0, b"\xef\xbb\xbf<o/>") == "<o/>"
    assert body_text(0, b"\xff\xfe" + "<o>ö</o>".encode("utf-16-le")) == "<o>ö</o>"
    assert (
        body_text(0, b'<?xml version="1.0" encoding="idna"?><o/>')
        == '<?xml version="1.0" encoding="idna"?><o/>'
    )


def test_an_undeclared_body_is_text_if_it_decodes() -> None:
    assert body_text(0, b"First Message") == "First Message"
    assert body_text(0, b"") == ""
    assert body_text(0, b"\x89PNG\r\n") is None
    assert body_text(0, b"\x08\x01\x12\x03abc") is None, (
        "a serialised record whose bytes happen to be ASCII"
    )


def test_the_binary_formatter_is_never_read() -> None:
    """Deserialising it would run what the sender wrote."""
    assert body_text(768, b"\x00\x01\x00\x00\x00\xff\xff\xff\xff") is None


@pytest.mark.parametrize("body_type", [1, 2, 3, 5, 7, 11, 65, 4113, 8209, 2**63])
def test_numbers_and_arrays_are_no_text(body_type: int) -> None:
    assert body_text(body_type, b"1234") is None


@settings(max_examples=200)
@given(
    st.lists(
        st.one_of(st.binary(max_size=12), st.text(max_size=8).map(str.encode)),
        min_size=1,
        max_size=5,
    )
)
def test_the_short_way_for_whole_batches_agrees(bodies: list[bytes]) -> None:
    """Where is_plain_text holds, each body's text is its bytes as UTF-8, or it is no text."""
    if is_plain_text(bodies):
        for body in bodies:
            try:
                assert body_text(0, body) == body.decode()
            except UnicodeDecodeError:
                assert body_text(0, body) is None


@settings(max_examples=100)
@given(st.integers(0, 2**64 - 1), st.binary(max_size=40))
def test_no_body_raises(body_type: int, body: bytes) -> None:
    text = body_text(body_type, body)
    assert text is None or isinstance(text, str)
