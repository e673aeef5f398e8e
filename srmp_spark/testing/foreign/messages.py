"""Write SRMP messages as [MC-MQSRM] 3.1.7.2.4 says, by appending strings in that order.

The multipart body follows 2.2.2 and chapter 4. The module also reads receipts. It reads them with
regular expressions, because a sender needs four values of a receipt and no parser.
"""

from __future__ import annotations

import base64
import calendar
import enum
import itertools
import re
import time
from dataclasses import dataclass

NULL_GUID = "00000000-0000-0000-0000-000000000000"
NO_CORRELATION = bytes(20)
"""Twenty zero bytes, as in every user message of chapter 4."""
NEVER = "20380119T031407"
"""The ``expiresAt`` of the examples for a message that does not expire."""
ORDERING_ACK = "MSMQ:QM Ordering Ack"
"""The ``<action>`` of a stream receipt (2.2.4.1)."""
CLASS_ORDER_ACK = 255
CLASS_ACK_REACH_QUEUE = 2


class Dialect(enum.Enum):
    """The readings of the document in which a message can be written.

    A receiver has to understand all of them.
    """

    EXAMPLES = "examples"
    """As in chapter 4: ``<Stream>``, and ``<previous>`` only if a number was skipped.

    The envelope has no line ends, and no line end is before a MIME delimiter.
    """
    TEXT = "text"
    """As 3.1.7.2.4 is printed: ``<stream>``, and ``<previous>`` unless it is zero.

    The envelope has no line ends, and no line end is before a MIME delimiter.
    """
    PRINTED = "printed"
    """As the pages are printed: each element on its own line, RFC 2046 delimiters.

    A line end is before each MIME delimiter. The Content-Type is folded, and some values have a
    line of their own.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignStream:
    """The stream and the position in it of one message (2.2.5.3).

    ``current`` is the position, from 1. ``previous`` is the position of the message before that was
    not skipped; 0 for the first.
    """

    guid: str
    ordinal: int
    """Number of the stream (2.2.5.3.1).

    A time stamp is in the high 32 bits, a counter in the low 32.
    """
    current: int
    previous: int
    receipts_to: str | None = None
    """URL for receipts. Only the first message of a stream has it (2.2.5.3.4)."""

    @property
    def id(self) -> str:
        r"""Return the stream identifier ``uid:GUID\N``."""
        return f"uid:{self.guid}\\{self.ordinal}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignMessage:
    """The attributes of an SRMPMessage that a sender fills and 3.1.7.2.4 serializes.

    Times are in seconds since 1970.
    """

    to: str
    lineage: str
    uniquifier: int
    label: str | None = ""
    sent_at: int
    expires_at: int | None = None
    """Time when the message expires; ``None`` means never."""
    body: bytes = b""
    body_type: int = 0
    extension: bytes | None = None
    response_queue: str | None = None
    durable: bool = False
    delivery_receipt_to: str | None = None
    commitment_receipt_to: str | None = None
    positive_only: bool = False
    negative_only: bool = False
    stream: ForeignStream | None = None
    msmq: bool = True
    """``False`` leaves the element ``<Msmq>`` out, as in example 4.1."""
    message_class: int = 0
    priority: int = 3
    journal: bool = False
    dead_letter: bool = False
    correlation: bytes | None = NO_CORRELATION
    trace: bool = False
    connector_type: str | None = None
    app: int = 0
    hash_algorithm: int = 32772
    first_in_transaction: bool = False
    last_in_transaction: bool = False
    connector_qm: str | None = None
    provider_type: int = 0
    provider_name: str | None = None
    source_qm: str | None = None
    """``None`` means the lineage, as 2.2.4.3 wants."""
    destination_list: tuple[str, ...] = ()
    admin_list: tuple[str, ...] = ()
    response_list: tuple[str, ...] = ()
    time_to_reach_queue: int | None = None
    """Time of ``<TTrq>``. ``None`` means the time of ``expires_at``."""

    @property
    def queue_path(self) -> str:
        """Return the request target: the path and query of ``<to>``.

        Raises :class:`ValueError` if ``<to>`` is no HTTP URL with a path.
        """
        match = re.fullmatch(r"https?://[^/]+(/.*)", self.to)
        if match is None:
            raise ValueError(f"a unicast destination is an http(s) URL: {self.to!r}")
        return match[1]

    @property
    def host(self) -> str:
        """Return the host, and the port if there is one, of the URL in ``<to>``."""
        return self.to.split("/")[2]


def date(seconds: int | None) -> str:
    """Return the time as an ISO 8601 Date String (2.2.1.2) in UTC.

    ``seconds`` are since 1970; ``None`` becomes :data:`NEVER`.
    """
    return NEVER if seconds is None else time.strftime("%Y%m%dT%H%M%S", time.gmtime(seconds))


def seconds_of(text: str) -> int:
    """Return the seconds since 1970 of a Date String, the inverse of :func:`date`.

    Raises :class:`ValueError` for any other text.
    """
    return calendar.timegm(time.strptime(text, "%Y%m%dT%H%M%S"))


def _text(value: str) -> str:
    return value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def envelope(
    message: ForeignMessage, dialect: Dialect = Dialect.EXAMPLES, signature: str = ""
) -> str:
    """Return the SOAP envelope of ``message``, in the order of 3.1.7.2.4.

    ``signature`` is the XML element ``<Signature>``, or empty for an unsigned message.
    """
    m = message
    correlation = "" if m.correlation is None else base64.b64encode(m.correlation).decode()
    s = [
        '<se:Envelope xmlns:se="http://schemas.xmlsoap.org/soap/envelope/" xmlns="http://schemas.xmlsoap.org/srmp/">'
    ]
    s += ["<se:Header>", '<path xmlns="http://schemas.xmlsoap.org/rp/" se:mustUnderstand="1">']
    s += ["<action>", "" if m.label is None else "MSMQ:" + _text(m.label), "</action>"]
    s += ["<to>", _text(m.to), "</to>"]
    s += ["<id>", f"uuid:{m.uniquifier}@{m.lineage}", "</id>"]
    if m.response_queue is not None:
        s += ["<rev>", "<via>", _text(m.response_queue), "</via>", "</rev>"]
    s += ["</path>", '<properties se:mustUnderstand="1">']
    s += [
        "<expiresAt>",
        date(m.expires_at),
        "</expiresAt>",
        "<sentAt>",
        date(m.sent_at),
        "</sentAt>",
        "</properties>",
    ]
    s += _services(m)
    if m.stream is not None:
        s += _stream(m.stream, dialect)
    if m.msmq:
        s += ['<Msmq xmlns="msmq.namespace.xml">']
        s += [
            "<Class>",
            str(m.message_class),
            "</Class>",
            "<Priority>",
            str(m.priority),
            "</Priority>",
        ]
        # 3.1.7.2.4 prints "<Journal >" and "<DeadLetter >", which nothing closes. 2.2.6.3 has the
        # right element.
        s += ["<Journal/>"] * m.journal + ["<DeadLetter/>"] * m.dead_letter
        if m.correlation is not None:
            s += ["<Correlation>", correlation, "</Correlation>"]
        s += ["<Trace/>"] * m.trace
        if m.connector_type is not None:
            s += ["<ConnectorType>", m.connector_type, "</ConnectorType>"]
        # The examples write <App>0</App>, the text leaves a zero out.
        if m.app or dialect is Dialect.EXAMPLES:
            s += ["<App>", str(m.app), "</App>"]
        s += ["<BodyType>", str(m.body_type), "</BodyType>"]
        if m.hash_algorithm or dialect is Dialect.EXAMPLES:
            s += ["<HashAlgorithm>", str(m.hash_algorithm), "</HashAlgorithm>"]
        s += _transaction_and_provider(m)
        s += ["<SourceQmGuid>", m.source_qm or m.lineage, "</SourceQmGuid>"]
        for name, members in (
            ("Destination", m.destination_list),
            ("Admin", m.admin_list),
            ("Response", m.response_list),
        ):
            if members:
                s += [
                    f"<{name}Mqf>",
                    "".join(_text(member) + "\n" for member in members),
                    f"</{name}Mqf>",
                ]
        s += [
            "<TTrq>",
            date(m.expires_at if m.time_to_reach_queue is None else m.time_to_reach_queue),
            "</TTrq>",
            "</Msmq>",
        ]
    s += [signature] * bool(signature) + ["</se:Header>", "<se:Body></se:Body>", "</se:Envelope>"]
    return "".join(s) if dialect is not Dialect.PRINTED else _indented(s)


def _services(m: ForeignMessage) -> list[str]:
    if not (m.durable or m.delivery_receipt_to or m.commitment_receipt_to):
        return []
    s = ['<services se:mustUnderstand="1">']
    s += ["<durable/>"] * m.durable
    if m.delivery_receipt_to:
        s += [
            "<deliveryReceiptRequest>",
            "<sendTo>",
            _text(m.delivery_receipt_to),
            "</sendTo>",
            "</deliveryReceiptRequest>",
        ]
    if m.commitment_receipt_to:
        s += ["<commitmentReceiptRequest>", "<sendTo>", _text(m.commitment_receipt_to), "</sendTo>"]
        # The closing tag </commitmentReceiptRequest> is missing in 3.1.7.2.4.
        s += (
            ["<positiveOnly/>"] * m.positive_only
            + ["<negativeOnly/>"] * m.negative_only
            + ["</commitmentReceiptRequest>"]
        )
    return [*s, "</services>"]


def _stream(stream: ForeignStream, dialect: Dialect) -> list[str]:
    name = "stream" if dialect is Dialect.TEXT else "Stream"
    s = [f'<{name} se:mustUnderstand="1">', "<streamId>", stream.id, "</streamId>"]
    s += ["<current>", str(stream.current), "</current>"]
    skipped = stream.previous != stream.current - 1
    if stream.previous and (skipped or dialect is not Dialect.EXAMPLES):
        s += ["<previous>", str(stream.previous), "</previous>"]
    if stream.receipts_to is not None:
        # The examples print <expiresAt> in <start>, and <streamReceiptRequest/>, though no section
        # defines them.
        extra = ["<expiresAt>", NEVER, "</expiresAt>"] if dialect is Dialect.PRINTED else []
        s += [
            "<start>",
            "<sendReceiptsTo>",
            _text(stream.receipts_to),
            "</sendReceiptsTo>",
            *extra,
            "</start>",
        ]
        s += ["<streamReceiptRequest/>"] * (dialect is Dialect.PRINTED)
    return [*s, f"</{name}>"]


def _transaction_and_provider(m: ForeignMessage) -> list[str]:
    s: list[str] = []
    if m.first_in_transaction or m.last_in_transaction or m.connector_qm is not None:
        s += ["<Eod>", *["<First/>"] * m.first_in_transaction, *["<Last/>"] * m.last_in_transaction]
        if m.connector_qm is not None:
            s += ["<ConnectorId>", m.connector_qm, "</ConnectorId>"]
        s += ["</Eod>"]
    if m.provider_type or m.provider_name is not None:
        s += ["<Provider>", "<Type>", str(m.provider_type), "</Type>"]
        s += ["<Name>", _text(m.provider_name or ""), "</Name>", "</Provider>"]
    return s


def _indented(parts: list[str]) -> str:
    """Join the parts of an envelope, with each element on a line of its own.

    The document prints envelopes in this form. Simple values stay inside their tags. The URL of
    ``<sendReceiptsTo>`` gets its own line, as 2.2.5.3.4 and 4.4 print it.
    """
    text = parts[0]
    for before, part in itertools.pairwise(parts):
        is_value = not part.startswith("<")
        closes_value = part.startswith("</") and not before.startswith("<")
        text += part if is_value or closes_value else "\r\n" + part
    return re.sub(
        r"<sendReceiptsTo>(.*?)</sendReceiptsTo>",
        "<sendReceiptsTo>\r\n\\1\r\n</sendReceiptsTo>",
        text,
    )


@dataclass(frozen=True, slots=True)
class Post:
    """One HTTP request: its target, Content-Type and content, and the bytes to send."""

    target: str
    content_type: str
    content: bytes
    raw: bytes
    """Head and content of the request as sent."""


def http_post(target: str, host: str, content_type: str, content: bytes) -> Post:
    """Return a POST request with the header lines of chapter 4, in their order."""
    head = (
        f"POST {target} HTTP/1.1\r\nHost: {host}\r\nContent-Type: "
        f"{content_type}\r\nContent-Length: {len(content)}\r\n"
        'SOAPAction: "MSMQMessage"\r\nProxy-Accept: NonInteractiveClient\r\n\r\n'
    )
    return Post(target, content_type, content, head.encode("latin-1") + content)


def post(message: ForeignMessage, dialect: Dialect = Dialect.EXAMPLES, signature: str = "") -> Post:
    """Return the whole POST request that carries ``message``, as a multipart (2.2.2).

    The parts are envelope, body and extension; an extension of ``None`` is left out. Raises
    :class:`ValueError` if ``<to>`` is no HTTP URL with a path.
    """
    boundary = f"MSMQ - SOAP boundary, {message.uniquifier % 100_000}"
    delimiter = b"--" + boundary.encode()
    # In RFC 2046 the line end before a delimiter belongs to the delimiter.
    gap = b"\r\n" if dialect is Dialect.PRINTED else b""
    soap = envelope(message, dialect, signature).encode("utf-8")
    content = (
        delimiter
        + f"\r\nContent-Type: text/xml; charset=UTF-8\r\nContent-Length: {len(soap)}\r\n"
        "\r\n".encode()
        + soap
    )
    for name, part in (("body", message.body), ("extension", message.extension)):
        if part is None:
            continue
        head = (
            "\r\nContent-Type: application/octet-stream\r\n"
            f"Content-Length: {len(part)}\r\nContent-Id: {name}@{message.lineage}\r\n\r\n"
        )
        content += gap + delimiter + head.encode() + part
    content += gap + delimiter + b"--\r\n"
    fold = "\r\n\t" if dialect is Dialect.PRINTED else " "
    content_type = f'multipart/related; boundary="{boundary}";{fold}type=text/xml'
    return http_post(message.queue_path, message.host, content_type, content)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignReceipt:
    """A receipt as it arrived. A value that the receipt lacks is ``None``.

    ``target`` is the request target, and ``headers`` are the header lines by name in lower case.
    """

    at: float
    """Time when its last byte was read, in seconds of :func:`time.monotonic`."""
    target: str
    headers: dict[str, str]
    envelope: str
    action: str
    to: str
    message_class: int
    stream_id: str | None
    last_ordinal: int | None
    delivery_of: str | None
    """The ``<id>`` of the message inside ``<deliveryReceipt>``."""
    commitment_of: str | None
    decision: str | None


def _inside(text: str, element: str) -> str | None:
    match = re.search(
        rf"<(?:\w+:)?{element}(?:\s[^>]*)?>(.*?)</(?:\w+:)?{element}\s*>", text, re.DOTALL
    )
    return None if match is None else match[1].strip()


def read_receipt(text: str, *, at: float, target: str, headers: dict[str, str]) -> ForeignReceipt:
    """Parse the envelope ``text`` of a receipt (2.2.5.4 to 2.2.5.6).

    ``at``, ``target`` and ``headers`` are copied into the result. Raises :class:`ValueError` if
    ``<path>``, ``<Msmq>``, ``<action>``, ``<to>`` or ``<Class>`` is missing, or a number is wrong.
    """
    path, msmq = _inside(text, "path"), _inside(text, "Msmq")
    if path is None or msmq is None:
        raise ValueError(f"a receipt without <path> or <Msmq>: {text[:200]!r}")
    action, to, number = _inside(path, "action"), _inside(path, "to"), _inside(msmq, "Class")
    if action is None or to is None or number is None:
        raise ValueError(f"a receipt without <action>, <to> or <Class>: {text[:200]!r}")
    stream, delivery, commitment = (
        _inside(text, name) for name in ("streamReceipt", "deliveryReceipt", "commitmentReceipt")
    )
    ordinal = _inside(stream or "", "lastOrdinal")
    return ForeignReceipt(
        at=at,
        target=target,
        headers=headers,
        envelope=text,
        action=action.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"),
        to=to.replace("&amp;", "&"),
        message_class=int(number),
        stream_id=_inside(stream or "", "streamId"),
        last_ordinal=None if ordinal is None else int(ordinal),
        delivery_of=_inside(delivery or "", "id"),
        commitment_of=_inside(commitment or "", "id"),
        decision=_inside(commitment or "", "decision"),
    )
