"""Compare decoding a whole POST body with parsing its envelope alone.

The other side is ``lxml.etree.fromstring``, which does not look at the tree.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from lxml import etree

from benchmarks.common import Figure, Plan, beside, say

GUID = "32221eda-9376-46df-b6ed-783091123831"
LOOPS = 4000
BOUNDARY = b"MSMQ - SOAP boundary, 292"

WINDOWS = (
    '<se:Envelope xmlns:se="http://schemas.xmlsoap.org/soap/envelope/" xmlns="http://schemas.xmlsoap.org/srmp/"><se:Header>'
    '<path xmlns="http://schemas.xmlsoap.org/rp/" '
    'se:mustUnderstand="1"><action>MSMQ:mqsender label</action>'
    f"<to>http://machine2/msmq/private$/simpleq</to><id>uuid:%d@{GUID}</id></path>"
    '<properties se:mustUnderstand="1"><expiresAt>20380119T031407</expiresAt><sentAt>20261'
    "121T023719</sentAt></properties>"
    '<Msmq xmlns="msmq.namespace.xml"><Class>0</Class><Priority>3</Priority>'
    "<Correlation>AAAAAAAAAAAAAAAAAAAAAAAAAAA=</Correlation><App>0</App><BodyType>8</BodyType><HashAlgorithm>32772</HashAlgorithm>"
    f"<SourceQmGuid>{GUID}</SourceQmGuid><TTrq>20261125T023719</TTrq></Msmq></se:Header><se:Body></se:Body></se:Envelope>"
)
"""The envelope as Windows writes it ([MC-MQSRM] 4.5)."""
OTHER = '<?xml version="1.0"?>\n' + WINDOWS.replace("se:", "soap:").replace(
    "xmlns:se=", "xmlns:soap="
).replace("><", ">\n  <").replace("<soap:Body>\n  </soap:Body>", "<soap:Body/>")
"""The same content in another layout: another prefix, line breaks, a declaration."""


def post_body(envelope: bytes) -> bytes:
    body = b"0123456789abcdef" * 64
    return b"".join(
        [
            b"--",
            BOUNDARY,
            b"\r\nContent-Type: text/xml; charset=UTF-8\r\nContent-Length: %d\r\n\r\n"
            % len(envelope),
            envelope,
            b"--",
            BOUNDARY,
            b"\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\nContent-Id: body@"
            % len(body),
            GUID.encode(),
            b"\r\n\r\n",
            body,
            b"--",
            BOUNDARY,
            b"--\r\n",
        ]
    )


def run(plan: Plan) -> Iterator[Figure]:
    from srmp_spark.srmp.codec.decoder import decode

    loops = plan.size(LOOPS, LOOPS // 10)
    content_type = b'multipart/related; boundary="' + BOUNDARY + b'"; type=text/xml'
    for name, layout, limit in (("decode_windows", WINDOWS, 1.0), ("decode_other", OTHER, 2.5)):
        envelopes = [(layout % (1_000_000_000 + n)).encode() for n in range(loops)]
        contents = [post_body(envelope) for envelope in envelopes]
        first = decode(content_type, contents[0])
        if first.lineage != GUID or len(first.body) != 1024 or first.label != "mqsender label":
            raise RuntimeError(f"decoded something else: {first!r}")
        ours, theirs = [], []
        for number in range(plan.rounds):
            ours.append(_per_item(lambda content: decode(content_type, content), contents))
            theirs.append(_per_item(etree.fromstring, envelopes))
            say(
                f"{name} round {number + 1}: decode {ours[-1]:.2f} us, lxml fromstring "
                f"{theirs[-1]:.2f} us"
            )
        yield beside(name, "us CPU/POST", ours, theirs, "lxml fromstring", at_most=limit)


def _per_item(function: Callable[[bytes], object], items: list[bytes]) -> float:
    """Return the CPU microseconds of one thread for each item; others use the machine too."""
    for item in items[:200]:
        function(item)
    began = time.thread_time()
    for item in items:
        function(item)
    return (time.thread_time() - began) / len(items) * 1e6
