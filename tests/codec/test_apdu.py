"""An SRMP message as one APDU of PGM ([MC-MQSRM] 2.1.2, 4.5, appendix A <2>): its HTTP head is ignored."""

from __future__ import annotations

import pytest
from codec_kit import sample

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.message import Message
from srmp_spark.names import MulticastAddress
from srmp_spark.srmp.codec.apdu import HEAD_MAX, apdu_of, post_of
from srmp_spark.srmp.codec.decoder import decode
from srmp_spark.srmp.codec.http_head import content_type_of

ADDRESS = MulticastAddress("234.1.1.1", 8001)
NAME = "mqsrm_4.5_pgm_bytes_reconstructed.bin"


def example() -> bytes:
    return sample(NAME).head + sample(NAME).content


def read(apdu: bytes) -> Message:
    """What a reader of the stored message makes of it."""
    content_type, post, head_length = post_of(apdu, ADDRESS)
    assert content_type_of(post[:head_length]) == content_type
    return decode(content_type, post[head_length:])


def test_the_example_of_4_5_is_read() -> None:
    apdu = example()
    message = read(apdu)
    assert (message.destination, message.action) == (
        "MSMQ:MULTICAST=234.1.1.1:8001",
        "MSMQ:mqsender label",
    )
    assert message.body.decode("utf-16-le") == "ardenwhite"


def test_what_we_send_is_what_we_read_and_begins_as_in_4_5() -> None:
    message = read(example())
    apdu = apdu_of(message, ADDRESS)
    assert apdu.startswith(b"POST 234.1.1.1:8001 HTTP/1.1\r\nHost: 234.1.1.1:8001\r\n")
    assert read(apdu) == message
    empty = message._replace(body=b"")
    assert read(apdu_of(empty, ADDRESS)).body == b"", "an envelope alone is text/xml"


def content() -> bytes:
    return sample(NAME).content


@pytest.mark.parametrize(
    "head",
    [
        (
            b"POST /elsewhere HTTP/1.1\r\nContent-Type: image/png\r\nContent-Length: "
            b"7\r\nTransfer-Encoding: chunked\r\n\r\n"
        ),
        (
            b"POST 234.1.1.1:8001 HTTP/1.1\r\nVia: 1.1 srmp-x\r\nAuthorization: Bearer "
            b"x\r\nSrmp-Probe: 1\r\n\r\n"
        ),
        b"\x00\xff nothing that anybody could read\r\n\r\n",
        b"",
    ],
)
def test_nothing_in_the_head_is_believed(head: bytes) -> None:
    """<2> of 2.1.2: "In the case of PGM, the HTTP 1.1 header is ignored by MSMQ"."""
    message = read(head + content())
    assert message == read(example())


@pytest.mark.parametrize(
    "apdu",
    [
        b"", b"x", b"POST / HTTP/1.1\r\nHost: x\r\n", b"POST " + b"x" * HEAD_MAX + b"\r\n\r\n<a/>", b'--a"b\r\nx', b"--\r\n",
        b"<no envelope/>", b"--MSMQ - SOAP boundary, 1\r\nContent-Length: 99999999999\r\n\r\n", b"\r\n\r\n", b"--a\nb\r\n",
    ],
)  # fmt: skip
def test_what_is_no_message_is_the_senders_fault(apdu: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read(apdu)


@pytest.mark.parametrize(
    "text",
    [
        "234.1.1.1",
        "234.1.1.1:",
        "234.1.1.1:0",
        "234.1.1.1:65536",
        "10.0.0.1:1",
        "[ff02::1]:1",
        "x:1",
        "234.1.1.1:8001:1",
    ],
)
def test_what_is_no_multicast_address_says_what_one_looks_like(text: str) -> None:
    with pytest.raises(ValueError, match=r"write one like 234\.1\.1\.1:8001"):
        MulticastAddress.parse(text)
