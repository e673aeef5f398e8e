"""Record losses of multicast messages: each loss is logged, counted and stored.

A source can fabricate any number of losses, so memory, rows and lines are bounded. Losses are
collected for :data:`FLUSH_SECONDS` and stored by one commit of the journal. The first
:data:`LOSSES_AT_ONCE` losses have one row each, with the exact range. Further losses become one row
per session and reason: its ``packets`` is exact, and its range reaches from the first loss to the
last.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from srmp_spark.queue_manager.alarm import Alarm
from srmp_spark.store.database.transaction import Transaction
from srmp_spark.store.journal import Journal
from srmp_spark.store.tables import losses
from srmp_spark.store.tables.losses import Loss

FLUSH_SECONDS = 1.0
LOSSES_AT_ONCE = 1_000
"""Losses of one commit that have a row of their own in the table. Further losses are merged."""
MERGED_MAX = 1_000
"""Most merged rows of one commit, because a source can fabricate a session with every packet.

Losses beyond this limit are added to the last row.
"""
LOGGED_PER_FLUSH = 20
"""Most log lines about losses between two commits.

One more line states how many further losses were recorded.
"""

log = logging.getLogger(__name__)


class Losses:
    """Records the losses of multicast messages of one queue manager: in the log and in a table."""

    def __init__(self, journal: Journal, utc: Callable[[], int]) -> None:
        self._journal = journal
        self._utc = utc
        self._exact: list[Loss] = []
        self._merged: dict[tuple[str, ...], Loss] = {}
        self._logged = self._not_logged = 0
        self._alarm = Alarm(asyncio.get_running_loop(), self.flush)
        self._kept = True
        """Whether the table may contain rows. At the start these would be rows of an earlier run.
        """
        self.packets: dict[tuple[str, str], int] = {}
        """Lost packets since the start, by (queue, reason)."""

    def note(
        self,
        queue: str,
        address: str,
        source: str,
        tsi: str,
        first: int,
        last: int,
        packets: int,
        reason: str,
        detail: str | None = None,
    ) -> None:
        """Record that the packets ``first`` to ``last`` (included) of a session became no row.

        ``source`` is the IP address and ``tsi`` the transport session identifier, both as text;
        ``packets`` is the number of lost packets in the range. ``reason`` is a code that is
        counted, ``detail`` a text. The loss is counted at once, logged unless LOGGED_PER_FLUSH
        lines were written, and stored within FLUSH_SECONDS or so.
        """
        self.packets[queue, reason] = self.packets.get((queue, reason), 0) + packets
        loss = Loss(queue, address, source, tsi, first, last, packets, reason, detail, self._utc())
        if self._logged < LOGGED_PER_FLUSH:
            self._logged += 1
            log.warning(
                "pgm.lost queue=%s address=%s source=%s tsi=%s first=%d last=%d "
                "packets=%d reason=%s%s",
                queue,
                address,
                source,
                tsi,
                first,
                last,
                packets,
                reason,
                f" detail={detail}" if detail else "",
            )
        else:
            self._not_logged += 1
        if len(self._exact) < LOSSES_AT_ONCE:
            self._exact.append(loss)
        else:
            self._merge(loss)
        self._alarm.within(FLUSH_SECONDS)

    def _merge(self, loss: Loss) -> None:
        key: tuple[str, ...] = (loss.queue, loss.source, loss.tsi, loss.reason)
        if key not in self._merged and len(self._merged) >= MERGED_MAX:
            key = next(reversed(self._merged))
        known = self._merged.get(key)
        merged = (
            loss
            if known is None
            else known._replace(last=loss.last, packets=known.packets + loss.packets)
        )
        self._merged[key] = merged

    def flush(self) -> None:
        """Hand the collected losses to the journal, which stores them with a later commit.

        The call does not wait for that. A failure of the commit is logged.
        """
        self._alarm.stop()
        if self._not_logged:
            log.warning(
                "pgm.lost_more events=%d: further losses were recorded in the table pgm_loss",
                self._not_logged,
            )
        self._logged = self._not_logged = 0
        rows = [*self._exact, *self._merged.values()]
        self._exact.clear()
        self._merged.clear()
        if rows:
            self._kept = True
            self._journal.call(partial(losses.store, losses=rows), _stored)

    def published(self, position: int) -> None:
        """Delete the losses up to commit number ``position``: the Delta table contains them.

        The deletion is only handed to the journal. If it fails, the next call tries again.
        """
        if self._kept:
            # Losses that are noted meanwhile are found by the next call.
            self._kept = False
            self._journal.call(partial(_forget, position=position), self._forgotten)

    def _forgotten(self, left: bool | None, error: BaseException | None) -> None:
        self._kept = self._kept or bool(left) or error is not None


def _forget(transaction: Transaction, position: int) -> bool:
    losses.forget(transaction, position)
    (left,) = transaction.connection.execute("SELECT EXISTS(SELECT 1 FROM pgm_loss)").fetchone()
    return bool(left)


def _stored(result: None, error: BaseException | None) -> None:
    if error is not None:
        log.error("pgm.losses_not_stored: %r", error)
