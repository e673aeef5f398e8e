"""Received marks of a streaming query (``readMode`` receive; INTERFACE.md section 4).

A mark tells the queue manager which rows a consumer has received.

Theory of operation. When the engine calls ``latestOffset(start, …)``, the commit of the batch that
ended at ``start`` is on disk. This is so while the stream is idle too, and after the last batch of
AvailableNow. Spark's own ``commit(n)`` is called only when a batch n+1 with data is planned. So the
mark for ``start`` is sent in ``latestOffset``. With asynchronous progress tracking
(:mod:`.spark_progress`) the commit is not on disk then, and ``commit`` sends the mark.

A mark covers only rows that this query has read. The offsets of a query state where the query
began, whatever other queries, a ``receive`` by command or a restored queue manager did meanwhile.
If the offsets do not state it, there are two cases. Either the query began at the first row, and
the mark continues after what is received. Or the checkpoint is one of the first ones, and the queue
manager knows the beginning from the registration of the lease. Marks never move back, so sending a
mark twice is harmless.

A mark may be refused because the log is not what the query knew: its queue or epoch is gone, or it
ends before the mark. Then rows are lost, as for a read at that place. ``failOnDataLoss`` decides,
and the mark does not count as sent.
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
from srmp_spark.spark.reading.elsewhere import Elsewhere
from srmp_spark.spark.reading.logs import Logs
from srmp_spark.spark.reading.offsets import AT_THE_FIRST, Began, LogKey, Offsets, Position
from srmp_spark.spark.reading.parallel import gather
from srmp_spark.spark.reading.partitions import clipped

_log = logging.getLogger(__name__)


class Marks:
    """The leases that a query holds, and the marks that it has sent.

    The object lives in the driver-side reader process only.
    """

    def __init__(self, logs: Logs, consumer: str, elsewhere: Elsewhere) -> None:
        self._logs = logs
        self._elsewhere = elsewhere
        self._consumer = consumer
        self._keeper = LeaseKeeper(
            Holder.here(f"Spark query, consumer {consumer}{of_driver()}").as_dict()
        )
        self._sent: dict[LogKey, Position] = {}
        """Position up to which no mark is needed, for each log whose lease the query holds."""
        self._marked: dict[LogKey, tuple[Began, int]] = {}
        """How far a log was marked, and for which beginning of the query.

        The next mark begins after it.
        """

    def begin(self, key: LogKey, first: int | None = None) -> int:
        """Acquire the lease of a log for a new query that starts at ``first``, and keep it.

        ``first`` is the first sequence that the query reads, or ``None`` while it is not known;
        marks cover no row before it. Return the sequence up to which the consumer has received.
        Raises :class:`ApiError` ``C00E0009``, which names the holder, if another receiver holds the
        lease.
        """
        answer = self._keeper.acquire(
            self._logs.client(key), key.queue, self._consumer, first=first, ranged=True
        )
        self._sent[key] = Position(answer.epoch, answer.received)
        return answer.received

    def resume(self, keys: Iterable[LogKey]) -> None:
        """Acquire the leases of ``keys`` that are not held yet, as after a restart.

        Queues of a glob that another receiver holds are noted (:mod:`.elsewhere`), and those of a
        queue manager that is away are left out. The leases of these queues are requested again when
        they seem to be free. Raises :class:`ApiError` if another receiver holds a queue that the
        options name exactly, or if the queue manager refuses for another reason.
        """
        wanted = [
            key
            for key in keys
            if key not in self._sent
            and key in self._logs
            and self._elsewhere.may_be_asked(key, self._logs.holder_of(key))
        ]
        # The calls run in parallel, because each may wait until another receiver renews its lease.
        gather([partial(self._resume, key) for key in wanted])

    def _resume(self, key: LogKey) -> None:
        try:
            answer = self._logs.managers.ask(key.queue_manager, partial(self._lease, key))
        except ApiError as error:
            if error.status != 404:
                self._elsewhere.note(key, error)
            else:
                # The read reports the missing queue, as failOnDataLoss says.
                self._elsewhere.joined(key)
            return
        if answer is not None:
            self._sent[key] = Position(answer.epoch, answer.received)
            if self._elsewhere.joined(key):
                _log.warning(
                    "log.joined log=%s: its lease was free; the query continues at its "
                    "last position",
                    key,
                )

    def are_sent(self, key: LogKey, position: Position) -> bool:
        """Return whether all marks of a log up to ``position`` are sent.

        The result is False for a log whose lease is not held.
        """
        sent = self._sent.get(key)
        return (
            sent is not None and sent.epoch == position.epoch and position.sequence <= sent.sequence
        )

    def send(self, offsets: Offsets) -> None:
        """Mark all rows up to ``offsets`` as received, because the query has processed them.

        Logs without a lease, without new rows, or of a queue manager that is away are left out; a
        later mark includes them. Raises :class:`ApiError` if a lease was lost to another receiver,
        and :class:`DataLossError` if the log is not what it was (``failOnDataLoss``).
        """
        self._keeper.check()
        for key, position in offsets.items():
            sent, first = self._sent.get(key), self._first_of(key, position, offsets.began.get(key))
            if sent is None or (
                position.epoch == sent.epoch and position.sequence <= sent.sequence
            ):
                continue
            if first is not None and position.sequence < first:
                # The query has read nothing of this log yet.
                continue
            try:
                began = offsets.began.get(key, AT_THE_FIRST)
                is_told = self._logs.managers.ask(
                    key.queue_manager, partial(self._mark, key, position, first, began.left_out)
                )
            except ApiError as error:
                if error.status != 404 and error.code not in (UNKNOWN_EPOCH, PAST_THE_END):
                    raise
                _log.warning("mark.refused log=%s to=%s reason=%s", key, position.sequence, error)
                if error.status == 404:
                    # The lease was deleted with the queue. A queue that is made again is registered
                    # anew.
                    del self._sent[key]
                # A read is refused for the same reason, and failOnDataLoss decides.
                self._logs.advance(key, position, max_rows=1)
            else:
                if is_told is None:
                    # The queue manager is away. The next mark includes this one.
                    continue
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
        """Mark the rows from ``first`` to ``position`` as received, except the rows in ``taken``.

        The query has left out the rows in ``taken``. If the consumer has received all of them, one
        mark covers the whole range. Return True always, because the caller
        (:meth:`.QueueManagers.ask`) returns ``None`` if the queue manager does not answer.
        """
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
        """Renew the lease; return whether the consumer has received all rows in ``runs``.

        This is the usual case, and the reason why the query has left them out.
        """
        answer = self._lease(key, client)
        received = SequenceSet([(1, answer.received)] if answer.received else [])
        for first, last in client.all_ahead(key.queue, self._consumer, answer):
            received.add(first, last)
        return all(received.next_missing(first) > last for first, last in runs)

    def _lease(self, key: LogKey, client: QueueManagerClient) -> Registration:
        return self._keeper.acquire(client, key.queue, self._consumer, ranged=True)

    def _first_of(self, key: LogKey, position: Position, began: Began | None) -> int | None:
        """Return the first sequence that the mark up to ``position`` covers.

        Return ``None`` if only the queue manager knows it. If the log was set back, the marks that
        were sent are forgotten first.
        """
        if began is None:
            return None
        before, marked = self._marked.get(key, (began, 0))
        if key in self._sent and (before.first != began.first or position.sequence < marked):
            # The log was set back, and its sequences name other rows now.
            self._sent[key], marked = (
                Position("", 0),
                0,
            )
        return max(began.first, marked + 1)

    def release(self) -> None:
        """Release all leases, within RELEASE_SECONDS. This method never raises."""
        self._keeper.release()
