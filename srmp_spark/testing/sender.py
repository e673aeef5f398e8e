"""Post SRMP messages in a test, as a Windows machine would.

The messages are written from [MC-MQSRM] alone (:mod:`.foreign`) and share no code with the queue
manager that reads them. Each call of :meth:`ForeignSender.post` sends one message and returns when
the message is accepted. A message without an answer, or with a 5xx, is sent again with the same
identifier, as Windows does. The queue manager accepts such a message once, also across a restart.

Transactional messages belong to a stream, one stream for each queue. After a message whose fate is
unknown a new stream begins. The next message of a stream is posted after the answer to the one
before, so none arrives out of order. Stream receipts are received on a port of this sender and
answered 200.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
import uuid
from dataclasses import dataclass
from types import TracebackType
from urllib.parse import quote, urlsplit

from srmp_spark.testing.foreign.messages import (
    ForeignMessage,
    ForeignReceipt,
    ForeignStream,
    post,
    read_receipt,
)
from srmp_spark.testing.foreign.wire import Listener, Reply, WireRequest

ANSWER_SECONDS = 20.0
"""Longest wait for one answer, in seconds.

The value is the default RoundTripDelay on a local network ([MC-MQSRM] appendix A <25>). At the
limit the message is sent again.
"""
PATIENCE_SECONDS = 30.0
"""Longest time that one message is sent again without an answer or after a 5xx, in seconds.

A restart of the queue manager takes seconds. At the limit :class:`PostRefusedError` is raised. An
attempt that is in progress at the limit may last :data:`ANSWER_SECONDS` more. The value is also the
default time-out of :meth:`ForeignSender.wait_for_receipts`.
"""
PAUSE_SECONDS = 0.25
"""Pause between two attempts, in seconds. Windows waits longer, but tests are short."""
VT_BSTR = 8
"""PROPID_M_BODY_TYPE of a string, which Windows sends in UTF-16."""
SAFE = "/$;"
"""Characters of a queue name that are not percent-encoded in a URL.

