"""Receive the commands of :class:`.link.ChildLink` at the child's end of the socket.

Each command begins with one packet.
"""

from __future__ import annotations

import socket
from typing import NamedTuple

from srmp_spark.queue_manager.child.answer import AnswerWriter
from srmp_spark.queue_manager.child.packets import COMMAND_MAX, END_OF_COMMAND, PACKET_MAX


class ReceivedCommand(NamedTuple):
    """One command packet from the main process, and the writer of its answer."""

    packet: bytes
    """The command as :class:`.Encoding` encodes it, or LONG_COMMAND.

    After LONG_COMMAND :func:`read_long_command` reads the rest.
    """
    answer: AnswerWriter | None
    """Writes the answer of this command. ``None`` if the main process expects no answer."""


def receive_command(control: socket.socket) -> ReceivedCommand | None:
    """Receive the next command packet, and return it with the writer of its answer.

    Return ``None`` if the main process has closed its end or has ended. Blocks if ``control``
    blocks; otherwise raises :class:`BlockingIOError` if no packet has arrived yet.
    """
    try:
        packet, descriptors, _, _ = socket.recv_fds(control, COMMAND_MAX, 1)
    except BlockingIOError:
        raise
    except OSError:
        return None
    if not packet:
        return None
    return ReceivedCommand(
        packet, AnswerWriter(socket.socket(fileno=descriptors[0])) if descriptors else None
    )


def read_long_command(answer: AnswerWriter) -> bytes:
    """Read the packets that follow LONG_COMMAND, and return the encoded command.

    Blocks until END_OF_COMMAND arrives. Raises :class:`OSError` if the main process closes its end
    before that, or sends nothing for :data:`.answer.STALL_SECONDS`.
    """
    text = bytearray()
    while (packet := answer.receive(PACKET_MAX)) != END_OF_COMMAND:
        if not packet:
            raise ConnectionResetError
        text += packet
    return bytes(text)
