"""State of one group in the main process: resume points of sessions, sources, packet counts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from srmp_spark.names import MulticastAddress
from srmp_spark.pgm.wire.addresses import SessionKey, text_of
from srmp_spark.queue_manager.multicast.crossing import Figures, ResumePlace, SourceFigures

_NUMBERS = 1 << 32


class HeardGroup:
    """State of one group in the main process. It outlives the gateway processes.

    A session is the stream of one source. "Number" means the PGM sequence number of a packet.
    """

    def __init__(self, queue: str, address: MulticastAddress) -> None:
        self.queue = queue
        self.address = address
        self.deaf_because: str | None = None
        """Reason why the group's packets cannot be received now, or ``None``."""
        self._next: dict[SessionKey, int] = {}
        """For each open session the number that is received next.

        There are at most SESSIONS_MAX sessions, as in the gateway.
        """
        self._sources: dict[SessionKey, SourceFigures] = {}
        self._totals: dict[str, int] = {}
        """Number of packets by kind that the present gateway counted."""
        self._totals_before: Counter[str] = Counter()
        """Number of packets by kind that all earlier gateways counted.

        A counter of a metric never decreases.
        """

    def __repr__(self) -> str:
        return f"<HeardGroup {self.queue} on {self.address} sessions={len(self._next)}>"

    # --- sessions ---------------------------------------------------------------------------------

    def opened(self, session: SessionKey, first: int) -> None:
        """Record that a session begins at the number ``first``."""
        self._next[session] = first

    def note_reported(self, session: SessionKey, last: int) -> None:
        """Record that all packets of a session up to the number ``last`` (included) were reported.

        The gateway has reported them to the main process, and the next gateway resumes after them.
        Each message is stored, is being written to the disk, or was recorded as lost.
        """
        self._next[session] = (last + 1) % _NUMBERS

    def ended(self, session: SessionKey) -> None:
        """Forget the resume point of a session that is over. Its figures stay."""
        self._next.pop(session, None)

    def places(self) -> list[ResumePlace]:
        """Return each open session with the number at which the next gateway resumes it."""
        return [ResumePlace(session, number) for session, number in self._next.items()]

    # --- figures ----------------------------------------------------------------------------------

    def note(self, figures: Figures) -> None:
        """Store the figures that the gateway sent, in place of older ones.

        Sessions that the gateway has forgotten (``gone``) are removed.
        """
        self._totals = figures.totals
        for session in figures.gone:
            self._sources.pop(session, None)
        for each in figures.changed:
            self._sources[each.session] = each

    def lost_gateway(self) -> None:
        """Keep the counts of a gateway that has ended, because the next gateway counts from 0.

        The sources of that gateway are dropped, and the group counts as not received.
        """
        self._totals_before.update(self._totals)
        self._totals = {}
        self._sources = {}
        self.deaf_because = "the gateway process of this group has ended and is being started again"

    def totals(self) -> Counter[str]:
        """Return the number of packets by kind, since the start of the main process."""
        return self._totals_before + Counter(self._totals)

    def sources(self) -> Iterator[dict[str, Any]]:
        """Yield the figures of each session of the present gateway, as an entry of ``status``."""
        now = time.monotonic()
        for each in self._sources.values():
            yield {
                "queue": self.queue,
                "address": str(self.address),
                "source": text_of(each.session.source),
                "tsi": str(each.session.tsi),
                "state": each.state,
                "messages": each.messages,
                "packets": each.packets,
                "repairs": each.repairs,
                "duplicates": each.duplicates,
                "naks": each.naks,
                "missing": each.missing,
                "lost": each.lost,
                "buffered_bytes": each.buffered_bytes,
                "silent_seconds": max(0.0, now - each.heard_at),
            }
