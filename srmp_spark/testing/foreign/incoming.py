"""Parse a received POST by [MC-MQSRM] chapter 2.

MIME is split by lengths, XML is read by expat, and values have the types of 2.2.1. The module is
independent of the package's codec: only expat comes from the standard library. A POST that chapter
2 forbids raises :class:`MalformedError`, which a destination answers with 400 (3.1.5.1.2). Mere
differences from chapter 4 are judged in ``form``.
"""

from __future__ import annotations

import calendar
import hashlib
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple
from xml.parsers import expat

SOAP = "http://schemas.xmlsoap.org/soap/envelope/"
RP = "http://schemas.xmlsoap.org/rp/"
SRMP = "http://schemas.xmlsoap.org/srmp/"
MSMQ = "msmq.namespace.xml"
NULL_GUID = "00000000-0000-0000-0000-000000000000"
UNDERSTOOD = {
    *((SRMP, name) for name in ("properties", "services", "stream", "Stream")),
    *((SRMP, name) for name in ("deliveryReceipt", "commitmentReceipt", "streamReceipt")),
    (RP, "path"),
    (MSMQ, "Msmq"),
    ("http://www.w3.org/2000/02/xmldsig#", "Signature"),
}
"""The header entries of 2.2.4 to 2.2.7, as pairs of namespace and name.

Any other entry that is marked ``mustUnderstand`` raises :class:`MalformedError`.
"""
UNSIGNED_LONG_MAX = 2**64 - 1
"""Largest value of an xs:unsignedLong (2.2.1.3)."""
DEPTH_MAX = 16
"""Most levels of nested elements.

SRMP nests seven deep; more raises :class:`MalformedError`.
"""
PARTS_MAX = 3
"""Most parts: envelope, body, extension (2.2.2). More raises :class:`MalformedError`."""

_GUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_ID = re.compile(rf"uuid:([0-9]+)@({_GUID})")
_STREAM_ID = re.compile(rf"uid:({_GUID})\\([0-9]+)")
_MULTIPART = re.compile(
    r'multipart/related\s*;(?:.*;)?\s*boundary=(?:"([^"\r\n]{1,70})"|([^\s";]{1,70}))\s*(?:;.*)?',
    re.I | re.S,
)


class MalformedError(Exception):
    """Raised when a POST does not conform to chapter 2. The answer is 400 (3.1.5.1.2).

    ``section`` is the section of [MC-MQSRM] that the POST violates, ``text`` says how.
    """

    def __init__(self, section: str, text: str) -> None:
        super().__init__(f"{section}: {text}")
        self.section = section
        self.text = text


@dataclass(slots=True)
class ResolvedElement:
    """An XML element with its namespace resolved.

    ``space`` is the namespace. Names of ``attributes`` are ``NAMESPACE NAME``, or only the name.
    """

    space: str
    name: str
    attributes: dict[str, str]
    children: list[ResolvedElement] = field(default_factory=list)
    text: str = ""
    """All character data directly inside the element."""

    def find(self, *names: str, space: str) -> ResolvedElement | None:
        """Return the child with one of these names in namespace ``space``, or ``None``.

        Raises :class:`MalformedError` if there are several.
        """
        found = [child for child in self.children if child.space == space and child.name in names]
        if len(found) > 1:
            raise MalformedError("2.2", f"<{names[0]}> stands {len(found)} times in <{self.name}>")
        return found[0] if found else None

    def need(self, *names: str, space: str, section: str) -> ResolvedElement:
        """Return the child with one of these names in namespace ``space``.

        Raises :class:`MalformedError`, with ``section``, if there is none. Raises it also if there
        are several.
        """
        found = self.find(*names, space=space)
        if found is None:
            raise MalformedError(section, f"<{names[0]}> is missing in <{self.name}>")
        return found

    @property
    def value(self) -> str:
        """Return the text of the element without the white space around the text.

        2.2.5.3.4 prints a URL on a line of its own.
        """
        return self.text.strip()


def read_xml(data: bytes) -> ResolvedElement:
    """Parse the bytes of an envelope and return its top element.

    Raises :class:`MalformedError` if the data is no XML in UTF-8, nests deeper than
    :data:`DEPTH_MAX`, or has a DOCTYPE.
    """
    stack: list[ResolvedElement] = []
    roots: list[ResolvedElement] = []
    parser = expat.ParserCreate("UTF-8", " ")

    def start(name: str, attributes: dict[str, str]) -> None:
        space, _, local = name.rpartition(" ")
        element = ResolvedElement(space, local, attributes)
        (stack[-1].children if stack else roots).append(element)
        stack.append(element)
        if len(stack) > DEPTH_MAX:
            raise MalformedError("2.2.2", "elements nest too deep")

    def end(_name: str) -> None:
        stack.pop()

    def characters(text: str) -> None:
        stack[-1].text += text

    def doctype(*_arguments: object) -> None:
        raise MalformedError("2.2", "a DOCTYPE")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = characters, doctype
    parser.buffer_text = True
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, ValueError) as error:
        raise MalformedError("2.2", f"not XML: {error}") from error
    return roots[0]


