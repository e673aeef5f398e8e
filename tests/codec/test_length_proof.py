"""What Windows puts on the wire, proved by the lengths that [MC-MQSRM] chapter 4 prints.

The document prints its examples with white space for the reader's sake, but the lengths are those of the wire. They leave
no choice: parts are glued without CRLF before a delimiter, one CRLF ends the message, and the envelope is one line without
declaration. A reader after RFC 2046 finds one part here, with the body swallowed into the XML; ours goes by the lengths.
"""

from __future__ import annotations

import email

import pytest
from codec_kit import declared_lengths, envelope_of, sample

from srmp_spark.srmp.codec.mime import split

CHAPTER_4 = [
    # section, Content-Length of the POST, of the envelope, of the body, boundary
    ("4.1", 906, 619, 13, "MSMQ - SOAP boundary, 53287"),
    ("4.2", 1273, 775, 223, "MSMQ - SOAP boundary, 26500"),
    ("4.3", 1553, 1233, 45, "MSMQ - SOAP boundary, 95692"),
    ("4.4, first", 1750, 1465, 13, "MSMQ - SOAP boundary, 1672"),
    ("4.4, second", 1500, 1220, 9, "MSMQ - SOAP boundary, 1672"),
    ("4.4, third", 1524, 1240, 12, "MSMQ - SOAP boundary, 1672"),
    ("4.5", 1067, 779, 20, "MSMQ - SOAP boundary, 292"),
]


def glue(boundary: str, envelope: int, body: int, before_delimiter: str, at_end: str) -> int:
    """How long the content is when the parts are put together so."""
    return len(
        f"--{boundary}\r\nContent-Type: text/xml; charset=UTF-8\r\nContent-Length: "
        f"{envelope}\r\n\r\n{'e' * envelope}"
        f"{before_delimiter}--{boundary}\r\nContent-Type: "
        f"application/octet-stream\r\nContent-Length: {body}\r\n"
        f"Content-Id: body@00000000-0000-0000-0000-000000000000\r\n\r\n{'b' * body}"
        f"{before_delimiter}--{boundary}--{at_end}"
    )


@pytest.mark.parametrize(("section", "total", "envelope", "body", "boundary"), CHAPTER_4)
def test_no_crlf_before_a_delimiter_and_one_after_the_last(
    section, total, envelope, body, boundary
):
    assert glue(boundary, envelope, body, "", "\r\n") == total
    assert glue(boundary, envelope, body, "\r\n", "\r\n") == total + 4, (
        "RFC 2046's layout fits none of the examples"
    )
    assert glue(boundary, envelope, body, "", "") == total - 2


def test_the_printed_lengths_are_those_of_the_samples():
    printed = {
        "mqsrm_4.1_simple_as_printed.txt": 0,
        "mqsrm_4.3_receipt_request_as_printed.txt": 2,
        "mqsrm_4.4_stream_1_as_printed.txt": 3,
        "mqsrm_4.4_stream_2_as_printed.txt": 4,
        "mqsrm_4.4_stream_3_as_printed.txt": 5,
        "mqsrm_4.5_pgm_bytes_reconstructed.bin": 6,
    }
    for name, row in printed.items():
        assert declared_lengths(name) == list(CHAPTER_4[row][1:4])


def test_the_envelope_is_one_line_without_declaration():
    flat = envelope_of("mqsrm_4.5_pgm_bytes_reconstructed.bin")
    assert len(flat) == 779
    assert b"\n" not in flat
    assert b"> <" not in flat
    assert not flat.startswith(b"<?xml")
    assert len(envelope_of("mqsrm_4.2_envelope_flat.xml")) == 775 - 1, "one byte is unexplained"
    for name, missing in (("delivery", 2), ("commitment", 2)):
        receipt = f"mqsrm_4.3_{name}_receipt_flat.txt"
        assert declared_lengths(receipt) == [len(sample(receipt).content) + missing]


def test_the_pgm_example_is_exact_in_both_lengths():
    post = sample("mqsrm_4.5_pgm_bytes_reconstructed.bin")
    assert len(post.content) == 1067
    parts = split(post.content_type, post.content)
    assert parts.envelope[1] - parts.envelope[0] == 779
    assert parts.body is not None
    assert post.content[slice(*parts.body)] == "ardenwhite".encode("utf-16-le")
    assert parts.extension is None


def test_a_reader_after_rfc_2046_finds_one_part():
    """Why mime.py is not Python's ``email``."""
    post = sample("mqsrm_4.5_pgm_bytes_reconstructed.bin")
    message = email.message_from_bytes(
        b"Content-Type: " + post.content_type + b"\r\n\r\n" + post.content
    )
    assert len(message.get_payload()) == 1
