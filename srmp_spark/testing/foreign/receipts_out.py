"""Write receipts as Windows writes them in 4.3 and 4.4, and POST them to the sender."""

from __future__ import annotations

import base64
import re
import socket
import time
import uuid
from xml.sax.saxutils import escape

from srmp_spark.testing.foreign.receiving import Owed

TIME_TO_REACH_QUEUE = 4 * 86_400
"""Time between ``<sentAt>`` and ``<TTrq>`` in the receipts of 4.3 and 4.4, in seconds."""
NEVER = "20380119T031407"
ANSWER_MAX = 65_536
"""Most bytes that are read of an answer to a receipt. Only its head matters."""


def _date(seconds: float) -> str:
    return time.strftime("%Y%m%dT%H%M%S", time.gmtime(seconds))


def correlation_of(message_id: str) -> str:
    """Return the ``<Correlation>`` of a receipt for ``message_id``, in base64.

    ``message_id`` has the form ``uuid:N@GUID``. The value has sixteen bytes of GUID in Windows
    order and four bytes of number. For number 1 and the null GUID it is
    ``AAAAAAAAAAAAAAAAAAAAAAEAAAA=``.
    """
    number, _, guid = message_id.removeprefix("uuid:").partition("@")
    value = uuid.UUID(guid).bytes_le + (int(number) & 0xFFFFFFFF).to_bytes(4, "little")
    return base64.b64encode(value).decode()


def envelope(owed: Owed, *, guid: str, number: int, via: str, now: float) -> bytes:
    """Return the envelope of the receipt ``owed``, in the order of the receipts of 4.3 and 4.4.

    ``guid`` and ``number`` identify the receipt. ``via`` is the URL of the queue that the receipt
    is about. ``now`` is the time of sending, in seconds since 1970.
    """
    correlation = (
        base64.b64encode(bytes(20)).decode()
        if owed.is_stream_receipt
        else correlation_of(owed.about)
    )
    text = (
        '<se:Envelope xmlns:se="http://schemas.xmlsoap.org/soap/envelope/" xmlns="http://schemas.xmlsoap.org/srmp/"><se:Header>'
        '<path xmlns="http://schemas.xmlsoap.org/rp/" se:mustUnderstand="1">'
        f"<action>MSMQ:{escape(owed.label)}</action><to>{escape(owed.to)}</to><rev><via>{escape(via)}</via></rev>"
        f"<id>uuid:{number}@{guid}</id></path>"
        f'<properties se:mustUnderstand="1"><expiresAt>{NEVER}</expiresAt><sentAt>'
        f"{_date(now)}</sentAt></properties>"
    )
    if owed.stream is not None:
        stream_id = f"uid:{owed.stream[0]}\\{owed.stream[1]}"
        text += (
            f"<streamReceipt><streamId>{stream_id}</streamId><lastOrdinal>{owed.last}<"
            "/lastOrdinal></streamReceipt>"
        )
    if owed.delivered_at is not None:
        text += (
            f"<deliveryReceipt><receivedAt>{_date(owed.delivered_at)}</receivedAt><id>"
            f"{owed.about}</id></deliveryReceipt>"
        )
    if owed.decision is not None:
        text += (
            f"<commitmentReceipt><decidedAt>{_date(now)}</decidedAt><decision>"
            f"{owed.decision}</decision>"
        )
        text += f"<id>{owed.about}</id></commitmentReceipt>"
    text += (
        f'<Msmq xmlns="msmq.namespace.xml"><Class>{owed.message_class}</Class><Priority>0<'
        "/Priority>"
        f"<Correlation>{correlation}</Correlation><App>0</App><BodyType>0</BodyType><HashAlgorithm>0</HashAlgorithm>"
        f"<SourceQmGuid>{guid}</SourceQmGuid><TTrq>{_date(now + TIME_TO_REACH_QUEUE)}</TTrq></Msmq>"
        "</se:Header><se:Body></se:Body></se:Envelope>"
    )
    return text.encode()


def post(url: str, content: bytes, timeout: float) -> int | None:
    """POST ``content`` to ``url`` as in chapter 4, on its own connection, and return the status.

    Return ``None`` if no whole answer head arrives; then the fate of the receipt is unknown. Each
    wait for the connection or for more bytes lasts at most ``timeout`` seconds. Return ``None``
    also if ``url`` is no ``http://`` URL with a path. The request target is in lower case, as
    Windows writes it in 4.4.
    """
    match = re.fullmatch(
        r"http://(\[[0-9a-fA-F:]+\]|[^/:]+)(?::([0-9]+))?(/.*)", url, re.IGNORECASE
    )
    if match is None:
        return None
    host = match[1] + (f":{match[2]}" if match[2] else "")
    head = (
        f"POST {match[3].lower()} HTTP/1.1\r\nHost: {host}\r\nContent-Type: "
        f"text/xml\r\nContent-Length: {len(content)}\r\n"
        'SOAPAction: "MSMQMessage"\r\nProxy-Accept: NonInteractiveClient\r\n\r\n'
    )
    answer = b""
    try:
        with socket.create_connection(
            (match[1].strip("[]"), int(match[2] or 80)), timeout
        ) as connection:
            connection.sendall(head.encode("latin-1") + content)
            while b"\r\n\r\n" not in answer and len(answer) < ANSWER_MAX:
                piece = connection.recv(4096)
                if not piece:
                    return None
                answer += piece
    except OSError:
        return None
    status = re.match(rb"HTTP/1\.[01] ([0-9]{3})", answer)
    return int(status[1]) if status else None