class MimePart(NamedTuple):
    """One MIME part of a POST."""

    head: str
    """Header lines of the part, with CRLF between them."""
    content: bytes
    gap: bytes
    """The line end between the part before and the delimiter of this part, or empty."""


class Multipart(NamedTuple):
    """The parts of a POST's content, and the bytes around them."""

    boundary: str
    parts: tuple[MimePart, ...]
    last_gap: bytes
    """The line end before the closing delimiter, or empty."""
    tail: bytes
    """Bytes after the closing delimiter."""


def header_of(head: str, name: str) -> str | None:
    """Return the value of the header line ``name``, or ``None`` if ``head`` lacks it.

    ``head`` has the header lines with CRLF between them. The case of ``name`` does not matter.
    Raises :class:`MalformedError` if the header line appears twice.
    """
    values = [
        line.partition(":")[2].strip()
        for line in head.split("\r\n")
        if line.partition(":")[0].lower() == name.lower()
    ]
    if len(values) > 1:
        raise MalformedError("2.1.1", f"two {name}")
    return values[0] if values else None


def read_multipart(content_type: str, content: bytes) -> Multipart | None:
    """Split the content of a POST into its parts, by the Content-Length of each part.

    A line end before a delimiter is allowed and not required. Return ``None`` for the Content-Type
    ``text/xml``, whose content is only an envelope. Raises :class:`MalformedError` for any other
    Content-Type, and for a content that does not have this layout.
    """
    if content_type.partition(";")[0].strip().lower() == "text/xml":
        return None
    match = _MULTIPART.fullmatch(content_type.strip())
    if match is None:
        raise MalformedError(
            "2.2.2", f"Content-Type is neither text/xml nor multipart/related: {content_type!r}"
        )
    boundary = match[1] or match[2]
    delimiter = b"--" + boundary.encode("latin-1")
    parts: list[MimePart] = []
    at = 0
    while True:
        gap = b"\r\n" if parts and content.startswith(b"\r\n" + delimiter, at) else b""
        at += len(gap)
        if not content.startswith(delimiter, at):
            raise MalformedError(
                "2.2.2", f"no delimiter at offset {at}, where the part's Content-Length ends"
            )
        at += len(delimiter)
        if content.startswith(b"--", at) and parts:
            return Multipart(boundary, tuple(parts), gap, content[at + 2 :])
        end = content.find(b"\r\n\r\n", at)
        if not content.startswith(b"\r\n", at) or end < 0 or len(parts) == PARTS_MAX:
            raise MalformedError("2.2.2", "a part without a head, or too many parts")
        head = content[at + 2 : end].decode("latin-1")
        length = header_of(head, "Content-Length")
        if (
            length is None
            or not re.fullmatch("[0-9]{1,10}", length)
            or end + 4 + int(length) > len(content)
        ):
            raise MalformedError("2.2.2", f"Content-Length of part {len(parts) + 1} is {length!r}")
        at = end + 4 + int(length)
        parts.append(MimePart(head, content[end + 4 : at], gap))


def unsigned(text: str, section: str) -> int:
    """Return the value of an xs:unsignedLong. Raises :class:`MalformedError` for any other text.

    ``section`` is the section that the error names.
    """
    if not re.fullmatch("[0-9]{1,20}", text) or int(text) > UNSIGNED_LONG_MAX:
        raise MalformedError(section, f"not an xs:unsignedLong: {text!r}")
    return int(text)


