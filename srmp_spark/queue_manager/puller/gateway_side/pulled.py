"""One message of a remote queue, from its packet to the row that it becomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from srmp_spark.message import Message
from srmp_spark.mqrr.lookup_identifier import lookup_id_of, sequence_of
from srmp_spark.mqrr.message_of_packet import message_of
from srmp_spark.mqrr.packets.message_packet import MessagePacket
from srmp_spark.mqrr.pulled_states import TRANSITIONS, PulledEvent, PulledState
from srmp_spark.transitions import next_state


class PulledKey(NamedTuple):
    """Identifies a message: no other message of its remote queue has both values."""

    lookup_id: int
    message_id: str

    @property
    def lookup_ids(self) -> tuple[int, ...]:
        """Return the one or two lookup identifiers that the message may have in the remote queue.

        The most likely one is first. See :func:`.lookup_identifier.candidates`.
        """
        return tuple(dict.fromkeys((self.lookup_id, sequence_of(self.lookup_id))))


@dataclass(slots=True, eq=False)
class Pulled:
    """One whole message of a remote queue, and its state (:mod:`.pulled_states`)."""

    key: PulledKey
    raw: bytes
    """The packet of the message, as bytes."""
    message: Message
    state: PulledState
    request: int = 0
    """The dwRequestId of this queue manager's lock on the message, if there is one, else 0."""

    def move(self, event: PulledEvent) -> None:
        """Change :attr:`state` by ``event``, as the table of :mod:`.pulled_states` defines.

        Raises :class:`LocalProtocolError` if ``event`` cannot happen in the present state.
        """
        self.state = next_state(TRANSITIONS, self.state, event, "a pulled message")


def pulled_of(raw: bytes, packet: MessagePacket, sequence_id: int, state: PulledState) -> Pulled:
    """Build the message from its packet; ``raw`` are the bytes of the packet.

    ``sequence_id`` is the number that the server returned with the packet. Raises
    :class:`RemoteProtocolError` if a part of the message is missing.
    """
    message = message_of(packet)
    lookup_id = lookup_id_of(
        sequence_id, priority=packet.priority, transactional=packet.transaction is not None
    )
    return Pulled(PulledKey(lookup_id, packet.id), raw, message, state)
