"""Report to the main process which destinations hold forwarded messages.

With this report the main process answers 503 to new messages before there are too many. The main
process cannot know when an outgoing queue is empty, and this process cannot refuse a message that
was answered 200. So this process reports changes once a second. Only after all changes does it
report how far the log is outgoing. So a destination that has left the log is known to be in an
outgoing queue. A packet for which the socket has no room is sent the next time, and a new process
reports everything again.
"""

from __future__ import annotations

import asyncio
import socket
from itertools import islice

from srmp_spark.queue_manager.sender.crossing import SENDER_EVENTS, ForwardHolding, RowsForwarded
from srmp_spark.srmp.sending.outgoing_room import OutgoingRoom
from srmp_spark.store.outbox.tables.forward_place import ForwardPlace

REPORT_SECONDS = 1.0
"""Interval of the reports, in seconds.

After at most this time the main process knows that a destination is empty, and accepts another one
in its place.
"""
NAMES_MAX = 32
"""Most destinations in one packet of the report; further ones need another packet.

Each has at most 1 KB, and a packet 128 KB (:data:`.child.packets.PACKET_MAX`).
"""


class ForwardReport:
    """Sends the report from the sender process to the main process."""

    def __init__(self, control: socket.socket, room: OutgoingRoom) -> None:
        self._control = control
        self._room = room
        self._reported: dict[str, str] = {}
        self._version: int | None = None
        """Version of the room's state that was reported last, or ``None`` before the first report.
        """
        self._has_begun = False
        self._forwarded: ForwardPlace | None = None
        """The position of ``private$/forward$`` to report, or ``None`` if it was reported."""

    def __repr__(self) -> str:
        return f"<ForwardReport told={len(self._reported)}>"

    async def run(self) -> None:
        """Report changes each REPORT_SECONDS, until cancelled."""
        while True:
            self.tell()
            await asyncio.sleep(REPORT_SECONDS)

    def forwarded(self, to: ForwardPlace) -> None:
        """Report that the rows of ``private$/forward$`` up to ``to`` are outgoing.

        If the socket has no room, the next report includes it.
        """
        self._forwarded = to
        self.tell()

    def tell(self) -> None:
        """Report all changes since the last report, as far as the socket has room.

        The rest is reported the next time.
        """
        try:
            if self._room.version != self._version:
                self._tell_destinations()
            if (to := self._forwarded) is not None:
                self._control.send(SENDER_EVENTS.encode(RowsForwarded(to.epoch, to.sequence)))
                self._forwarded = None
        except OSError:
            # The socket is full, or the main process has ended.
            return

    def _tell_destinations(self) -> None:
        version, holding = self._room.version, self._room.forwarded()
        if not self._has_begun:
            self._send({}, [], begins=True)
            self._has_begun = True
        empty = iter([name for name in self._reported if name not in holding])
        while gone := list(islice(empty, NAMES_MAX)):
            self._send({}, gone)
            for name in gone:
                del self._reported[name]
        new = iter(
            [
                (name, sender)
                for name, sender in holding.items()
                if self._reported.get(name) != sender
            ]
        )
        while more := dict(islice(new, NAMES_MAX)):
            self._send(more, [])
            self._reported |= more
        self._version = version

    def _send(self, holding: dict[str, str], empty: list[str], *, begins: bool = False) -> None:
        self._control.send(SENDER_EVENTS.encode(ForwardHolding(holding, empty, begins)))
