"""Build the HTTP answers of WS-ReliableMessaging."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from srmp_spark.wsrm.codec.elements import Blame, SoapFault, SoapMessage
from srmp_spark.wsrm.codec.encoder import encode, http_fields
from srmp_spark.wsrm.codec.faults import SoapFaultError
from srmp_spark.wsrm.codec.namespaces import RM_OF, AddressingVersion, RmVersion, SoapVersion, split
from srmp_spark.wsrm.receiving.destination_effects import Respond


class SoapReply(NamedTuple):
    """One HTTP answer: status, header fields and body."""

    status: int
    fields: Mapping[str, str]
    content: bytes


def reply_of(respond: Respond) -> SoapReply:
    """Return the HTTP answer for a response of the engine (:class:`.RmDestination`).

    The status is 200 with a message and 202 without one. A fault has the status that SOAP requires.
    """
    message = respond.message
    if message is None:
        return SoapReply(202, {}, b"")
    status = (
        _status(message.content, message.soap) if isinstance(message.content, SoapFault) else 200
    )
    # SOAPAction is a header field of requests only.
    fields = {"Content-Type": http_fields(message)["Content-Type"]}
    return SoapReply(status, fields, encode(message))


def reply_of_error(error: SoapFaultError) -> SoapReply:
    """Return the HTTP answer with the fault in ``error``.

    Used for a message that was refused before its sequence was looked up.
    """
    fault = error.fault
    rm = RM_OF.get(split(fault.subcode)[0])
    if rm is RmVersion.V1_1 and error.addressing is AddressingVersion.V2004_08:
        rm = None
    message = SoapMessage(
        soap=error.soap,
        addressing=error.addressing,
        rm=rm,
        action=error.addressing.fault,
        relates_to=error.message_id,
        content=fault,
    )
    return SoapReply(
        _status(fault, error.soap),
        {"Content-Type": http_fields(message)["Content-Type"]},
        encode(message),
    )


def _status(fault: SoapFault, soap: SoapVersion) -> int:
    """Return the HTTP status of a fault (SOAP 1.1 section 6.2; SOAP 1.2 part 2 section 7.5.2.2)."""
    return 400 if soap is SoapVersion.V1_2 and fault.blame is Blame.SENDER else 500
