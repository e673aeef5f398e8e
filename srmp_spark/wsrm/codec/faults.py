"""Define the faults of WS-ReliableMessaging and WS-MakeConnection.

The faults are those of WS-ReliableMessaging 1.0 and 1.1 section 4, and of WS-MakeConnection 1.1
section 4.
"""

from __future__ import annotations

from enum import Enum

from srmp_spark.errors import LocalProtocolError, RemoteProtocolError
from srmp_spark.wsrm.codec.elements import Blame, SoapFault
from srmp_spark.wsrm.codec.namespaces import (
    MAKE_CONNECTION,
    AddressingVersion,
    RmVersion,
    SoapVersion,
    qualified,
)


class FaultCode(Enum):
    """The known faults, each as a tuple: name, party to blame, text for the reader."""

    SEQUENCE_TERMINATED = (
        "SequenceTerminated",
        Blame.SENDER,
        "The Sequence has been terminated due to an unrecoverable error.",
    )
    UNKNOWN_SEQUENCE = (
        "UnknownSequence",
        Blame.SENDER,
        (
            "The value of wsrm:Identifier is not a known Sequence identifier. Is it over, or "
            "another server's? Begin a new one."
        ),
    )
    INVALID_ACKNOWLEDGEMENT = (
        "InvalidAcknowledgement",
        Blame.SENDER,
        "The SequenceAcknowledgement violates the cumulative Acknowledgement invariant.",
    )
    MESSAGE_NUMBER_ROLLOVER = (
        "MessageNumberRollover",
        Blame.SENDER,
        "The maximum value for wsrm:MessageNumber has been exceeded.",
    )
    LAST_MESSAGE_NUMBER_EXCEEDED = (
        "LastMessageNumberExceeded",
        Blame.SENDER,
        (
            "The value for wsrm:MessageNumber exceeds the value of the MessageNumber "
            "accompanying a LastMessage element."
        ),
    )
    CREATE_SEQUENCE_REFUSED = (
        "CreateSequenceRefused",
        Blame.SENDER,
        "The Create Sequence request has been refused by the RM Destination.",
    )
    SEQUENCE_CLOSED = (
        "SequenceClosed",
        Blame.SENDER,
        "The Sequence is closed and cannot accept new messages.",
    )
    WSRM_REQUIRED = (
        "WSRMRequired",
        Blame.SENDER,
        (
            "The RM Destination requires the use of WSRM. Switch the client's reliable "
            "session on (WCF: reliableSession enabled)."
        ),
    )
    MISSING_SELECTION = (
        "MissingSelection",
        Blame.SENDER,
        "The MakeConnection element did not contain any selection criteria.",
    )
    UNSUPPORTED_SELECTION = (
        "UnsupportedSelection",
        Blame.RECEIVER,
        "The extension element used in the message selection is not supported.",
    )

    @property
    def subcode_name(self) -> str:
        """Return the name of the fault as the specification writes it."""
        return self.value[0]

    def is_of(self, rm: RmVersion) -> bool:
        """Return whether the version ``rm`` of WS-ReliableMessaging has this fault."""
        if self is FaultCode.LAST_MESSAGE_NUMBER_EXCEEDED:
            return rm is RmVersion.V1_0
        return rm is RmVersion.V1_1 or self not in _NEW

    def subcode(self, rm: RmVersion) -> str:
        """Return the subcode for the version ``rm`` in Clark's notation (``{namespace}name``).

        Raises :class:`LocalProtocolError` if the version does not have the fault.
        """
        if not self.is_of(rm):
            raise LocalProtocolError(
                f"WS-ReliableMessaging {rm.name} has no fault {self.subcode_name}"
            )
        return qualified(
            MAKE_CONNECTION if self in _OF_MAKE_CONNECTION else rm.value, self.subcode_name
        )


_NEW = (
    FaultCode.SEQUENCE_CLOSED,
    FaultCode.WSRM_REQUIRED,
    FaultCode.MISSING_SELECTION,
    FaultCode.UNSUPPORTED_SELECTION,
)
_OF_MAKE_CONNECTION = (FaultCode.MISSING_SELECTION, FaultCode.UNSUPPORTED_SELECTION)


def fault_of(
    code: FaultCode,
    rm: RmVersion,
    identifier: str = "",
    reason: str = "",
    *,
    blame: Blame | None = None,
    max_number: int | None = None,
) -> SoapFault:
    """Return the fault ``code`` in the version ``rm``, about the sequence ``identifier``.

    ``reason`` replaces the text of the specification, and ``blame`` its party. Raises
    :class:`LocalProtocolError` if the version does not have the fault.
    """
    return SoapFault(
        blame or code.value[1], code.subcode(rm), reason or code.value[2], identifier, max_number
    )


def code_of(fault: SoapFault) -> FaultCode | None:
    """Return the :class:`FaultCode` of a received fault, or ``None`` if the fault is unknown.

    The fault may be of any version.
    """
    for rm in RmVersion:
        for code in FaultCode:
            if code.is_of(rm) and fault.subcode == code.subcode(rm):
                return code
    return None


class SoapFaultError(RemoteProtocolError):
    """Raised when a message is refused, but enough of it was read to answer with a fault.

    :attr:`fault` is the fault to send; the other attributes state its versions and the MessageID of
    the refused message.
    """

    def __init__(
        self,
        message: str,
        *,
        section: str,
        soap: SoapVersion,
        addressing: AddressingVersion,
        blame: Blame = Blame.SENDER,
        subcode: str = "",
        message_id: str = "",
    ) -> None:
        super().__init__(message, section=section)
        self.soap = soap
        self.addressing = addressing
        self.fault = SoapFault(blame, subcode, message)
        self.message_id = message_id