Letters, digits and ``_.-~`` are not encoded either.
"""
ORDER_QUEUE = "private$/order_queue$"
"""The queue name in the URL to which stream receipts for the sender are sent."""


class PostRefusedError(RuntimeError):
    """Raised when the queue manager refused a message for good, or did not accept it in time."""

    def __init__(self, status: int | None, text: str) -> None:
        super().__init__(text)
        self.status = status
        """The HTTP status of the last answer; ``None`` if the last attempt got no answer."""


@dataclass(slots=True)
class _Stream:
    """The stream of one queue, as its sender knows it ([MC-MQSRM] 3.1.1.1.6).

    ``ordinal`` is the number of the stream in the stream identifier.
    """

    ordinal: int
    accepted: int = 0
    """Position of the last message that was answered 200; 0 before the first."""


class ForeignSender:
    """A foreign queue manager that posts to one other.

    ``listening`` is the URL ``http://HOST:PORT`` of the SRMP port of the other queue manager.
    Raises :class:`ValueError` for any other form. Use the sender as a context manager, because it
    owns a connection, and a port for receipts. Post from one thread at a time.
    """

    def __init__(self, listening: str) -> None:
        parts = urlsplit(listening)
        if parts.scheme != "http" or parts.hostname is None or parts.port is None:
            raise ValueError(f"the URL of an SRMP port is http://HOST:PORT, not {listening!r}")
        self.guid = str(uuid.uuid4())
        """The GUID of this sender. The rows of its messages have the GUID in column ``source_qm``.
        """
        self._host, self._port = parts.hostname, parts.port
        self._base = listening.rstrip("/")
        self._begun = int(time.time())
        self._last_number = 0
        self._last_ordinal = 0
        self._streams: dict[str, _Stream] = {}
        self._connection: socket.socket | None = None
        self._arrived = threading.Condition()
        """Guards the receipts, which the port's threads append.

        Each new receipt notifies the waiters.
        """
        self._receipts: list[ForeignReceipt] = []
        self._listener = Listener("127.0.0.1", 0, self._receipt)

    def start(self) -> ForeignSender:
        """Open the port for receipts and return this object."""
        self._listener.open()
        return self

    def stop(self) -> None:
        """Close the connection and the port. :attr:`receipts` still returns the receipts."""
        self._disconnect()
        self._listener.close()

    def __enter__(self) -> ForeignSender:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def post(
        self,
        queue: str,
        body: bytes | str,
        *,
        label: str = "",
        transactional: bool = False,
        recoverable: bool = False,
        priority: int = 3,
        extension: bytes | None = None,
        seconds: float = PATIENCE_SECONDS,
    ) -> str:
        r"""Send one message, wait until it is accepted, and return its identifier ``{GUID}\N``.

        ``body`` of type ``bytes`` is sent as it is, a ``str`` as Windows sends a string (UTF-16,
        body type 8). ``transactional`` is for transactional queues, and only for those. A
        transactional message is recoverable and has priority 0, whatever the other arguments say.
        ``priority`` is 0 to 7. ``extension`` is the message extension; ``None`` means no extension.
        Raises :class:`PostRefusedError` for a final answer (a status below 500 other than 200), and
        when the message was not accepted within ``seconds``.
        """
        self._last_number += 1
        position = self._next_position(queue) if transactional else None
        message = ForeignMessage(
            to=f"{self._base}/msmq/{quote(queue, safe=SAFE)}",
            lineage=self.guid,
            uniquifier=self._last_number,
            label=label,
            sent_at=int(time.time()),
            body=body.encode("utf-16-le") if isinstance(body, str) else body,
            body_type=VT_BSTR if isinstance(body, str) else 0,
            extension=extension,
            durable=transactional or recoverable,
            priority=0 if transactional else priority,
            stream=position,
        )
        what = f"message {message.uniquifier} to {queue}"
        try:
            self._until_accepted(post(message).raw, what, seconds)
        except PostRefusedError as error:
            if error.status is None or error.status >= 500:
                # The message may be in the queue, so its position may not be given to another one.
                self._streams.pop(queue, None)
            raise
        if position is not None:
            self._streams[queue].accepted = position.current
        return f"{{{self.guid}}}\\{message.uniquifier}"

    @property
    def receipts(self) -> list[ForeignReceipt]:
        """Return the stream receipts that have arrived, the oldest first."""
        with self._arrived:
            return list(self._receipts)

    def wait_for_receipts(
        self, count: int, seconds: float = PATIENCE_SECONDS
    ) -> list[ForeignReceipt]:
        """Wait until at least ``count`` stream receipts have arrived, and return all of them.

        Raises :class:`TimeoutError` after ``seconds``. One receipt may acknowledge many messages.
        """
        with self._arrived:
            if not self._arrived.wait_for(lambda: len(self._receipts) >= count, seconds):
                raise TimeoutError(
                    f"{len(self._receipts)} of {count} receipts arrived in {seconds:g} s; "
                    "serve blocks receipts for the loopback without --allow-url http://127.0.0.1:*"
                )
            return list(self._receipts)

    def _next_position(self, queue: str) -> ForeignStream:
        stream = self._streams.get(queue)
        if stream is None:
            self._last_ordinal += 1
            stream = self._streams[queue] = _Stream(self._begun << 32 | self._last_ordinal)
        first = stream.accepted == 0
        receipts = f"http://127.0.0.1:{self._listener.port}/msmq/{ORDER_QUEUE}"
        return ForeignStream(
            guid=self.guid,
            ordinal=stream.ordinal,
            current=stream.accepted + 1,
            previous=stream.accepted,
            receipts_to=receipts if first else None,
        )

    # --- the wire ---------------------------------------------------------------------------------

    def _until_accepted(self, raw: bytes, what: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while True:
            status, said = self._exchange(raw)
            if status == 200:
                return
            if status is not None and status < 500:
                raise PostRefusedError(status, f"{what} was refused with {status}: {said}")
            if time.monotonic() + PAUSE_SECONDS > deadline:
                raise PostRefusedError(status, f"{what} was not accepted in {seconds:g} s: {said}")
            time.sleep(PAUSE_SECONDS)

    def _exchange(self, raw: bytes) -> tuple[int | None, str]:
        """Send a request, and return the status of the answer and its body as text.

        Without a whole answer the fate of the request is unknown. Then the status is ``None``, and
        the text describes the error.
        """
        try:
            if self._connection is None:
                self._connection = socket.create_connection(
                    (self._host, self._port), ANSWER_SECONDS
                )
            self._connection.sendall(raw)
            answer = http.client.HTTPResponse(self._connection, method="POST")
            answer.begin()
            said = answer.read().decode(errors="replace").strip()
        except (OSError, http.client.HTTPException) as error:
            self._disconnect()
            return None, f"{type(error).__name__}: {error}"
        if answer.will_close:
            self._disconnect()
        return answer.status, said

    def _disconnect(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.close()
            self._connection = None

    def _receipt(self, request: WireRequest) -> Reply:
        head, content = request.read()
        start, *lines = head.split("\r\n")
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        receipt = read_receipt(
            content.decode(), at=time.monotonic(), target=start.split(" ")[1], headers=headers
        )
        with self._arrived:
            self._receipts.append(receipt)
            self._arrived.notify_all()
        return Reply(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