def seconds(text: str, section: str) -> int:
    """Return the seconds since 1970 of an ISO 8601 Date String (2.2.1.2), read as UTC.

    Raises :class:`MalformedError`, with ``section``, for any other text.
    """
    if not re.fullmatch(r"[0-9]{8}T[0-9]{6}", text):
        raise MalformedError(section, f"not YYYYMMDDThhmmss: {text!r}")
    try:
        return calendar.timegm(time.strptime(text, "%Y%m%dT%H%M%S"))
    except ValueError as error:
        raise MalformedError(section, f"not a date: {text!r} ({error})") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlace:
    """The values of ``<stream>`` (2.2.5.3): which stream a message belongs to, and its position.

    ``start`` says whether ``<start>`` is there, ``receipts_to`` is its URL for stream receipts.
    """

    guid: str
    ordinal: int
    current: int
    written_previous: int | None
    """Value of ``<previous>``; ``None`` without the element."""
    start: bool
    receipts_to: str | None

    @property
    def id(self) -> str:
        r"""Return the stream identifier ``uid:GUID\N``."""
        return f"uid:{self.guid}\\{self.ordinal}"

    @property
    def previous(self) -> int:
        """Return the position of the message that must be accepted before this one.

        Without ``<previous>`` it is ``current`` - 1 (3.1.1.2, which prints "<previous> - 1").
        """
        return self.current - 1 if self.written_previous is None else self.written_previous


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """One SRMP message as 3.1.5.1.1 deserializes it. Times are in seconds since 1970."""

    root: ResolvedElement
    parts: Multipart | None
    envelope: bytes
    body: bytes
    extension: bytes
    label: str | None
    to: str
    lineage: str
    uniquifier: int
    has_msmq: bool
    source_qm: str | None
    sent_at: int | None
    expires_at: int
    reach_by: int | None
    """Time of ``<TTrq>``; ``None`` without the element."""
    durable: bool
    delivery_receipt_to: str | None
    commitment_receipt_to: str | None
    positive_only: bool
    negative_only: bool
    stream: StreamPlace | None
    message_class: int
    dead_letter: bool
    is_receipt: bool

    @property
    def gone_after(self) -> int:
        """Return the time after which a sender may no longer send the message.

        ``<TTrq>`` takes precedence over ``<expiresAt>`` (3.1.5.1.4).
        """
        return self.expires_at if self.reach_by is None else self.reach_by

    @property
    def is_user_message(self) -> bool:
        """Return whether the message has class 0 and no receipt element (3.1.5.1.5)."""
        return self.message_class == 0 and not self.is_receipt

    @property
    def has_identifier(self) -> bool:
        """Return whether the identifier can be used to detect duplicates (3.1.5.1.11).

        Return ``False`` for the null GUID and 1, which a message without ``<Msmq>`` has.
        """
        return (self.lineage, self.uniquifier) != (NULL_GUID, 1)

    @property
    def digest(self) -> str:
        """Return :func:`digest_of` the body and the extension."""
        return digest_of(self.body, self.extension)


def digest_of(body: bytes, extension: bytes = b"") -> str:
    """Return the digest of a body and its extension: 24 hexadecimal digits of a SHA-256."""
    return hashlib.sha256(b"%d " % len(body) + body + extension).hexdigest()[:24]


def _attachments(parts: Iterable[MimePart]) -> dict[str, bytes]:
    """Return body and extension of a message, empty if there is none."""
    found = {"body": b"", "extension": b""}
    for part in parts:
        kind = (header_of(part.head, "Content-Id") or "").partition("@")[0]
        if kind not in found or found[kind]:
            raise MalformedError(
                "2.2.2", f"an attachment is body@… or extension@…, once: {part.head!r}"
            )
        found[kind] = part.content
    return found


