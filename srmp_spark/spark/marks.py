"""Received marks of a streaming query (``readMode`` receive; INTERFACE.md section 4).

Theory of operation. When the engine calls ``latestOffset(start, …)``, the batch that ended at ``start`` has its commit on
disk, also while the stream is idle and after the last batch of AvailableNow; Spark's own ``commit(n)`` comes only when a batch
n+1 with data is planned. So the mark for ``start`` is sent then, and ``commit`` sends it where that is not so: with
asynchronous progress tracking (:mod:`.spark_progress`). A mark
covers only what this query has read: its offsets say where it began, whatever other queries, a ``receive`` by command or a
restored queue manager did meanwhile. Where they do not say it, it began at the first row and the mark goes on behind what is
received, or the checkpoint is one of the first ones: then the queue manager knows from what was registered with the lease.
Marks never go back: sending one twice does no harm.

A mark that is refused because the log is not what the query knew (its queue or epoch is gone, or ends before the mark) is lost
rows, as it would be for a read at that place: ``failOnDataLoss`` decides, and the mark does not count as sent.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial

from srmp_spark.client.api import QueueManagerClient, Registration
from srmp_spark.client.lease import LeaseKeeper
from srmp_spark.errors import ApiError
from srmp_spark.holder import Holder
from srmp_spark.interface import PAST_THE_END, UNKNOWN_EPOCH
from srmp_spark.sequences.ranges import Range, gaps
from srmp_spark.sequences.sequence_set import SequenceSet
from srmp_spark.spark.driver_process import of_driver
from srmp_spark.spark.elsewhere import Elsewhere
from srmp_spark.spark.logs import Logs
from srmp_spark.spark.offsets import AT_THE_FIRST, Began, LogKey, Offsets, Position
from srmp_spark.spark.parallel import gather
from srmp_spark.spark.partitions import clipped

_log = logging.getLogger(__name__)


class Marks:
    """The leases that a query holds and the marks it has sent. Lives in the driver-side reader process only."""

    def __init__(self, logs: Logs, consumer: str, elsewhere: Elsewhere) -> None:
        self._logs = logs
        self._elsewhere = elsewhere
        self._consumer = consumer
        self._keeper = LeaseKeeper(
            Holder.here(f"Spark query, consumer {consumer}{of_driver()}").as_dict()
        )
        self._sent: dict[LogKey, Position] = {}
        """Highest sequence that needs no mark (any more), and its epoch, for each log whose lease we hold."""
        self._marked: dict[LogKey, tuple[Began, int]] = {}
        """How far we have marked a log, for a query that began there: the next mark begins behind."""

    def begin(self, key: LogKey, first: int | None = None) -> int:
        """Take the lease of a log for a new query that starts at ``first``; answers how far the consumer has received.

        Raises :class:`ApiError` ``C00E0009`` naming the holder if another receiver lives.
        """
        answer = self._keeper.acquire(
            self._logs.client(key), key.queue, self._consumer, first=first, ranged=True
        )
        self._sent[key] = Position(answer.epoch, answer.received)
        return answer.received

    def resume(self, keys: Iterable[LogKey]) -> None:
        """Take the leases that are not held yet, going on with what was planned before a restart.

        What another receiver holds of a glob is noted, and asked for again when its lease seems to be free.
        """
        wanted = [
            key
            for key in keys
            if key not in self._sent
            and key in self._logs
            and self._elsewhere.may_be_asked(key, self._logs.holder_of(key))
        ]
        gather(
            [partial(self._resume, key) for key in wanted]
        )  # each may wait until another receiver renews

    def _resume(self, key: LogKey) -> None:
        try:
            answer = self._logs.managers.ask(key.queue_manager, partial(self._lease, key))
        except ApiError as error:
            if error.status != 404:
                self._elsewhere.note(key, error)
            else:  # the read says so, by failOnDataLoss
                self._elsewhere.joined(key)
            return
        if answer is not None:
            self._sent[key] = Position(answer.epoch, answer.received)
            if self._elsewhere.joined(key):
                _log.warning(
                    "log.joined log=%s: its lease was free; it goes on where the query stands", key
                )

    def are_sent(self, key: LogKey, position: Position) -> bool:
        """Return whether no mark up to ``position`` of a log is still to be sent."""
        sent = self._sent.get(key)
        return (
            sent is not None and sent.epoch == position.epoch and position.sequence <= sent.sequence
        )

    def send(self, offsets: Offsets) -> None:
        """Everything up to ``offsets`` is processed.

        Raises :class:`ApiError` when the lease was lost to another receiver, :class:`DataLossError` when the log is not what
        it was.
        """
        self._keeper.check()
        for key, position in offsets.items():
            sent, first = self._sent.get(key), self._first_of(key, position, offsets.began.get(key))
            if sent is None or (
                position.epoch == sent.epoch and position.sequence <= sent.sequence
            ):
                continue
            if first is not None and position.sequence < first:
                continue  # it has read nothing yet
            try:
                began = offsets.began.get(key, AT_THE_FIRST)
                is_told = self._logs.managers.ask(
                    key.queue_manager, partial(self._mark, key, position, first, began.taken)
                )
            except ApiError as error:
                if error.status != 404 and error.code not in (UNKNOWN_EPOCH, PAST_THE_END):
                    raise
                _log.warning("mark.refused log=%s to=%s reason=%s", key, position.sequence, error)
                if error.status == 404:
                    del self._sent[
                        key
                    ]  # its lease is gone with it; a queue that comes back is registered anew
                self._logs.advance(
                    key, position, max_rows=1
                )  # refused for the same reason: failOnDataLoss decides
            else:
                if is_told is None:
                    continue  # it is away: the mark goes with the next one
                self._sent[key] = position
                if key in offsets.began:
                    self._marked[key] = (offsets.began[key], position.sequence)

    def _mark(
        self,
        key: LogKey,
        position: Position,
        first: int | None,
        taken: SequenceSet,
        client: QueueManagerClient,
    ) -> bool:
        """Mark ``first`` to ``position`` but for ``taken``, which the query has left out."""
        to = position.sequence
        left_out = [] if first is None else list(clipped(taken, first - 1, to))
        runs = [(first, to)]
        if left_out and first is not None and not self._has_received(key, left_out, client):
            runs = list(gaps(first, to, left_out))
        for low, high in runs:
            client.received(
                key.queue,
                self._consumer,
                epoch=position.epoch,
                first=low,
                to=high,
                holder=self._keeper.holder,
            )
        return True

    def _has_received(self, key: LogKey, runs: Sequence[Range], client: QueueManagerClient) -> bool:
        """Return whether the consumer has received all of these already: mostly, it is why the query has left them out."""
        answer = self._lease(key, client)
        received = SequenceSet([(1, answer.received)] if answer.received else [])
        for first, last in client.all_ahead(key.queue, self._consumer, answer):
            received.add(first, last)
        return all(received.next_missing(first) > last for first, last in runs)

    def _lease(self, key: LogKey, client: QueueManagerClient) -> Registration:
        return self._keeper.acquire(client, key.queue, self._consumer, ranged=True)

    def _first_of(self, key: LogKey, position: Position, began: Began | None) -> int | None:
        """Return the first sequence of the mark for ``position``; ``None``: the queue manager knows it."""
        if began is None:
            return None
        before, marked = self._marked.get(key, (began, 0))
        if key in self._sent and (before.first != began.first or position.sequence < marked):
            self._sent[key], marked = (
                Position("", 0),
                0,
            )  # the log went back, and its sequences name other rows now
        return max(began.first, marked + 1)

    def release(self) -> None:
        """Give all leases up; never raises."""
        self._keeper.release()
