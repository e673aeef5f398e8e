"""Define how the main process and a child talk.

Main process and child share one Unix socket for commands, which are JSON in packets. The main
process creates a new socket pair for each command and sends one end of it with the command
(``send_fds``). The child writes its answer into that end, in packets:

    H {"…"}   the answer's head: JSON, for some commands all of it;
              {"long": true}: all of it follows as data
    D …       data
    E         the end; without it the answer was cut off
    X {"status", "code", "message", "hint"}   a refusal, before or after data

Data need not pass through this socket: after the head the child may receive the caller's own
connection in the same way, and write into that. Then only the end, or a refusal, is sent back
(:meth:`.link.ChildLink.open_direct`). A command without an answer has no socket. The child may also
send events, which are JSON in packets too.

The sockets keep the boundaries of packets, so no further framing is needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

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

HEAD = b"H"
DATA = b"D"
END = b"E"
REFUSAL = b"X"
"""First bytes of the packets of an answer: HEAD, DATA, END and REFUSAL each name one kind."""


class LongList(NamedTuple):
    """A list that is sent as the field ``name`` of a command. Its items are JSON texts already."""

    name: str
    items: list[bytes]


def long_command(command: dict[str, Any], extra: LongList | None) -> Iterator[bytes]:
    """Yield the JSON of a command in packets of at most PACKET_MAX bytes.

    ``extra`` is a list that becomes a field of the command. Neither LONG_COMMAND nor END_OF_COMMAND
    is yielded. Items are copied packet by packet, because a command of 64 MiB as one text would
    block the loop for tens of milliseconds.
    """
    begin = json.dumps(command).encode()
    parts = [begin]
    if extra is not None:
        comma = b", " if command else b""
        parts = [b"%b%b%b: [" % (begin[:-1], comma, json.dumps(extra.name).encode())]
        for n, item in enumerate(extra.items):
            parts += (b",", item) if n else (item,)
        parts.append(b"]}")
    packet = bytearray()
    for part in parts:
        at = 0
        while at < len(part):
            taken = min(PACKET_MAX - len(packet), len(part) - at)
            packet += memoryview(part)[at : at + taken]
            at += taken
            if len(packet) == PACKET_MAX:
                yield bytes(packet)
                packet.clear()
    if packet:
        yield bytes(packet)
