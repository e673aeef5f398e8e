"""TransactionHeader: where a transactional message stands in its sequence ([MS-MQMQ] 2.2.20.5, 2.2.18.1.2)."""

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
"""Flags.ID: 20 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionHeader:
    """The presence of this header makes a message transactional."""

    final_ack: bool = False
    """FA: the sender wants to hear of the end of the message."""
    first_in_transaction: bool = False
    last_in_transaction: bool = False
    transaction_id: int = 0
    """20 bits, the same in all messages of a transaction."""
    sequence_id: int
    """TxSequenceID as one number, which is how two are compared: TimeStamp above, Ordinal below."""
    sequence_number: int
    """TxSequenceNumber: 1 for the first message of the sequence."""
    previous_sequence_number: int
    """0: there is none before."""
    connector_queue_manager: str | None = None

    def encode(self) -> bytes:
        """20 or 36 bytes. Raises :class:`LocalProtocolError` for numbers out of their range."""
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
    """The header at ``at`` and where the next one begins. Raises :class:`RemoteProtocolError` if it is cut."""
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
