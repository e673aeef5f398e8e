"""A child's end of the command socket: what :class:`.link.ChildLink` sends, one packet after the other."""

from __future__ import annotations

import json
import socket
from typing import Any, NamedTuple

from srmp_spark.queue_manager.child.answer import AnswerWriter
from srmp_spark.queue_manager.child.packets import COMMAND_MAX, END_OF_COMMAND, PACKET_MAX


class Command(NamedTuple):
    """A packet of the main process."""

    packet: bytes
    """JSON, or LONG_COMMAND: then :func:`read_long_command` has the rest."""
    answer: AnswerWriter | None
    """``None``: it is told, not asked."""


def receive_command(control: socket.socket) -> Command | None:
    """The next command; ``None``: the main process has closed its end, or is gone.

    Raises :class:`BlockingIOError` if ``control`` does not block and there is none yet.
    """
    try:
        packet, descriptors, _, _ = socket.recv_fds(control, COMMAND_MAX, 1)
    except BlockingIOError:
        raise
    except OSError:
        return None
    if not packet:
        return None
    return Command(
        packet, AnswerWriter(socket.socket(fileno=descriptors[0])) if descriptors else None
    )


def read_long_command(answer: AnswerWriter) -> dict[str, Any]:
    """What follows LONG_COMMAND. Blocks; raises :class:`OSError` if the main process goes away."""
    text = bytearray()
    while (packet := answer.receive(PACKET_MAX)) != END_OF_COMMAND:
        if not packet:
            raise ConnectionResetError
        text += packet
    command: dict[str, Any] = json.loads(text)
    return command
