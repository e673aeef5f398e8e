"""Check whether a POST is written as [MC-MQSRM] writes it.

Every deviation is a :class:`Remark`; none of them stops the message. The request head and the MIME
layout are compared with chapter 4, the envelope with the strings of 3.1.7.2.4 and the MUSTs of
chapter 2. By the lengths of chapter 4 no line end is before a MIME delimiter, and one line end is
after the last delimiter.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote

from srmp_spark.testing.foreign.incoming import RP, SOAP, Incoming, ResolvedElement, header_of

CLOCK_SLACK = 5.0
"""Tolerance when the dates of a message are compared with the clock, in seconds.

Dates have whole seconds, and sender and receiver run on one machine.
"""
FIELDS = ("Host", "Content-Type", "Content-Length", "SOAPAction", "Proxy-Accept")
"""The header lines of every request in chapter 4, in this order."""
OPENING = (
    '<se:Envelope xmlns:se="http://schemas.xmlsoap.org/soap/envelope/" xmlns="http://schemas.xmlsoap.org/srmp/"><se:Header>'
    '<path xmlns="http://schemas.xmlsoap.org/rp/" se:mustUnderstand="1"><action>'
)
CLOSING = "</se:Header><se:Body></se:Body></se:Envelope>"

ORDER: dict[str, tuple[tuple[str, ...], ...]] = {
    "Header": (("path", "properties", "services", "stream", "Msmq", "Signature"),),
    # The first is the order of 3.1.7.2.4, the second that of the receipts of 4.3 and 4.4.
    "path": (("action", "to", "id", "rev"), ("action", "to", "rev", "id")),
    "properties": (("expiresAt", "sentAt"),),
    "services": (("durable", "deliveryReceiptRequest", "commitmentReceiptRequest"),),
    "stream": (("streamId", "current", "previous", "start"),),
    "Msmq": (
        (
            *(
                "Class",
                "Priority",
                "Journal",
                "DeadLetter",
                "Correlation",
                "Trace",
                "ConnectorType",
                "App",
                "BodyType",
            ),
            *(
                "HashAlgorithm",
                "Eod",
                "Provider",
                "SourceQmGuid",
                "DestinationMqf",
                "AdminMqf",
                "ResponseMqf",
                "TTrq",
            ),
        ),
    ),
}
"""Parent element → the orders of its children that are allowed (3.1.7.2.4).

