"""A client of WS-ReliableMessaging with sockets, for tests against a running queue manager."""

from __future__ import annotations

import http.client
import itertools
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyarrow as pa
from wsrm_kit import VERSIONS, message, schema_faults

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.testing.queue_manager import RunningQueueManager
from srmp_spark.wsrm.codec.decoder import decode
from srmp_spark.wsrm.codec.elements import (
    AckRequested,
    Content,
    CreateSequence,
    CreateSequenceResponse,
    EndpointReference,
    Sequence,
    SequenceAcknowledgement,
    SoapFault,
    SoapMessage,
)
from srmp_spark.wsrm.codec.encoder import encode, http_fields
from srmp_spark.wsrm.codec.namespaces import AddressingVersion, RmVersion, SoapVersion

Versions = tuple[SoapVersion, AddressingVersion, RmVersion]
PATIENCE = 90.0
"""Seconds: a machine with other tests on it."""
HOLDER = "a test"


def wait_for(what: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Until it is true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds} s: {what}")


class Client:
    """One connection; what it sends and gets is valid by the schemas."""

    _names = itertools.count(1)

    def __init__(
        self,
        running: RunningQueueManager,
        queue: str = "private$/orders",
        versions: Versions = VERSIONS[5],
    ) -> None:
        self._running = running
        self.path = f"/wsrm/{queue}"
        self.versions = versions
        self.identifier = ""
        self._connection: http.client.HTTPConnection | None = None

    def post(
        self, content: bytes, fields: dict[str, str], path: str | None = None
    ) -> tuple[int, str | None, bytes]:
        """(status, Srmp-Reason, body). Raises OSError when the connection breaks."""
        if self._connection is None:
            self._connection = http.client.HTTPConnection(*self._running.wsrm, timeout=PATIENCE)
        try:
            self._connection.request("POST", path or self.path, content, fields)
            answer = self._connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise OSError(str(error)) from None
        if answer.headers.get("Connection", "").lower() == "close":
            self.close()
        return answer.status, answer.headers.get("Srmp-Reason"), body

    def say(self, sent: SoapMessage) -> tuple[int, SoapMessage | None]:
        status, reason, body = self.post(encode(sent), http_fields(sent))
        assert reason is None, (status, reason)
        assert not body or schema_faults(body) == []
        return status, decode(body) if body else None

    def answer(self, sent: SoapMessage) -> SoapMessage:
        status, answer = self.say(sent)
        assert answer is not None, status
        return answer

    def fault(self, sent: SoapMessage) -> tuple[int, SoapFault]:
        status, answer = self.say(sent)
        assert answer is not None
        assert isinstance(answer.content, SoapFault), answer
        return status, answer.content

    # --- messages -----------------------------------------------------------------------------------------------------------

    def message(self, action: str = "urn:shop/order", **more: object) -> SoapMessage:
        host, port = self._running.wsrm
        return message(self.versions, action, to=f"http://{host}:{port}{self.path}", **more)

    def of_rm(self, name: str, content: Content | None = None, **more: object) -> SoapMessage:
        return self.message(self.versions[2].action(name), content=content, **more)

    def create(self, acks_to: EndpointReference | None = None, message_id: str = "") -> SoapMessage:
        anonymous = EndpointReference(self.versions[1].anonymous)
        message_id = message_id or f"urn:uuid:create-{next(self._names)}"
        return self.of_rm(
            "CreateSequence",
            CreateSequence(acks_to or anonymous),
            message_id=message_id,
            reply_to=anonymous,
        )

    def open(self, acks_to: EndpointReference | None = None, message_id: str = "") -> str:
        content = self.answer(self.create(acks_to, message_id)).content
        assert isinstance(content, CreateSequenceResponse), content
        self.identifier = content.identifier
        return content.identifier

    def number(self, number: int, *, asks: bool = False, is_last: bool = False) -> SoapMessage:
        asked = (AckRequested(self.identifier),) if asks else ()
        sequence = Sequence(self.identifier, number, is_last)
        body = b'<order xmlns="urn:shop"><n>%d</n></order>' % number
        return self.message(
            sequence=sequence, ack_requested=asked, body=body, message_id=f"urn:uuid:m-{number}"
        )

    def ask(self) -> SoapMessage:
        return self.of_rm("AckRequested", ack_requested=(AckRequested(self.identifier),))

    def ack(self, sent: SoapMessage) -> SequenceAcknowledgement:
        (ack,) = self.answer(sent).acknowledgements
        return ack

    def told(self, sent: SoapMessage) -> tuple[int, int]:
        """(the last number that is acknowledged, BufferRemaining)."""
        ack = self.ack(sent)
        assert len(ack.ranges) <= 1
        return (ack.ranges[0][1] if ack.ranges else 0), ack.buffer_remaining

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def rows(
    running: RunningQueueManager, queue: str = "private$/orders", *, envelope: bool = False
) -> list[dict[str, Any]]:
    """Everything in the log of a queue."""
    client = QueueManagerClient(running.api, retry_seconds=PATIENCE)
    found = client.range(queue, epoch=running.epoch, after=0)
    if found.end == 0:
        return []
    with client.rows(
        queue, epoch=running.epoch, after=0, to=found.end, envelope=envelope
    ) as stream:
        return pa.ipc.open_stream(stream.as_file()).read_all().to_pylist()


def receive(running: RunningQueueManager, to: int, queue: str = "private$/orders") -> None:
    """The default consumer, as a Spark query is one, has received the rows up to ``to``."""
    client = QueueManagerClient(running.api, retry_seconds=PATIENCE)
    client.register(queue, "default", epoch=running.epoch, first=1, holder=HOLDER)
    client.received(queue, "default", epoch=running.epoch, to=to, holder=HOLDER)


class Callbacks:
    """An HTTP server of a client that can be called: what comes to it, decoded."""

    def __init__(self) -> None:
        came: list[SoapMessage] = []
        self.came = came

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:  # http.server's name
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert schema_faults(body) == []
                came.append(decode(body))
                self.send_response(202)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/acks"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
