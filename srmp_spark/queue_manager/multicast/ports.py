"""All multicast addresses of a queue manager, for the process, ``status`` and metrics."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from srmp_spark.errors import ConfigurationError
from srmp_spark.names import MulticastAddress
from srmp_spark.pgm.wire.addresses import SessionKey, text_of
from srmp_spark.queue_manager.gateway.control import MEMORY_MAX
from srmp_spark.queue_manager.gateway.link import START_SECONDS, GatewayLink
from srmp_spark.queue_manager.metrics import LABELS_MAX, Metrics
from srmp_spark.queue_manager.multicast.crossing import (
    ApduRefused,
    Begin,
    Figures,
    GroupsLeft,
    Hearing,
    Leave,
    Lost,
    MulticastArrived,
    MulticastSettings,
    Settled,
    SourceEnded,
    SourceOpened,
    ToMain,
)
from srmp_spark.queue_manager.multicast.heard import HeardGroup
from srmp_spark.queue_manager.multicast.inbox import MulticastInbox, Settlement, UndecidedMulticast
from srmp_spark.queue_manager.multicast.losses import Losses
from srmp_spark.queue_manager.multicast.settings import PgmSettings
from srmp_spark.queue_manager.srmp_port.http_limits import DRAIN_SECONDS

if TYPE_CHECKING:
    from srmp_spark.store.journal import Journal

Readings = Iterator[tuple[tuple[str, ...], float]]

REFUSED = "refused"
"""Reason of a message that was received whole and refused; ``detail`` states why."""


class MulticastLink(
    GatewayLink[
        Begin | Settled | Leave,
        Hearing
        | SourceOpened
        | MulticastArrived
        | ApduRefused
        | Lost
        | SourceEnded
        | Figures
        | GroupsLeft,
    ]
):
    """Keeps the gateway process of multicast running."""

    module = "srmp_spark.queue_manager.multicast.gateway"
    noun = "multicast"


class MulticastPorts:
    """Listens on all multicast groups of a queue manager, through one gateway process.

    An instance is built inside the running loop. Without a group there is no gateway. The sender
    process may send multicast messages nevertheless.
    """

    def __init__(
        self,
        settings: PgmSettings,
        groups: Mapping[str, MulticastAddress],
        inbox: MulticastInbox,
        journal: Journal,
        metrics: Metrics,
        utc: Callable[[], int],
    ) -> None:
        """Prepare the gateway without starting it.

        ``groups`` holds the multicast address of each queue that listens, by queue name. ``utc``
        returns microseconds since 1970.
        """
        self._settings = settings
        self._inbox = inbox
        self._metrics = metrics
        self.losses = Losses(journal, utc)
        self.groups = [HeardGroup(queue, address) for queue, address in groups.items()]
        self._loop = asyncio.get_running_loop()
        self._has_begun = False
        self._unheard = set(range(len(self.groups)))
        """Indexes of groups for which no gateway has reported yet whether it can receive them."""
        self._is_heard = asyncio.Event()
        self._has_left = asyncio.Event()
        self._settlement = Settlement(self._loop, lambda settled: None)
        """Reports settled octets to the present gateway."""
        given = MulticastSettings(
            memory_max=max(MEMORY_MAX, 2 * len(self.groups) * settings.receiver.buffer_bytes_max),
            pgm=settings,
            groups=[(each.queue, str(each.address)) for each in self.groups],
        )
        self._link = (
            MulticastLink(
                given, {}, ToMain, self._on_message, on_up=self._on_up, on_lost=self._on_lost
            )
            if self.groups
            else None
        )

    # --- the life of the gateway ------------------------------------------------------------------

    def open(self) -> None:
        """Start the gateway, which joins the groups. It reads nothing before :meth:`begin`."""
        if self._link is not None:
            self._link.start()

    async def joined(self) -> None:
        """Wait until the gateway has joined every group.

        Raises :class:`ConfigurationError` if a group cannot be joined, if the gateway ends, or if
        it does not report within START_SECONDS.
        """
        if self._link is None:
            return
        await self._link.started()
        try:
            await asyncio.wait_for(self._is_heard.wait(), START_SECONDS)
        except asyncio.TimeoutError:
            raise ConfigurationError(
                "the multicast process did not report in time whether it joined its "
                "groups; see the log above"
            ) from None
        for each in self.groups:
            if each.deaf_because is not None:
                raise ConfigurationError(each.deaf_because)

    def begin(self) -> None:
        """Order this gateway, and each later one, to read from its groups."""
        self._has_begun = True
        self._send_begin()

    async def stop(self) -> None:
        """Leave all groups, stop the gateway, and hand the recorded losses to the journal.

        The gateway gets at most DRAIN_SECONDS to send what it has received.
        """
        if self._link is not None:
            if self._link.send(Leave()):
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._has_left.wait(), DRAIN_SECONDS)
            await self._link.stop()
        self.losses.flush()

    def _send_begin(self) -> None:
        if self._has_begun and self._link is not None:
            self._link.send(Begin([each.places() for each in self.groups]))

    def _on_up(self) -> None:
        assert self._link is not None
        channel = self._link.channel
        assert channel is not None, "it is up"
        self._settlement = Settlement(self._loop, channel.send)
        self._send_begin()

    def _on_lost(self) -> None:
        self._has_left.set()
        for each in self.groups:
            each.lost_gateway()

    # --- what crosses -----------------------------------------------------------------------------

    def _on_message(
        self,
        message: Hearing
        | SourceOpened
        | MulticastArrived
        | ApduRefused
        | Lost
        | SourceEnded
        | Figures
        | GroupsLeft,
    ) -> None:
        if isinstance(message, GroupsLeft):
            self._has_left.set()
            return
        group = self.groups[message.group]
        if isinstance(message, MulticastArrived):
            group.note_reported(message.session, message.last)
            delivery = UndecidedMulticast(message, self._settlement, self._refused)
            self._inbox.accept(delivery, group.address.format_name)
        elif isinstance(message, ApduRefused):
            group.note_reported(message.session, message.last)
            self._inbox.tell(message.session, group.address.format_name, message)
            self._refused(message)
        elif isinstance(message, Lost):
            group.note_reported(message.session, message.last)
            self._note(
                group,
                message.session,
                message.first,
                message.last,
                message.packets,
                message.reason,
                message.detail,
            )
        elif isinstance(message, SourceOpened):
            group.opened(message.session, message.first)
        elif isinstance(message, SourceEnded):
            group.ended(message.session)
        elif isinstance(message, Figures):
            group.note(message)
        else:
            group.deaf_because = message.deaf_because
            self._unheard.discard(message.group)
            if not self._unheard:
                self._is_heard.set()

    def _refused(self, refused: ApduRefused) -> None:
        self._metrics.refuse(refused.status, refused.reason)
        packets = ((refused.last - refused.first) & 0xFFFFFFFF) + 1
        detail = f"{refused.status} {refused.reason} ({refused.section})"
        self._note(
            self.groups[refused.group],
            refused.session,
            refused.first,
            refused.last,
            packets,
            REFUSED,
            detail,
        )

    def _note(
        self,
        group: HeardGroup,
        session: SessionKey,
        first: int,
        last: int,
        packets: int,
        reason: str,
        detail: str,
    ) -> None:
        source, tsi = text_of(session.source), str(session.tsi)
        self.losses.note(
            group.queue, str(group.address), source, tsi, first, last, packets, reason, detail
        )

    # --- what people ask --------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Return the object ``multicast`` of ``status``: settings, unheard groups, and sources."""
        settings = self._settings
        return {
            "pgm": str(settings.encapsulation),
            "interface": settings.interface,
            "ttl": settings.ttl,
            "deaf": [
                {"queue": each.queue, "address": str(each.address), "reason": each.deaf_because}
                for each in self.groups
                if each.deaf_because is not None
            ],
            "sources": [source for each in self.groups for source in each.sources()],
        }

    def packets(self) -> Readings:
        """Yield the readings of ``srmp_pgm_packets_total``: the packets of each queue, by kind."""
        for each in self.groups:
            for what, count in each.totals().items():
                if what not in ("message", "lost"):
                    yield (each.queue, what), count

    def lost_packets(self) -> Readings:
        """Yield the readings of ``srmp_pgm_lost_packets_total``, by queue and reason."""
        yield from self.losses.packets.items()

    def sources(self) -> Readings:
        """Return the readings of ``srmp_pgm_source_packets``: packets by queue, source and kind.

        After LABELS_MAX label sets, further sources of a queue are summed as ``other``.
        """
        named: dict[tuple[str, ...], float] = {}
        for group in self.groups:
            for source in group.sources():
                for what in (
                    "packets",
                    "repairs",
                    "duplicates",
                    "naks",
                    "missing",
                    "lost",
                    "messages",
                ):
                    key = (source["queue"], source["source"], what)
                    if key not in named and len(named) >= LABELS_MAX:
                        key = (source["queue"], "other", what)
                    named[key] = named.get(key, 0) + source[what]
        return iter(named.items())
