"""``bodyFormat``: what is written is what .NET and COM write, and what our own reader reads back."""

from __future__ import annotations

from typing import get_args

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srmp_spark.rows.body_formats import BodyFormat, as_bodies, xml_document
from srmp_spark.rows.body_text import VT_BSTR, VT_EMPTY, body_text
from tests.kit.xml_formatter import xml_string

HEAD = '<?xml version="1.0"?>\r\n'


@pytest.mark.parametrize(
    ("text", "document"),
    [
        ("hello", "<string>hello</string>"),
        ("", "<string />"),
        (
            "Tom & Jerry <3 \"quoted\" 'too'",
            "<string>Tom &amp; Jerry &lt;3 \"quoted\" 'too'</string>",
        ),
        ("a > b", "<string>a &gt; b</string>"),
        ("two\r\nlines\tand a tab", "<string>two\r\nlines\tand a tab</string>"),
        ("é ✓ 𝄞", "<string>é ✓ 𝄞</string>"),
        ("\x01 and \x1f and \uffff", "<string>&#x1; and &#x1F; and &#xFFFF;</string>"),
        ("&amp;", "<string>&amp;amp;</string>"),
    ],
)
def test_xml_is_what_xml_message_formatter_writes(text: str, document: str) -> None:
    assert as_bodies(pa.array([text]), "xml").to_pylist() == [(HEAD + document).encode()]
    assert xml_document(text) == HEAD + document


@pytest.mark.parametrize("body_format", get_args(BodyFormat))
@given(
    texts=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=8),
    cut=st.integers(0, 8),
)
def test_our_reader_reads_it_back(body_format: BodyFormat, texts: list[str], cut: int) -> None:
    """Also from a slice of a column, whose buffers begin elsewhere."""
    bodies = as_bodies(pa.array(texts, pa.string())[cut:], body_format).to_pylist()
    if body_format == "raw":
        assert bodies == [text.encode() for text in texts[cut:]]
        return
    read = [body_text(VT_BSTR if body_format == "activex" else VT_EMPTY, body) for body in bodies]
    if body_format == "xml":
        read = [xml_string(text) if text is not None else None for text in read]
        assert read == texts[cut:]
        return
    # body_text takes one NUL at the end for the terminator that some senders write
    assert read == [text.removesuffix("\0") for text in texts[cut:]]


def test_a_column_that_is_all_ascii_is_widened_at_once() -> None:
    column = pa.array(["", "a", "order 1", ""] * 3)[1:10]
    assert as_bodies(column, "activex").to_pylist() == [
        text.encode("utf-16-le") for text in column.to_pylist()
    ]
