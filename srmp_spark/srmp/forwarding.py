"""A message that is forwarded: what of it changes, what is kept of it while it waits, and who forwarded it before.

**What is kept** is its envelope (:func:`forwarded`), with body and extension beside it; :func:`restored` is the way back. A
message is taken only if that way leads back to it (:func:`unforwardable`): one that could not be read again would hold all
others that wait for its destination.

**Hops.** What is forwarded keeps the identifier of its sender, so whoever gets it twice knows it. It also carries
``Via: 1.1 srmp-GUID, …`` (RFC 9110 7.6.3), a mark of each queue manager that forwarded it: one that finds its own mark refuses
the message for good, and one that is full of :data:`HOPS_MAX` marks is not forwarded any further.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from srmp_spark.errors import LocalProtocolError, RemoteProtocolError
from srmp_spark.message import CLASS_NORMAL, Message
from srmp_spark.srmp.decoder import decode
from srmp_spark.srmp.encoder import CALG_SHA1, NO_CORRELATION, encode_envelope
from srmp_spark.srmp.http_head import unfold
from srmp_spark.srmp.limits import ENVELOPE_MAX

HOPS_MAX = 8
"""Queue managers that may have forwarded a message before us: more is a loop through one that leaves no mark."""
FORWARDED_ENVELOPE_MAX = ENVELOPE_MAX - 8_192
"""Bytes of an envelope as we write it again. The rest is room for what comes on the way: ``<Stream>`` with the address of our
receipts, an identity, and a ``<to>`` that a redirection makes longer, each up to 2,048 characters of a URL."""
NUMBER_MAX = 2**63 - 1
"""Of ``<App>`` and ``<BodyType>``: what a column of the outbox and of the state tables holds. MSMQ's own have 32 bits
([MS-MQMQ] 2.3.1.1), xs:unsignedLong has 64."""
REACH_MAX = (2**31 - 1) * 1_000_000
"""2038-01-19T03:14:07: MSMQ has 32 bits for the seconds, so what is later means never."""

_VIA = re.compile(rb"\r\nvia:[ \t]*([^\r\n]*(?:\r\n[ \t]+[^\r\n]*)*)", re.IGNORECASE)
_HOP = re.compile(r"\A[0-9]\.[0-9] srmp-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\Z")

# --- the message ------------------------------------------------------------------------------------------------------------


def forwarded(message: Message, to: str) -> Message:
    """``message`` as it goes on to ``to``, without body, extension and its place in the stream that ends here.

    All else stays: identifier and source (3.1.7.2.4 writes those of the message), class, receipts that it asks for, times. The
    text also leaves ``<to>`` when a redirection leads to another host, which then had to know our name; here it is the target.
    What has no identity gets ours when it is sent: :meth:`~srmp_spark.message.Message.has_identity`.
    """
    return message._replace(
        destination=to[7:] if to[:7].upper() == "DIRECT=" else to,
        stream=None,
        body=b"",
        extension=None,
        has_msmq=True,
        durable=message.durable or message.stream is not None,
        soap_action=None,
        source_qm=message.lineage if message.source_qm is not None else None,
    )


def restored(envelope: bytes, body: bytes | None, extension: bytes | None) -> Message:
    """The message whose :func:`forwarded` is ``envelope``. Raises :class:`RemoteProtocolError` if it cannot be read."""
    message = decode(b"text/xml", envelope)
    return message._replace(
        body=body or b"",
        extension=extension,
        expires_at=_ends(message.expires_at),
        time_to_reach_queue=_ends(message.time_to_reach_queue),
    )


def unforwardable(message: Message) -> str | None:
    """Why ``message`` cannot be sent on as it is; ``None`` if it can. A change that nobody asked for is no way out."""
    if message.signature != "none":
        return "its XML signature would not survive: <to> and <stream> change on the way"
    if message.receipt is not None and (message.body or message.extension is not None):
        return "a receipt with a body is none that can be written ([MC-MQSRM] 2.2.2)"
    for name, number in (("App", message.app_specific), ("BodyType", message.body_type)):
        if number > NUMBER_MAX:
            return f"<{name}> is {number}, more than the {NUMBER_MAX} that can be stored"
    sent = forwarded(message, message.destination)
    try:
        envelope = encode_envelope(sent)
    except LocalProtocolError as error:
        return str(error)
    if len(envelope) > FORWARDED_ENVELOPE_MAX:
        limit = f"FORWARDED_ENVELOPE_MAX is {FORWARDED_ENVELOPE_MAX}"
        return f"its envelope becomes {len(envelope)} bytes when it is written again, {limit}"
    try:
        found = restored(envelope, None, None)
    except RemoteProtocolError as error:
        return f"its envelope cannot be read when it is written again: {error}"
    lost = [
        name
        for name, was, now in zip(Message._fields, _said(sent), _said(found), strict=True)
        if was != now
    ]
    return f"{', '.join(lost)} would change when it is written again" if lost else None


def ends_here(message: Message) -> str | None:
    """Why ``message`` must not be taken from its sender at all, if it is new; ``None`` if it may be.

    A stream message with ``<DeadLetter/>`` stays with its sender until a final stream receipt says what became of it
    (3.1.7.3.3). That receipt names a place in the sender's stream, which ends here, and what we send on has a place in ours:
    nobody could send it, and the sender would take a message that was delivered for a dead letter.
    """
    if message.stream is not None and message.dead_letter:
        return (
            "it asks for a final stream receipt (<DeadLetter/>), and its stream ends "
            "here: send it there directly, or without "
            "negative source journaling"
        )
    return None


def _said(message: Message) -> Message:
    """With what stands for the same said in one way: what is absent and what is written for it (:mod:`.encoder`)."""
    hash_algorithm = message.hash_algorithm
    if hash_algorithm is None:
        hash_algorithm = (
            CALG_SHA1 if message.message_class == CLASS_NORMAL and message.receipt is None else 0
        )
    return message._replace(
        expires_at=_ends(message.expires_at),
        time_to_reach_queue=_ends(message.time_to_reach_queue),
        correlation=None if message.correlation == NO_CORRELATION else message.correlation,
        hash_algorithm=hash_algorithm,
        source_qm=message.source_qm or message.lineage,
    )


def _ends(until: int | None) -> int | None:
    """Windows' word for never is a date (:data:`REACH_MAX`)."""
    return None if until is None or until >= REACH_MAX else until


# --- hops -----------------------------------------------------------------------------------------------------------------


def hops_of(via: bytes) -> tuple[str, ...]:
    """The GUIDs of the queue managers that forwarded a message, from the value of its ``Via``; other marks are not ours."""
    found = (_HOP.match(part.strip().lower()) for part in via.decode("latin-1").split(","))
    return tuple(match[1] for match in found if match is not None)


def hops_in_head(head: bytes) -> tuple[str, ...]:
    """The same from the head of a stored POST."""
    return hops_of(b",".join(unfold(match) for match in _VIA.findall(head)))


def via_of(hops: Sequence[str]) -> str:
    """The value of ``Via``."""
    return ", ".join(f"1.1 srmp-{guid}" for guid in hops)
