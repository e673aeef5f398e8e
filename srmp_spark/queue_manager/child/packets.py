"""How the main process and a child talk.

Between the two lies one Unix socket for commands, JSON in packets; with each command goes one end of a fresh socket pair
(``send_fds``), into which the child writes its answer in packets:

    H {"…"}   the answer's head: JSON, for some commands all of it; {"long": true}: all of it follows as data
    D …       data
    E         the end; without it the answer was cut off
    X {"status", "code", "message", "hint"}   a refusal, before or after data

Data need not come by here: after the head the child may get the caller's own connection, in the same way, and write into that;
only the end, or a refusal, comes back (:meth:`.link.ChildLink.open_direct`). What the main process tells without asking has no
socket, and what the child tells unasked are events: JSON in packets, too.

Packets keep their bounds, so nothing has to be framed again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

PACKET_MAX = 128 * 1024
"""Bytes of one packet: below the kernel's limit of a socket buffer (208 KiB), and large enough that packets do not count."""
COMMAND_MAX = 64 * 1024
"""Bytes of a command that goes by itself; a longer one follows in packets on the socket of its answer."""
LONG_COMMAND = b"{}"
END_OF_COMMAND = b"\n"
"""What announces a long command, and what ends it: no JSON that we write is either."""

HEAD = b"H"
DATA = b"D"
END = b"E"
REFUSAL = b"X"
"""What a packet of an answer begins with."""


class LongList(NamedTuple):
    """A list that belongs to a command, of items that are JSON already."""

    name: str
    items: list[bytes]


def long_command(command: dict[str, Any], extra: LongList | None) -> Iterator[bytes]:
    """Yield the packets of a long command, without the one that ends it.

    Items are copied packet by packet: a command of 64 MiB as one text would hold the loop for tens of milliseconds.
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
