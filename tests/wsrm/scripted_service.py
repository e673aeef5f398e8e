"""A reliable service with sockets, written from the specifications alone: none of our codec, engines or limits is in it.

It does what a test scripts: how much room it tells, which requests and answers are lost, which are refused or late, when it
forgets everything. And it judges what comes: a number that means two messages, a message where there is no room for it.
"""

from __future__ import annotations

import random
import ssl
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from lxml import etree

RM = {
    "1.0": "http://schemas.xmlsoap.org/ws/2005/02/rm",
    "1.1": "http://docs.oasis-open.org/ws-rx/wsrm/200702",
}
SOAP = {
    "1.1": "http://schemas.xmlsoap.org/soap/envelope/",
    "1.2": "http://www.w3.org/2003/05/soap-envelope",
}
WSA = {
    "2004/08": "http://schemas.xmlsoap.org/ws/2004/08/addressing",
    "2005/08": "http://www.w3.org/2005/08/addressing",
}
FLOW = "http://schemas.microsoft.com/ws/2006/05/rm"


@dataclass
class Sequence:
    """One of ours, with what it holds."""

    identifier: str
    taken: dict[int, tuple[str, bytes]] = field(default_factory=dict)
    """MessageID and Body by number."""
    is_closed: bool = False
    is_terminated: bool = False
    last: int = 0
    told: int | None = None
    """The BufferRemaining of the last acknowledgement that was answered."""
    since_told: int = 0
    """New messages that came since."""


@dataclass
class Request:
    """What came, taken apart."""

    raw: bytes
    soap: str
    wsa: str
    rm: str
    action: str
    message_id: str
    identifier: str = ""
    number: int = 0
    is_last: bool = False
    asks: bool = False
    content: Any = None
    body: bytes = b""


Script = Callable[["ScriptedService", Request], "str | None"]
"""What becomes of a request: ``None`` or ``"take"``, ``"drop"`` (unread), ``"lose"`` (done, and the answer is lost), ``"503"``
and other statuses, ``"empty"`` (202 and not done), or the name of a fault."""


