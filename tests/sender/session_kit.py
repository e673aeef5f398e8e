"""A destination of a reliable session, its messages, and the answers of a service, for tests of the wire alone."""

from __future__ import annotations

from typing import Any

from srmp_spark.message import Message
from srmp_spark.srmp.receiving.effects import Committed
from srmp_spark.srmp.sending.outgoing_effects import QueueKey, Send, StoredMessage
from srmp_spark.wsrm.codec.elements import (
    CloseSequence,
    CloseSequenceResponse,
    SoapMessage,
    TerminateSequence,
    TerminateSequenceResponse,
)
from srmp_spark.wsrm.codec.versions import Versions

URL = "http://127.0.0.1:1/Orders.svc"
KEY = QueueKey(f"wsrm:{URL}", "plain")
GUID = "aaaaaaaa-0000-4000-8000-000000000001"


def send_of(serial: int) -> Send:
    message = Message(KEY.destination, "urn:a", GUID, serial, body=b"<a/>")
    return Send(
        KEY,
        StoredMessage(serial, message, reliable=Versions().dump()),
        message,
        serial,
        0,
        0,
        False,
        Committed(1),
    )


def answer(message: SoapMessage, **more: Any) -> SoapMessage:
    return SoapMessage(
        soap=message.soap,
        addressing=message.addressing,
        rm=message.rm,
        action="urn:answer",
        relates_to=message.message_id,
        **more,
    )


def answer_to_the_end(message: SoapMessage) -> SoapMessage | None:
    """Of a sequence that is closed or terminated; ``None``: ``message`` does neither."""
    content = message.content
    if isinstance(content, CloseSequence):
        return answer(message, content=CloseSequenceResponse(content.identifier))
    if isinstance(content, TerminateSequence):
        return answer(message, content=TerminateSequenceResponse(content.identifier))
    return None
