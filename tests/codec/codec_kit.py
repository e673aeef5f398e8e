"""What the codec's tests share: the saved samples, and a message whose every piece can be replaced."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.message import Message
from srmp_spark.srmp.codec.decoder import decode
from srmp_spark.srmp.codec.http_head import content_type_of

DATA = Path(__file__).parent.parent / "data" / "srmp"
GUID = "32221eda-9376-46df-b6ed-783091123831"
BOUNDARY = b"MSMQ - SOAP boundary, 292"
CONTENT_TYPE = b'multipart/related; boundary="MSMQ - SOAP boundary, 292"; type=text/xml'

WITH_ENVELOPE = sorted(
    path.name for path in DATA.iterdir() if b"</se:Envelope>" in path.read_bytes()
)
"""Every sample with an envelope in it."""


class Post(NamedTuple):
    head: bytes
    content: bytes

    @property
    def content_type(self) -> bytes:
        return content_type_of(self.head)


def sample(name: str) -> Post:
    """A saved POST, byte for byte."""
    head, blank, content = (DATA / name).read_bytes().partition(b"\r\n\r\n")
    return Post(head + blank, content)


def envelope_of(name: str) -> bytes:
    match = re.search(rb"<se:Envelope.*</se:Envelope>", (DATA / name).read_bytes(), re.DOTALL)
    assert match is not None
    return match[0]


def declared_lengths(name: str) -> list[int]:
    """The Content-Lengths as printed: of the POST, of the envelope, of the body."""
    return [
        int(number) for number in re.findall(rb"Content-Length: (\d+)", (DATA / name).read_bytes())
    ]


def with_true_lengths(name: str) -> Post:
    """A sample whose part lengths were printed for other white space: only they are corrected."""
    post = sample(name)
    boundary = re.search(rb'boundary="([^"]+)"', post.head)
    if boundary is None:
        return post
    pieces = post.content.split(b"--" + boundary[1])
    for number in (1, 2):
        head, blank, data = pieces[number].partition(b"\r\n\r\n")
        pieces[number] = (
            re.sub(rb"Content-Length: \d+", b"Content-Length: %d" % len(data), head) + blank + data
        )
    return Post(post.head, (b"--" + boundary[1]).join(pieces))


def multipart(
    envelope: bytes, body: bytes | None = b"First Message", extension: bytes | None = None
) -> bytes:
    """The content that Windows would send."""
    content = (
        b"--%b\r\nContent-Type: text/xml; charset=UTF-8\r\nContent-Length: %d\r\n\r\n"
        % (BOUNDARY, len(envelope))
        + envelope
    )
    for name, attachment in ((b"body", body), (b"extension", extension)):
        if attachment is not None:
            content += (
                b"--%b\r\nContent-Type: application/octet-stream\r\nContent-Length: "
                b"%d\r\nContent-Id: %b@%b\r\n\r\n%b"
                % (BOUNDARY, len(attachment), name, GUID.encode(), attachment)
            )
    return content + b"--%b--\r\n" % BOUNDARY


PATH = (
    '<path xmlns="http://schemas.xmlsoap.org/rp/" '
    'se:mustUnderstand="1"><action>MSMQ:mqsender label</action>'
    f"<to>http://machine2/msmq/private$/simpleq</to><id>uuid:4494@{GUID}</id></path>"
)
PROPERTIES = (
    '<properties se:mustUnderstand="1"><expiresAt>20380119T031407</expiresAt><sen'
    "tAt>20070608T023719</sentAt></properties>"
)
STREAM = (
    '<Stream se:mustUnderstand="1"><streamId>uid:2744e4e1-2b48-43e8-b441-42745f280d53\\483'
    "9986701558349830</streamId>"
    "<current>2</current><previous>1</previous></Stream>"
)
MSMQ = (
    '<Msmq xmlns="msmq.namespace.xml"><Class>0</Class><Priority>3</Priority>'
    "<Correlation>AAAAAAAAAAAAAAAAAAAAAAAAAAA=</Correlation>"
    f"<App>0</App><BodyType>8</BodyType><HashAlgorithm>32772</HashAlgorithm><SourceQmGuid>{GUID}</SourceQmGuid>"
    "<TTrq>20070612T023719</TTrq></Msmq>"
)


def envelope(
    path: str = PATH,
    properties: str = PROPERTIES,
    between: str = "",
    msmq: str = MSMQ,
    after: str = "",
    body: str = "<se:Body></se:Body>",
) -> bytes:
    """A good envelope in Windows' layout; give a piece to replace it."""
    return (
        '<se:Envelope xmlns:se="http://schemas.xmlsoap.org/soap/envelope/" xmlns="http://schemas.xmlsoap.org/srmp/"><se:Header>'
        f"{path}{properties}{between}{msmq}{after}</se:Header>{body}</se:Envelope>"
    ).encode()


GOOD = envelope()


def refused(
    content: bytes, content_type: bytes = CONTENT_TYPE, status: int = 400
) -> RemoteProtocolError:
    started = time.thread_time()
    with pytest.raises(RemoteProtocolError) as caught:
        decode(content_type, content)
    assert time.thread_time() - started < 0.5
    assert caught.value.status_hint == status
    assert len(str(caught.value)) < 400, "an error is one short line, never the payload"
    assert "\n" not in str(caught.value)
    return caught.value


def refused_envelope(xml: bytes | str) -> RemoteProtocolError:
    return refused(multipart(xml if isinstance(xml, bytes) else xml.encode()))


def accepted(xml: bytes) -> Message:
    return decode(CONTENT_TYPE, multipart(xml))
