"""TransactionHeader: the place of a message in its sequence ([MS-MQMQ] 2.2.20.5, 2.2.18.1.2)."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from srmp_spark.mqrr.guids import GUID_SIZE, guid_bytes, guid_text
from srmp_spark.mqrr.packets.limits import U32_MAX, U64_MAX
from srmp_spark.mqrr.packets.wire import fits, require

_SECTION = "[MS-MQMQ] 2.2.20.5"
_LAYOUT = Struct("<IQII")
_CG, _FA, _FM, _LM = 1, 2, 4, 8
TRANSACTION_ID_MAX = (1 << 20) - 1
"""Largest transaction identifier: Flags.ID has 20 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionHeader:
    """The transaction of one message and its place in the sequence.

    The presence of this header makes a message transactional.
    """

    final_ack: bool = False
    """Flag FA: the sender requests a final acknowledgement of the message."""
    first_in_transaction: bool = False
    last_in_transaction: bool = False
    transaction_id: int = 0
    """20 bits, identical in all messages of a transaction."""
    sequence_id: int
    """TxSequenceID as one number: TimeStamp in the high half, Ordinal in the low half.

    Two identifiers are compared by this number.
    """
    sequence_number: int
    """TxSequenceNumber: 1 for the first message of the sequence."""
    previous_sequence_number: int
    """PreviousTxSequenceNumber: 0 if there is no message before."""
    connector_queue_manager: str | None = None

    def encode(self) -> bytes:
        """Encode the header: 20 bytes, or 36 with a connector queue manager.

        Raises :class:`LocalProtocolError` if a number is out of range.
        """
        flags = (
            (self.connector_queue_manager is not None) * _CG
            | self.final_ack * _FA
            | self.first_in_transaction * _FM
            | self.last_in_transaction * _LM
            | fits(self.transaction_id, TRANSACTION_ID_MAX, "TransactionHeader.Flags.ID") << 4
        )
        out = _LAYOUT.pack(
            flags,
            fits(self.sequence_id, U64_MAX, "TxSequenceID"),
            fits(self.sequence_number, U32_MAX, "TxSequenceNumber"),
            fits(self.previous_sequence_number, U32_MAX, "PreviousTxSequenceNumber"),
        )
        return (
            out
            if self.connector_queue_manager is None
            else out + guid_bytes(self.connector_queue_manager)
        )


def parse_transaction_header(data: bytes, at: int, end: int) -> tuple[TransactionHeader, int]:
    """Parse the header at ``at``; return the header and the offset of the next one.

    Raises :class:`RemoteProtocolError` if the header is cut.
    """
    require(at, _LAYOUT.size, end, "TransactionHeader", _SECTION)
    flags, sequence_id, sequence_number, previous = _LAYOUT.unpack_from(data, at)
    at += _LAYOUT.size
    connector = None
    if flags & _CG:
        require(at, GUID_SIZE, end, "ConnectorQMGuid", _SECTION)
        connector = guid_text(data[at : at + GUID_SIZE])
        at += GUID_SIZE
    header = TransactionHeader(
        final_ack=bool(flags & _FA),
        first_in_transaction=bool(flags & _FM),
        last_in_transaction=bool(flags & _LM),
        transaction_id=flags >> 4 & TRANSACTION_ID_MAX,
        sequence_id=sequence_id,
        sequence_number=sequence_number,
        previous_sequence_number=previous,
        connector_queue_manager=connector,
    )
    return header, at
