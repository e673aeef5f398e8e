"""A forwarded message: what changes in it, what is stored while it waits, and who forwarded it.

**What is stored** is the envelope of the message (:func:`forwarded`), and its body and extension as
separate fields. :func:`restored` builds the message from these again. A message is accepted only if
this gives the same message (:func:`unforwardable`). A message that could not be read again would
block all other messages for its destination.

**Hops.** A forwarded message keeps the identifier of its sender, so a receiver that gets it twice
recognizes it. The message also carries ``Via: 1.1 srmp-GUID, …`` (RFC 9110 7.6.3) with a mark of
each queue manager that forwarded it. A queue manager that finds its own mark refuses the message
permanently. A message with :data:`HOPS_MAX` marks is not forwarded again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from srmp_spark.errors import LocalProtocolError, RemoteProtocolError
from srmp_spark.message import CLASS_NORMAL, Message
from srmp_spark.srmp.codec.decoder import decode
from srmp_spark.srmp.codec.encoder import CALG_SHA1, NO_CORRELATION, encode_envelope
from srmp_spark.srmp.codec.http_head import unfold
from srmp_spark.srmp.limits import ENVELOPE_MAX

HOPS_MAX = 8
"""Most queue managers that may have forwarded a message before this one.

More marks mean a loop through a queue manager that leaves no mark, so the message is refused.
"""
FORWARDED_ENVELOPE_MAX = ENVELOPE_MAX - 8_192
"""Longest envelope of a forwarded message as :func:`forwarded` writes it, in bytes; a message with
a longer one is refused. The rest up to ``ENVELOPE_MAX`` is room for what is added later:
``<Stream>`` with the address for receipts, a message identifier, and a longer ``<to>`` after a
redirection. Each URL has up to 2,048 characters.
"""
NUMBER_MAX = 2**63 - 1
"""Largest ``<App>`` and ``<BodyType>`` that a column of the outbox and of the state tables can
hold. Numbers of MSMQ have 32 bits ([MS-MQMQ] 2.3.1.1), xs:unsignedLong has 64. A message with a
larger number is refused.
"""
REACH_MAX = (2**31 - 1) * 1_000_000
"""2038-01-19T03:14:07 in microseconds since 1970.

MSMQ has 32 bits for seconds, so this time and any later time mean "never".
"""

_VIA = re.compile(rb"\r\nvia:[ \t]*([^\r\n]*(?:\r\n[ \t]+[^\r\n]*)*)", re.IGNORECASE)
_HOP = re.compile(r"\A[0-9]\.[0-9] srmp-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\Z")

# --- the message ----------------------------------------------------------------------------------


def forwarded(message: Message, to: str) -> Message:
    """Return ``message`` as it is sent on to ``to``, without body, extension and stream position.

    The stream of the message ends at this queue manager. All other properties stay: the identifier
    and source (3.1.7.2.4 writes those of the message), the class, the requested receipts, the
    times. The specification keeps ``<to>`` unchanged when a redirection leads to another host,
    which would then have to know the name of this queue manager. This function writes the target
    into ``<to>`` instead. A message without an identifier gets one of this queue manager when it is
    sent (:meth:`~srmp_spark.message.Message.has_identity`).
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
    """Return the message whose :func:`forwarded` is ``envelope``, with its body and extension.

    ``body`` and ``extension`` are stored separately. Raises :class:`RemoteProtocolError` if the
    envelope cannot be read.
    """
    message = decode(b"text/xml", envelope)
    return message._replace(
        body=body or b"",
        extension=extension,
        expires_at=_ends(message.expires_at),
        time_to_reach_queue=_ends(message.time_to_reach_queue),
    )


def unforwardable(message: Message) -> str | None:
    """Return the reason why ``message`` cannot be sent on unchanged; ``None`` if it can be.

    A message is never changed in order to send it on.
    """
    if message.signature != "none":
        return "its XML signature would become invalid, because <to> and <stream> change"
    if message.receipt is not None and (message.body or message.extension is not None):
        return "a receipt with a body cannot be written ([MC-MQSRM] 2.2.2)"
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
    """Return the reason not to accept a new ``message`` for forwarding, or ``None`` if it may be.

    The sender of a stream message with ``<DeadLetter/>`` keeps the message until a final stream
    receipt states its fate (3.1.7.3.3). That receipt names a position in the sender's stream, which
    ends at this queue manager. The message that is sent on has a position in a stream of this queue
    manager. No queue manager could send the receipt, and the sender would treat a delivered message
    as a dead letter.
    """
    if message.stream is not None and message.dead_letter:
        return (
            "it asks for a final stream receipt (<DeadLetter/>), and its stream ends "
            "here: send it there directly, or without "
            "negative source journaling"
        )
    return None


def _said(message: Message) -> Message:
    """Return the message with one value for each pair of equivalent values, to compare messages.

    An absent value becomes the value that :mod:`.encoder` writes for it, or the reverse.
    """
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
    """Return ``None`` for a time that means "never" (:data:`REACH_MAX`), else the time itself."""
    return None if until is None or until >= REACH_MAX else until


# --- hops -----------------------------------------------------------------------------------------


def hops_of(via: bytes) -> tuple[str, ...]:
    """Return the GUIDs of the queue managers that forwarded a message, the first one first.

    ``via`` is the value of its ``Via`` field. Marks of other programs are ignored.
    """
    found = (_HOP.match(part.strip().lower()) for part in via.decode("latin-1").split(","))
    return tuple(match[1] for match in found if match is not None)


def hops_in_head(head: bytes) -> tuple[str, ...]:
    """Return the GUIDs of the queue managers that forwarded a stored POST, from its head.

    They are those of :func:`hops_of` for its ``Via`` field.
    """
    return hops_of(b",".join(unfold(match) for match in _VIA.findall(head)))


def via_of(hops: Sequence[str]) -> str:
    """Return the value of ``Via`` for these hops."""
    return ", ".join(f"1.1 srmp-{guid}" for guid in hops)