class ScriptedService:
    """``with ScriptedService() as service: … service.destination``; attributes may be changed while it runs, under ``lock``."""

    def __init__(
        self,
        *,
        room: int | None = None,
        script: Script | None = None,
        seed: int = 0,
        certificate: tuple[Path, Path] | None = None,
    ) -> None:
        """``room``: how many messages it can hold, ``None``: it says nothing of its room. :meth:`drain` makes room.
        ``certificate``: its file and that of its key, for https."""
        self.lock = threading.RLock()
        self.room = room
        self.held = 0
        self.script = script
        self.dice = random.Random(seed)
        self.sequences: dict[str, Sequence] = {}
        self.created: dict[str, str] = {}
        self.delivered: list[bytes] = []
        """Bodies in the order in which the application got them."""
        self.requests: list[tuple[float, Request]] = []
        self.seen: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.judges_room = True
        self._server: ThreadingHTTPServer | None = None
        self._port = 0
        self._tls: ssl.SSLContext | None = None
        if certificate is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(*certificate)

    # --- life ---------------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                action = (
                    self.headers.get("SOAPAction")
                    or self.headers["Content-Type"].partition("action=")[2]
                )
                status, media, answer = service.handle(content, action.strip('"'))
                if not status:
                    self.close_connection = True
                    return
                self.send_response(status)
                if answer:
                    self.send_header("Content-Type", media)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True

            def handle_error(self, *_: object) -> None:
                pass

        self._server = Server(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_address[1]
        if self._tls is not None:
            self._server.socket = self._tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()
        self._server = None

    def __enter__(self) -> ScriptedService:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self.stop()

    @property
    def destination(self) -> str:
        base = "http://127.0.0.1" if self._tls is None else "https://localhost"
        return f"wsrm:{base}:{self._port}/Orders.svc"

    def forget(self) -> None:
        """It was started again, and its sequences were in memory."""
        with self.lock:
            self.sequences.clear()
            self.created.clear()

    def drain(self, count: int) -> None:
        """The application takes messages out."""
        with self.lock:
            self.held = max(0, self.held - count)

    # --- one request --------------------------------------------------------------------------------------------------------

    def handle(self, content: bytes, http_action: str) -> tuple[int, str, bytes]:
        with self.lock:
            request = self._read(content)
            if http_action != request.action:
                self.wrong.append(f"HTTP says {http_action}, the message {request.action}")
            self.requests.append((time.monotonic(), request))
            self.seen[request.action.rpartition("/")[2]] += 1
            fate = self.script(self, request) if self.script is not None else None
            media = "text/xml" if request.soap == SOAP["1.1"] else "application/soap+xml"
            if fate == "drop":
                return 0, "", b""
            if fate == "empty":
                return 202, "", b""
            if fate is not None and fate.isdigit():
                return int(fate), "", b""
            if fate is not None and fate not in ("take", "lose"):
                return 500, media, self._fault(request, fate)
            status, answer, told = self._do(request)
            if fate == "lose":
                return 0, "", b""
            if told is not None:
                told.told, told.since_told = (
                    (None if self.room is None else self.room - self.held),
                    0,
                )
            return status, media, answer

    def _read(self, content: bytes) -> Request:
        root = etree.fromstring(content)
        soap = etree.QName(root).namespace
        header, body = root.find(f"{{{soap}}}Header"), root.find(f"{{{soap}}}Body")
        wsa = next(uri for uri in WSA.values() if header.find(f"{{{uri}}}Action") is not None)
        rm = next((uri for uri in RM.values() if uri.encode() in content), "")
        content_at = content.index(b"Body>") + 5
        request = Request(
            content, soap, wsa, rm, header.findtext(f"{{{wsa}}}Action"), header.findtext(f"{{{wsa}}}MessageID") or "",
            content=body[0] if len(body) else None, body=content[content_at : content.rindex(b"</")],
        )  # fmt: skip
        request.body = request.body[: request.body.rindex(b"</")] if b"</" in request.body else b""
        sequence = header.find(f"{{{rm}}}Sequence")
        if sequence is not None:
            request.identifier = sequence.findtext(f"{{{rm}}}Identifier")
            request.number = int(sequence.findtext(f"{{{rm}}}MessageNumber"))
            request.is_last = sequence.find(f"{{{rm}}}LastMessage") is not None
        asked = header.find(f"{{{rm}}}AckRequested")
        if asked is not None:
            request.asks = True
            request.identifier = request.identifier or asked.findtext(f"{{{rm}}}Identifier")
        if request.content is not None and not request.identifier:
            request.identifier = request.content.findtext(f"{{{rm}}}Identifier") or ""
        return request

    def _do(self, request: Request) -> tuple[int, bytes, Sequence | None]:
        name = request.action.removeprefix(request.rm + "/") if request.rm else ""
        if name == "CreateSequence":
            identifier = self.created.setdefault(request.message_id, f"urn:uuid:{uuid.uuid4()}")
            self.sequences.setdefault(identifier, Sequence(identifier))
            return (
                200,
                self._answer(request, "CreateSequenceResponse", body=self._identifier(identifier)),
                None,
            )
        sequence = self.sequences.get(request.identifier)
        if sequence is None:
            return 500, self._fault(request, "UnknownSequence"), None
        if name == "TerminateSequence":
            if set(range(1, sequence.last + 1)) - set(sequence.taken):
                self.wrong.append("terminated with a gap")
            sequence.is_terminated = True
            if request.rm == RM["1.0"]:
                return 202, b"", None
            return (
                200,
                self._answer(
                    request, "TerminateSequenceResponse", body=self._identifier(sequence.identifier)
                ),
                None,
            )
        if name == "CloseSequence":
            sequence.is_closed = True
            told = int(request.content.findtext(f"{{{request.rm}}}LastMsgNumber") or 0)
            if told != max(sequence.taken, default=0):
                self.wrong.append(
                    f"closed with LastMsgNumber {told}, {max(sequence.taken, default=0)} came"
                )
            body = self._identifier(sequence.identifier)
            return (
                200,
                self._answer(request, "CloseSequenceResponse", body=body, ack=sequence),
                sequence,
            )
        if request.number:
            self._take(sequence, request)
        return 200, self._answer(request, "SequenceAcknowledgement", ack=sequence), sequence

    def _take(self, sequence: Sequence, request: Request) -> None:
        known = sequence.taken.get(request.number)
        if known is not None:
            if known != (request.message_id, request.body):
                self.wrong.append(
                    f"number {request.number} was {known}, and is "
                    f"{request.message_id, request.body}"
                )
            return
        sequence.since_told += 1
        if (
            self.judges_room
            and sequence.told is not None
            and sequence.since_told > sequence.told
            and not request.is_last
        ):
            self.wrong.append(
                f"number {request.number} is the {sequence.since_told}. since room for "
                f"{sequence.told} was told"
            )
        if self.room is not None and self.held >= self.room and not request.is_last:
            return  # nowhere to put it: no acknowledgement, and it comes again
        if request.is_last:
            sequence.last = request.number
        else:
            self.held += 1
        sequence.taken[request.number] = request.message_id, request.body
        self._deliver(sequence)

    def _deliver(self, sequence: Sequence) -> None:
        """In order, what has no gap before it."""
        done = getattr(sequence, "_done", 0)
        while done + 1 in sequence.taken:
            done += 1
            if done != sequence.last:
                self.delivered.append(sequence.taken[done][1])
        sequence._done = done  # type: ignore[attr-defined]

    # --- answers ------------------------------------------------------------------------------------------------------------

    @staticmethod
    def _identifier(identifier: str) -> str:
        return f"<r:Identifier>{identifier}</r:Identifier>"

    def _ack(self, request: Request, sequence: Sequence) -> str:
        runs: list[list[int]] = []
        for number in sorted(sequence.taken):
            if runs and runs[-1][1] == number - 1:
                runs[-1][1] = number
            else:
                runs.append([number, number])
        inner = "".join(
            f'<r:AcknowledgementRange Lower="{first}" Upper="{last}"/>' for first, last in runs
        )
        if not runs:
            inner = (
                "<r:None/>"
                if request.rm == RM["1.1"]
                else '<r:AcknowledgementRange Lower="0" Upper="0"/>'
            )
        if sequence.is_closed:
            inner += "<r:Final/>"
        if self.room is not None:
            inner += (
                f'<n:BufferRemaining xmlns:n="{FLOW}">{self.room - self.held}</n:BufferRemaining>'
            )
        return (
            f"<r:SequenceAcknowledgement>{self._identifier(sequence.identifier)}{inner}"
            "</r:SequenceAcknowledgement>"
        )

    def _answer(
        self, request: Request, name: str, *, body: str = "", ack: Sequence | None = None
    ) -> bytes:
        acknowledged = self._ack(request, ack) if ack is not None else ""
        relates = f"<a:RelatesTo>{request.message_id}</a:RelatesTo>" if request.message_id else ""
        content = f"<r:{name}>{body}</r:{name}>" if body else ""
        return (
            f'<s:Envelope xmlns:s="{request.soap}" xmlns:a="{request.wsa}" '
            f'xmlns:r="{request.rm}"><s:Header>{acknowledged}'
            f"<a:Action>{request.rm}/{name}</a:Action>{relates}</s:Header><s:Body>{content}</s:Body></s:Envelope>"
        ).encode()

    def _fault(self, request: Request, name: str) -> bytes:
        detail = self._identifier(request.identifier) if request.identifier else ""
        header, relates = (
            "",
            f"<a:RelatesTo>{request.message_id}</a:RelatesTo>" if request.message_id else "",
        )
        if request.soap == SOAP["1.1"]:
            is_refusal = name == "CreateSequenceRefused"
            if not is_refusal:
                inner = f"<r:Detail>{detail}</r:Detail>" if request.rm == RM["1.1"] else ""
                header = (
                    f"<r:SequenceFault><r:FaultCode>r:{name}</r:FaultCode>{inner}</r:SequenceFault>"
                )
            code = f"r:{name}" if is_refusal else "s:Client"
            body = (
                f"<s:Fault><faultcode>{code}</faultcode><faultstring>scripted</faultstr"
                "ing></s:Fault>"
            )
        else:
            body = (
                f"<s:Fault><s:Code><s:Value>s:Sender</s:Value><s:Subcode><s:Value>r:{name}</s:Value></s:Subcode></s:Code>"
                '<s:Reason><s:Text xml:lang="en">scripted</s:Text></s:Reason><s:Detail>'
                f"{detail}</s:Detail></s:Fault>"
            )
        return (
            f'<s:Envelope xmlns:s="{request.soap}" xmlns:a="{request.wsa}" '
            f'xmlns:r="{request.rm}"><s:Header>{header}'
            f"<a:Action>{request.rm}/fault</a:Action>{relates}</s:Header><s:Body>{body}</s:Body></s:Envelope>"
        ).encode()


def lossy(before: float, after: float) -> Script:
    """Loses so many requests, and so many answers."""

    def script(service: ScriptedService, request: Request) -> str:
        dice = service.dice.random()
        return "drop" if dice < before else "lose" if dice < before + after else "take"

    return script


def once(action: str, fate: str, times: int = 1) -> Script:
    """The first requests with this action meet this fate."""
    left = [times]

    def script(service: ScriptedService, request: Request) -> str | None:
        if request.action.rpartition("/")[2] == action and left[0]:
            left[0] -= 1
            return fate
        return None

    return script
