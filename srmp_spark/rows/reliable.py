"""Read a stored message of WS-ReliableMessaging as the message that rows are made of.

The row holds the whole POST. ``body`` is the content of the SOAP Body, ``soap_action`` is
``wsa:Action``, and ``destination`` is ``wsa:To`` as sent. ``response_queue`` is ``wsa:ReplyTo``
where that is an address. The row has none of MSMQ's own properties.
"""

from __future__ import annotations

from srmp_spark.errors import RemoteProtocolError, StoreDamagedError
from srmp_spark.message import Message
from srmp_spark.wsrm.codec.decoder import decode
from srmp_spark.wsrm.codec.elements import Sequence, SoapMessage
from srmp_spark.wsrm.receiving.destination_answers import is_address


def message_of_soap(soap: SoapMessage) -> Message:
    """Return a SOAP message as a message with MSMQ's properties.

    The message has ``wsa:To`` as destination, or the anonymous address if there is none, and the
    content of the SOAP Body as body. ``wsa:ReplyTo`` becomes the response queue if it is an
    address.
    """
    reply_to = soap.reply_to if is_address(soap.reply_to, soap.addressing) else None
    return Message(
        soap.to or soap.addressing.anonymous,
        durable=True,
        body=soap.body,
        response_queue=None if reply_to is None else reply_to.address,
    )


def read_soap(queue: str, sequence: int, envelope: bytes) -> tuple[Message, str, Sequence | None]:
    """Return the message, its ``wsa:Action`` and its place in a sequence.

    They are read from a stored envelope. The place is the identifier of the WS-ReliableMessaging
    sequence and the message number, or ``None`` if the envelope has none. ``queue`` and
    ``sequence`` name the row in the text of the error. Raises :class:`StoreDamagedError` if the
    envelope cannot be decoded: it was readable when the message was accepted.
    """
    try:
        soap = decode(envelope)
    except RemoteProtocolError as error:
        raise StoreDamagedError(
            f"row {sequence} of {queue} is stored but cannot be decoded: {error}"
        ) from error
    return message_of_soap(soap), soap.action, soap.sequence
