"""Bytes written by hand after [MC-MQSRM] 3.1.7.2.4 and chapter 4, and the two ends of a wire to say and hear them.

Nothing of the package is used: what is proved with these bytes does not rest on any other reading of the document.
"""

from __future__ import annotations

import re
import socket
import threading
import time

SENDER = "32221eda-9376-46df-b6ed-783091123831"
ORDINAL = 4839986701558349830
QUEUE = "private$/tsimpleq"


def now(plus: float = 0.0) -> str:
    return time.strftime("%Y%m%dT%H%M%S", time.gmtime(time.time() + plus))


SENT = now()
LATER = now(86_400)

ENVELOPE = (
    '<se:Envelope xmlns:se="http://schemas.xmlsoap.org/soap/envelope/" xmlns="http://schemas.xmlsoap.org/srmp/"><se:Header>'
    '<path xmlns="http://schemas.xmlsoap.org/rp/" '
    'se:mustUnderstand="1"><action>MSMQ:mqsender label</action>'
    "<to>http://{host}/msmq/{queue}</to><id>uuid:{number}@{guid}</id></path>"
    '<properties se:mustUnderstand="1"><expiresAt>{expires}</expiresAt><sentAt>{sent}</sen'
    "tAt></properties>{services}{stream}"
    '<Msmq xmlns="msmq.namespace.xml"><Class>0</Class><Priority>0</Priority>{dead_letter}'
    "<Correlation>AAAAAAAAAAAAAAAAAAAAAAAAAAA=</Correlation><App>0</App><BodyType>0</BodyType>"
    "<HashAlgorithm>32772</HashAlgorithm><SourceQmGuid>{guid}</SourceQmGuid><TTrq>{expires}</TTrq></Msmq>"
    "</se:Header><se:Body></se:Body></se:Envelope>"
)


def stream_element(
    current: int, *, ordinal: int = ORDINAL, previous: str = "", start: str = "", guid: str = SENDER
) -> str:
    return (
        f'<stream se:mustUnderstand="1"><streamId>uid:{guid}\\{ordinal}</streamId><current'
        f">{current}</current>"
        f"{previous}{start}</stream>"
    )


def envelope(host: str, number: int, **values: str) -> str:
    standing = {
        "queue": QUEUE,
        "guid": SENDER,
        "sent": SENT,
        "expires": LATER,
        "services": "",
        "stream": "",
        "dead_letter": "",
    }
    return ENVELOPE.format(host=host, number=number, **(standing | values))


def post(soap: str, body: bytes, *, guid: str = SENDER) -> bytes:
    """The whole request of chapter 4. The target is the path of ``<to>``."""
    to = re.search("<to>http://([^/]+)(/[^<]*)</to>", soap)
    assert to
    part = soap.encode()
    content = (
        b"--MSMQ - SOAP boundary, 1672\r\nContent-Type: text/xml; "
        b"charset=UTF-8\r\nContent-Length: %d\r\n\r\n" % len(part)
    )
    content += part + b"--MSMQ - SOAP boundary, 1672\r\nContent-Type: application/octet-stream\r\n"
    content += b"Content-Length: %d\r\nContent-Id: body@%s\r\n\r\n" % (len(body), guid.encode())
    content += body + b"--MSMQ - SOAP boundary, 1672--\r\n"
    head = (
        f"POST {to[2]} HTTP/1.1\r\nHost: {to[1]}\r\n"
        'Content-Type: multipart/related; boundary="MSMQ - SOAP boundary, 1672"; type=text/xml\r\n'
        f'Content-Length: {len(content)}\r\nSOAPAction: "MSMQMessage"\r\nProxy-Accept: '
        "NonInteractiveClient\r\n\r\n"
    )
    return head.encode() + content


class Sender:
    """Says what it is told to. Each POST has its own connection."""

    def __init__(
        self, port: int, receipts: str = "http://127.0.0.1:9/msmq/private$/order_queue$"
    ) -> None:
        self.port, self.receipts = port, receipts
        self.host = f"127.0.0.1:{port}"

    def stream(
        self,
        current: int,
        *,
        number: int | None = None,
        ordinal: int = ORDINAL,
        previous: int | None = None,
        start: bool | None = None,
        body: bytes | None = None,
        durable: bool = True,
        dead_letter: bool = False,
        **values: str,
    ) -> bytes:
        """A well-formed stream message; its identifier is a hundred times its number unless another is given."""
        begin = f"<start><sendReceiptsTo>{self.receipts}</sendReceiptsTo></start>"
        before = "" if current <= 1 else f"<previous>{current - 1}</previous>"
        place = stream_element(
            current,
            ordinal=ordinal,
            previous=before if previous is None else f"<previous>{previous}</previous>",
            start=begin if (current == 1 if start is None else start) else "",
        )
        soap = envelope(
            self.host,
            (ordinal - ORDINAL) * 10_000 + current * 100 if number is None else number,
            stream=place,
            services='<services se:mustUnderstand="1"><durable/></services>' if durable else "",
            dead_letter="<DeadLetter/>" if dead_letter else "",
            **values,
        )
        return post(soap, b"message %d" % current if body is None else body)

    def plain(self, number: int, body: bytes = b"plain", **values: str) -> bytes:
        """A regular message."""
        return post(envelope(self.host, number, **values), body)

    def say(self, raw: bytes) -> int | None:
        """The status, or ``None`` when there was no whole answer."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 5) as wire:
                wire.sendall(raw)
                answer = b""
                while b"\r\n\r\n" not in answer:
                    piece = wire.recv(4096)
                    if not piece:
                        return None
                    answer += piece
                wire.shutdown(socket.SHUT_WR)
                while wire.recv(65_536):
                    pass  # until the peer hangs up: only then has it noted that its answer is on its way
                return int(answer[9:12]) if answer.startswith(b"HTTP/1.1 ") else 0
        except OSError:
            return None

    def say_all(self, *raws: bytes) -> list[int | None]:
        return [self.say(raw) for raw in raws]


class OrderQueue:
    """The sender's order queue: keeps each POST as it came and answers it; ``answers`` are used up first, then 200."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.answers: list[int] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/MSMQ/private$/Receipts?SenderStream=XRntV"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                wire, _ = self._socket.accept()
            except OSError:
                return
            with wire:
                data = b""
                while b"</se:Envelope>" not in data:
                    data += wire.recv(65_536)
                status = self.answers.pop(0) if self.answers else 200
                self.heard.append(data.decode())
                wire.sendall(b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % status)

    def close(self) -> None:
        self._socket.close()

    @property
    def ordinals(self) -> list[int]:
        return [
            int(number)
            for number in re.findall("<lastOrdinal>([0-9]+)</lastOrdinal>", "".join(self.heard))
        ]

    def wait(self, count: int, seconds: float = 5.0) -> None:
        """Until so many receipts came."""
        end = time.monotonic() + seconds
        while len(self.heard) < count:
            assert time.monotonic() < end, f"{len(self.heard)} receipts of {count}"
            time.sleep(0.01)
