"""One message of a remote queue, between its packet and its row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from srmp_spark.message import Message
from srmp_spark.mqrr.lookup_identifier import lookup_id_of, sequence_of
from srmp_spark.mqrr.message_of_packet import message_of
from srmp_spark.mqrr.packets.message_packet import MessagePacket
from srmp_spark.mqrr.pulled_states import PulledEvent, PulledState, moved


class PulledKey(NamedTuple):
    """Which message: nothing else in the remote queue has both."""

    lookup_id: int
    message_id: str

    @property
    def lookup_ids(self) -> tuple[int, ...]:
        """What its queue manager may call it, the likeliest first (:func:`.lookup_identifier.candidates`)."""
        return tuple(dict.fromkeys((self.lookup_id, sequence_of(self.lookup_id))))


@dataclass(slots=True, eq=False)
class Pulled:
    """One message of a remote queue, whole."""

    key: PulledKey
    raw: bytes
    """The packet."""
    message: Message
    state: PulledState
    request: int = 0
    """dwRequestId of the lock that we have, if we have one."""

    def move(self, event: PulledEvent) -> None:
        """Raises :class:`LocalProtocolError` for what cannot happen."""
        self.state = moved(self.state, event)


def pulled_of(raw: bytes, packet: MessagePacket, sequence_id: int, state: PulledState) -> Pulled:
    """A message as it was read. Raises :class:`RemoteProtocolError` for one of which a part is missing."""
    message = message_of(packet)
    lookup_id = lookup_id_of(
        sequence_id, priority=packet.priority, transactional=packet.transaction is not None
    )
    return Pulled(PulledKey(lookup_id, packet.id), raw, message, state)
