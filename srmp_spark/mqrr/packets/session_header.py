"""SessionHeader: an acknowledgement between queue managers inside a message ([MS-MQMQ] 2.2.20.4).

The header belongs to a session of [MS-MQQB], so a stored message should have none. The header is
present if BaseHeader.Flags.SH is set. PacketSize does not count the header.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from srmp_spark.mqrr.packets.limits import U16_MAX, U32_MAX
from srmp_spark.mqrr.packets.wire import fits, require

SIZE = 16
WINDOW_SIZE = 0x0040
_LAYOUT = Struct("<HHIHHHH")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHeader:
    """The sequence and acknowledgement numbers of one session between two queue managers."""

    ack_sequence_number: int = 0
    recoverable_msg_ack_seq_number: int = 0
    recoverable_msg_ack_flags: int = 0
    user_msg_sequence_number: int = 0
    recoverable_msg_seq_number: int = 0
    window_size: int = WINDOW_SIZE

    def encode(self) -> bytes:
        """Encode the 16 bytes of the header.

        Raises :class:`LocalProtocolError` if a number is out of range.
        """
        return _LAYOUT.pack(
            fits(self.ack_sequence_number, U16_MAX, "AckSequenceNumber"),
            fits(self.recoverable_msg_ack_seq_number, U16_MAX, "RecoverableMsgAckSeqNumber"),
            fits(self.recoverable_msg_ack_flags, U32_MAX, "RecoverableMsgAckFlags"),
            fits(self.user_msg_sequence_number, U16_MAX, "UserMsgSequenceNumber"),
            fits(self.recoverable_msg_seq_number, U16_MAX, "RecoverableMsgSeqNumber"),
            fits(self.window_size, U16_MAX, "WindowSize"),
            0,
        )


def parse_session_header(data: bytes, at: int, end: int) -> tuple[SessionHeader, int]:
    """Parse the header at ``at``; return the header and the offset of the next one.

    Raises :class:`RemoteProtocolError` if the header is cut.
    """
    require(at, SIZE, end, "SessionHeader", "[MS-MQMQ] 2.2.20.4")
    ack, recoverable_ack, flags, user, recoverable, window, _ = _LAYOUT.unpack_from(data, at)
    header = SessionHeader(
        ack_sequence_number=ack,
        recoverable_msg_ack_seq_number=recoverable_ack,
        recoverable_msg_ack_flags=flags,
        user_msg_sequence_number=user,
        recoverable_msg_seq_number=recoverable,
        window_size=window,
    )
    return header, at + SIZE