def read_message(content_type: str, content: bytes) -> Incoming:
    """Return the message that the content of a POST holds.

    Raises :class:`MalformedError` if the POST does not conform to chapter 2.
    """
    parts = read_multipart(content_type, content)
    envelope = content if parts is None else parts.parts[0].content
    attachments = _attachments(() if parts is None else parts.parts[1:])
    root = read_xml(envelope)
    if (root.space, root.name) != (SOAP, "Envelope"):
        raise MalformedError("2.2.2", f"the top element is <{root.name}>")
    if [(child.space, child.name) for child in root.children] != [(SOAP, "Header"), (SOAP, "Body")]:
        raise MalformedError("2.2.2", "an Envelope is a Header and a Body")
    header = root.children[0]
    for child in header.children:
        if (child.space, child.name) not in UNDERSTOOD and child.attributes.get(
            f"{SOAP} mustUnderstand"
        ) == "1":
            raise MalformedError(
                "2.2.2", f"<{child.name}> must be understood and is not (SOAP 1.1, 4.2.3)"
            )
    path = header.need("path", space=RP, section="2.2.4")
    properties = header.need("properties", space=SRMP, section="2.2.5.1")
    services, msmq = header.find("services", space=SRMP), header.find("Msmq", space=MSMQ)
    lineage, uniquifier = _identifier(path, msmq)
    action = path.need("action", space=RP, section="2.2.4.1").value
    sent = properties.find("sentAt", space=SRMP)
    request = services and services.find("commitmentReceiptRequest", space=SRMP)
    return Incoming(
        root=root,
        parts=parts,
        envelope=envelope,
        body=attachments["body"],
        extension=attachments["extension"],
        label=action[5:] if action.startswith("MSMQ:") else None,
        to=path.need("to", space=RP, section="2.2.4.2").value,
        lineage=lineage,
        uniquifier=uniquifier,
        has_msmq=msmq is not None,
        source_qm=None
        if msmq is None
        else _guid(msmq.need("SourceQmGuid", space=MSMQ, section="2.2.6.13")),
        sent_at=None if sent is None else seconds(sent.value, "2.2.5.1.2"),
        expires_at=seconds(
            properties.need("expiresAt", space=SRMP, section="2.2.5.1.1").value, "2.2.5.1.1"
        ),
        reach_by=None
        if msmq is None
        else seconds(msmq.need("TTrq", space=MSMQ, section="2.2.6.17").value, "2.2.6.17"),
        durable=services is not None and services.find("durable", space=SRMP) is not None,
        delivery_receipt_to=_send_to(
            services and services.find("deliveryReceiptRequest", space=SRMP), "2.2.5.2.2"
        ),
        commitment_receipt_to=_send_to(request, "2.2.5.2.3"),
        positive_only=request is not None and request.find("positiveOnly", space=SRMP) is not None,
        negative_only=request is not None and request.find("negativeOnly", space=SRMP) is not None,
        stream=_place(header.find("stream", "Stream", space=SRMP)),
        message_class=0 if msmq is None else _number(msmq, "Class", "2.2.6.1"),
        dead_letter=msmq is not None
        and msmq.find("DeadLetter", "Deadletter", space=MSMQ) is not None,
        is_receipt=any(
            header.find(name, space=SRMP) is not None
            for name in ("streamReceipt", "deliveryReceipt", "commitmentReceipt")
        ),
    )


def _number(msmq: ResolvedElement, name: str, section: str) -> int:
    return unsigned(msmq.need(name, space=MSMQ, section=section).value, section)


def _guid(element: ResolvedElement) -> str:
    if not re.fullmatch(_GUID, element.value):
        raise MalformedError("2.2.1.1", f"not a GUID: {element.value!r}")
    return element.value.lower()


def _identifier(path: ResolvedElement, msmq: ResolvedElement | None) -> tuple[str, int]:
    """Return the lineage (GUID in lower case) and the uniquifier of the message.

    Without ``<Msmq>`` the ``<id>`` is ignored, and the result is the null GUID and 1 (3.1.5.1.1).
    Raises :class:`MalformedError` if ``<id>`` is missing or, with ``<Msmq>``, is no identifier.
    """
    text = path.need("id", space=RP, section="2.2.4.3").value
    if msmq is None:
        return NULL_GUID, 1
    match = _ID.fullmatch(text)
    if match is None:
        raise MalformedError("2.2.4.3", f"not uuid:N@GUID: {text!r}")
    return match[2].lower(), unsigned(match[1], "2.2.4.3")


def _send_to(request: ResolvedElement | None, section: str) -> str | None:
    return (
        None
        if request is None
        else _url(request.need("sendTo", space=SRMP, section=section), section)
    )


def _url(element: ResolvedElement, section: str) -> str:
    if not re.match("https?://[^/]+/", element.value, re.IGNORECASE):
        raise MalformedError(section, f"<{element.name}> is not an HTTP URL: {element.value!r}")
    return element.value


def _place(stream: ResolvedElement | None) -> StreamPlace | None:
    if stream is None:
        return None
    text = stream.need("streamId", space=SRMP, section="2.2.5.3.1").value
    match = _STREAM_ID.fullmatch(text)
    if match is None:
        raise MalformedError("2.2.5.3.1", f"not uid:GUID\\N: {text!r}")
    previous, start = stream.find("previous", space=SRMP), stream.find("start", space=SRMP)
    return StreamPlace(
        guid=match[1].lower(),
        ordinal=unsigned(match[2], "2.2.5.3.1"),
        current=unsigned(
            stream.need("current", space=SRMP, section="2.2.5.3.2").value, "2.2.5.3.2"
        ),
        written_previous=None if previous is None else unsigned(previous.value, "2.2.5.3.3"),
        start=start is not None,
        receipts_to=_receipts_to(start),
    )


def _receipts_to(start: ResolvedElement | None) -> str | None:
    return (
        None
        if start is None
        else _url(start.need("sendReceiptsTo", space=SRMP, section="2.2.5.3.4"), "2.2.5.3.4")
    )
