"""Define how the main process and a child talk.

Main process and child share one Unix socket for commands, which are JSON (:mod:`.encoding`) in
packets. The main process creates a new socket pair for each command and sends one end of it with
the command (``send_fds``). The child writes its answer into that end, in packets:

    H …       the whole answer, as JSON
    B         the answer begins, and follows as data: rows, or JSON that is too long for one packet
    D …       data
    E         the end; without it the answer was cut off
    X …       a refusal (:class:`Refusal`), instead of the answer or within its data

Data need not pass through this socket: after ``B`` the child may receive the caller's own
connection in the same way, and write into that. Then only the end, or a refusal, is sent back
(:meth:`.link.ChildLink.open_direct`). A command without an answer has no socket. The child may also
send events, which are JSON in packets too.

The sockets keep the boundaries of packets, so no further framing is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from srmp_spark.logs.form import LogForm

PACKET_MAX = 128 * 1024
"""Most bytes of one packet.

This is below the kernel's limit of a socket buffer (208 KiB), and large enough that the cost of one
packet does not matter.
"""
COMMAND_MAX = 64 * 1024
"""Bytes below which a command is sent as one packet.

Packets of a longer command follow on the socket of its answer.
"""
LONG_COMMAND = b"{}"
END_OF_COMMAND = b"\n"
"""The packets that begin a long command (LONG_COMMAND, ``{}``) and end it (END_OF_COMMAND).

No JSON that the main process writes is equal to either of them.
"""

WHOLE = b"H"
BEGIN = b"B"
DATA = b"D"
END = b"E"
REFUSAL = b"X"
"""First bytes of the packets of an answer: WHOLE, BEGIN, DATA, END and REFUSAL each name one kind.
"""

_Settings = TypeVar("_Settings")


@dataclass(frozen=True, slots=True)
class Start(Generic[_Settings]):
    """The input of a child that starts."""

    parent: int
    """Process id of the main process."""
    descriptors: dict[str, int]
    """File descriptors of the sockets that the child inherits, by name."""
    noun: str
    """Name of the child in log lines."""
    log: LogForm
    """The form in which the main process logs, and the child too."""
    settings: _Settings
    """The settings of this kind of child."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a child does not answer a command, or why its answer breaks off.

    The fields are those of :class:`.ApiError`.
    """

    status: int
    code: str
    message: str
    hint: str


def packets_of(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the bytes of a command, in packets of at most PACKET_MAX bytes.

    Neither LONG_COMMAND nor END_OF_COMMAND is yielded. Pieces are copied packet by packet, because
    a command of 64 MiB as one text would block the loop for tens of milliseconds.
    """
    packet = bytearray()
    for piece in pieces:
        at = 0
        while at < len(piece):
            taken = min(PACKET_MAX - len(packet), len(piece) - at)
            packet += memoryview(piece)[at : at + taken]
            at += taken
            if len(packet) == PACKET_MAX:
                yield bytes(packet)
                packet.clear()
    if packet:
        yield bytes(packet)