Any child may be absent.
"""


class Remark(NamedTuple):
    """A deviation from the document: the rule, its section in [MC-MQSRM], and a text for people."""

    rule: str
    """A short name of the rule, for the argument ``allow`` of a destination."""
    section: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule} ({self.section}): {self.text}"


@dataclass(frozen=True, slots=True)
class ReceivedHead:
    """The head of a request as it was received."""

    text: str
    """Request line and header lines, with CRLF between them."""

    @property
    def target(self) -> str:
        """Return the request target of the request line, or an empty text if there is none."""
        words = self.text.split("\r\n")[0].split(" ")
        return words[1] if len(words) > 1 else ""

    def field(self, name: str) -> str | None:
        """Return the value of the header line ``name``, or ``None`` if the head lacks it.

        The case of ``name`` does not matter. Raises :class:`MalformedError` if the header line
        appears twice.
        """
        return header_of(self.text.partition("\r\n")[2], name)


def remarks(head: ReceivedHead, content: bytes, message: Incoming, now: float) -> Iterator[Remark]:
    """Yield every deviation of this POST from the document.

    ``content`` is the body of the request, and ``message`` is parsed from it. ``now`` is in seconds
    since 1970. Raises :class:`MalformedError` if a header line that is compared appears twice.
    """
    yield from _head(head, message)
    yield from _layout(head, content, message)
    yield from _envelope(message)
    yield from _dates(message, now)


def _head(head: ReceivedHead, message: Incoming) -> Iterator[Remark]:
    if not re.fullmatch(r"POST \S+ HTTP/1\.1", head.text.split("\r\n")[0]):
        yield Remark("request-line", "4", f"{head.text.split(chr(13))[0]!r}")
    names = [line.partition(":")[0] for line in head.text.split("\r\n")[1:]]
    if [name for name in names if name in FIELDS] != list(FIELDS):
        yield Remark("head", "4", f"the header lines are {names}, chapter 4 has {list(FIELDS)}")
    for name, wanted in (("SOAPAction", '"MSMQMessage"'), ("Proxy-Accept", "NonInteractiveClient")):
        if head.field(name) != wanted:
            yield Remark("head", "4", f"{name} is {head.field(name)!r}, not {wanted!r}")
    match = re.match("https?://([^/]+)(/.*)", message.to, re.IGNORECASE)
    if match is None:
        yield Remark("to", "2.2.4.2", f"<to> begins with http:// or https://: {message.to!r}")
        return
    if (head.field("Host") or "").lower() != match[1].lower():
        yield Remark("host", "4", f"Host is {head.field('Host')!r}, <to> says {match[1]!r}")
    if unquote(head.target).lower() != unquote(match[2]).lower():
        yield Remark(
            "target", "4", f"the request target is {head.target!r}, <to> says {match[2]!r}"
        )


def _layout(head: ReceivedHead, content: bytes, message: Incoming) -> Iterator[Remark]:
    content_type, whole = head.field("Content-Type") or "", message.parts
    if whole is None:
        if content_type != "text/xml" and not message.is_receipt:
            yield Remark("content-type", "4", f"{content_type!r}")
        return
    if not re.fullmatch(
        r'multipart/related; boundary="MSMQ - SOAP boundary, [0-9]+"; type=text/xml', content_type
    ):
        yield Remark("content-type", "4", f"{content_type!r}")
    if any(part.gap for part in whole.parts) or whole.last_gap:
        yield Remark(
            "line-end-before-delimiter", "4", "the lengths of chapter 4 leave no room for it"
        )
    if whole.tail != b"\r\n":
        yield Remark(
            "tail", "4", f"behind the last delimiter stands {whole.tail!r}, not one line end"
        )
    first, *others = whole.parts
    if (
        first.head
        != f"Content-Type: text/xml; charset=UTF-8\r\nContent-Length: {len(first.content)}"
    ):
        yield Remark("part-head", "4", f"the head of the envelope is {first.head!r}")
    wanted = (
        "Content-Type: application/octet-stream\r\nContent-Length: {}\r\nContent-Id: "
        "(body|extension)@[0-9a-fA-F-]{{36}}"
    )
    for part in others:
        if not re.fullmatch(wanted.format(len(part.content)), part.head):
            yield Remark("part-head", "4", f"the head of an attachment is {part.head!r}")


def _envelope(message: Incoming) -> Iterator[Remark]:
    try:
        text = message.envelope.decode("utf-8")
    except UnicodeDecodeError as error:
        yield Remark("utf-8", "4", str(error))
        return
    if not text.startswith(OPENING) or not text.endswith(CLOSING):
        yield Remark("envelope-literal", "3.1.7.2.4", f"begins {text[:120]!r}, ends {text[-60:]!r}")
    if re.search(r">\s+<", text):
        yield Remark("envelope-flat", "3.1.7.2.4", "nothing is appended between two elements")
    yield from _order(message.root.children[0])
    header = message.root.children[0]
    for child in header.children:
        if child.name.lower() in ("path", "properties", "services", "stream"):
            if child.attributes.get(f"{SOAP} mustUnderstand") != "1":
                yield Remark(
                    "must-understand",
                    "2.2.5",
                    f'<{child.name}> is not marked se:mustUnderstand="1"',
                )
        elif child.attributes:
            yield Remark(
                "attributes", "3.1.7.2.4", f"<{child.name}> has attributes {child.attributes}"
            )
    path = header.find("path", space=RP)
    action = path and path.find("action", space=RP)
    if message.label is None and action is not None and action.text:
        yield Remark("action", "2.2.4.1", "a label is prefixed by MSMQ:")
    if message.source_qm not in (None, message.lineage):
        yield Remark(
            "source-qm",
            "2.2.4.3",
            f"<id> is of {message.lineage}, <SourceQmGuid> is {message.source_qm}",
        )
    if message.stream is not None:
        if not message.durable:
            yield Remark("durable", "2.2.5.2.1", "a stream message without <durable/>")
        if not message.has_msmq:
            yield Remark("msmq", "2.2.5.3", "a stream message without <Msmq>")


def _order(header: ResolvedElement) -> Iterator[Remark]:
    for parent in (header, *header.children):
        name = "stream" if parent.name == "Stream" else parent.name
        found = ["stream" if child.name == "Stream" else child.name for child in parent.children]
        if name in ORDER and not any(
            _rises([allowed.index(n) for n in found if n in allowed]) for allowed in ORDER[name]
        ):
            yield Remark("order", "3.1.7.2.4", f"the children of <{parent.name}> are {found}")


def _rises(numbers: list[int]) -> bool:
    return all(here < following for here, following in itertools.pairwise(numbers))


def _dates(message: Incoming, now: float) -> Iterator[Remark]:
    sent = message.sent_at
    if sent is not None:
        if sent > now + CLOCK_SLACK:
            yield Remark(
                "sent-at", "2.2.5.1.2", f"sent {sent - now:.0f} s in the future: is it UTC?"
            )
        if message.expires_at < sent or message.gone_after < sent:
            yield Remark(
                "expires-before-sent", "3.1.7.2.4", "expiresAt and TTrq are sentAt plus a time span"
            )
    if now > message.gone_after + CLOCK_SLACK:
        yield Remark(
            "expired", "3.1.7.2.1", f"sent {now - message.gone_after:.0f} s after it expired"
        )
