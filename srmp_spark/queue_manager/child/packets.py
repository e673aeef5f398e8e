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
