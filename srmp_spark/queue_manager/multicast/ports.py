"""All multicast addresses that a queue manager listens on, for the process, ``status`` and metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from srmp_spark.queue_manager.metrics import LABELS_MAX, Metrics
from srmp_spark.queue_manager.multicast.listener import GroupSockets, Listener
from srmp_spark.queue_manager.multicast.losses import Losses
from srmp_spark.queue_manager.multicast.settings import PgmSettings

if TYPE_CHECKING:
    from srmp_spark.queue_manager.acceptor import Acceptor
    from srmp_spark.store.journal import Journal

Readings = Iterator[tuple[tuple[str, ...], float]]


class MulticastPorts:
    """Built inside the running loop, of sockets that are open."""

    def __init__(
        self, settings: PgmSettings, groups: Sequence[tuple[str, GroupSockets]], acceptor: Acceptor, journal: Journal,
        metrics: Metrics, utc: Callable[[], int],
    ) -> None:  # fmt: skip
        """``groups``: the queue of each."""
        self._settings = settings
        self.losses = Losses(journal, utc)
        self.listeners = [Listener(queue, each, settings, acceptor, self.losses, metrics.refuse) for queue, each in groups]

    def start(self) -> None:
        """Begin to hear."""
        for listener in self.listeners:
            listener.start()

    def stop(self) -> None:
        """Hear no more; what is lost is told with the next commit."""
        for listener in self.listeners:
            listener.stop()
        self.losses.flush()

    def status(self) -> dict[str, Any]:
        """``status.multicast``."""
        settings = self._settings
        return {
            "pgm": str(settings.encapsulation), "interface": settings.interface, "ttl": settings.ttl,
            "deaf": [
                {"queue": each.queue, "address": str(each.sockets.address), "reason": each.deaf_because}
                for each in self.listeners if each.deaf_because is not None
            ],
            "sources": [source for listener in self.listeners for source in listener.sources()],
        }  # fmt: skip

    def packets(self) -> Readings:
        """For ``srmp_pgm_packets_total``."""
        for listener in self.listeners:
            for what, count in listener.totals().items():
                if what not in ("message", "lost"):
                    yield (listener.queue, what), count

    def lost(self) -> Readings:
        """For ``srmp_pgm_lost_packets_total``."""
        yield from self.losses.packets.items()

    def sources(self) -> Readings:
        """For ``srmp_pgm_source_packets``: what of each source that is heard came and was lost."""
        named: dict[tuple[str, ...], float] = {}
        for listener in self.listeners:
            for source in listener.sources():
                for what in ("packets", "repairs", "duplicates", "naks", "missing", "lost", "messages"):
                    key = (source["queue"], source["source"], what)
                    if key not in named and len(named) >= LABELS_MAX:
                        key = (source["queue"], "other", what)
                    named[key] = named.get(key, 0) + source[what]
        return iter(named.items())
