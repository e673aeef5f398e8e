"""The logs that a query reads: their queue managers, their queues, and how far each can be read.

Theory of operation. A query names queue managers by URL, and queues by name or glob. From the first
answer on, the query knows a queue manager by its GUID and a log by (GUID, queue). One step of a log
(:meth:`Logs.advance`) either reads further in its epoch, or moves without reading a row. A step
moves into the next epoch when the old epoch is read to its end. A step moves over deleted rows if
``failOnDataLoss=false`` allows that.

So the content of a batch follows from its two offsets alone. If both offsets have the same epoch,
the batch has the rows between them. Otherwise the batch has no rows. A batch that Spark runs again
after a crash has the same rows.
"""

from __future__ import annotations

import difflib
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.errors import ApiError, ConfigurationError, DataLossError
from srmp_spark.interface import PAST_THE_END, TRIMMED, UNKNOWN_EPOCH
from srmp_spark.log_once import OncePerKey
from srmp_spark.names import OWN_QUEUES, base_of_journal, base_of_subqueue, is_glob, queue_matches
from srmp_spark.spark.reading.offsets import LogKey, Position
from srmp_spark.spark.reading.parallel import gather
from srmp_spark.spark.reading.queue_managers import QueueManagers
from srmp_spark.spark.settings.options import SourceOptions

TOLD_MAX = 10_000
"""Largest number of warnings that are remembered so that they are not repeated.

At the limit all of them are forgotten, and may be logged again.
"""
DISCOVERY_SECONDS = 2.0
"""Seconds between two lists of the queues. A new queue is read at most this much later."""

_log = logging.getLogger(__name__)


class LogFacts(NamedTuple):
    """The facts that a queue manager reports about one of its queues."""

    first: int
    """Sequence of the oldest row that is kept; ``end + 1`` if no row is kept."""
    end: int
    """Sequence of the last committed row."""
    epochs: tuple[tuple[str, int], ...]
    """Pairs (epoch, first sequence of the epoch), ascending. A log has at least one epoch."""
    received: int
    """Sequence up to which the consumer of the options has received; 0 for an unknown one."""
    holder: str | None = None
    """Text that describes the holder of the consumer's lease; ``None`` if nobody holds it."""

    @classmethod
    def of(cls, entry: Mapping[str, Any], consumer: str) -> LogFacts:
        """Return the facts of one entry of ``GET queues``, as ``consumer`` sees them."""
        unknown: Mapping[str, Any] = {"received": 0}
        found = next((each for each in entry["consumers"] if each["name"] == consumer), unknown)
        epochs = tuple((each["epoch"], each["first"]) for each in entry["epochs"])
        return cls(entry["first"], entry["last"], epochs, found["received"], found.get("holder"))

    def epoch_of(self, sequence: int) -> str:
        """Return the epoch that contains a sequence, or will contain it.

        A sequence before the first epoch counts as part of the first epoch.
        """
        return next(
            (epoch for epoch, first in reversed(self.epochs) if first <= sequence),
            self.epochs[0][0],
        )

    def pieces(self, after: int, to: int) -> list[tuple[str, int, int]]:
        """Split (after, to] by epochs.

        Return triples (epoch, after, to), ascending, without empty ones.
        """
        ends = [first - 1 for _, first in self.epochs[1:]] + [max(to, self.end)]
        cut = [
            (epoch, max(after, first - 1), min(to, end))
            for (epoch, first), end in zip(self.epochs, ends, strict=True)
        ]
        return [piece for piece in cut if piece[2] > piece[1]]


class LogStep(NamedTuple):
    """The position up to which one log can be read in one batch."""

    reached: Position
    end: int
    """Last committed sequence of the epoch that was reached."""
    anew: bool = False
    """Whether the log is unrelated to what the query has read. Reading then begins anew."""


class Logs:
    """Knows the queue managers of a query, and those of their queues that ``options`` names.

    An object lives in one process only. ``retry_seconds`` is how long a call waits for a queue
    manager that does not answer; ``None`` means the option ``queueManagerTimeout``.
    """

    def __init__(
        self, options: SourceOptions, urls: Sequence[str], *, retry_seconds: float | None = None
    ) -> None:
        self._options = options

        def make(url: str, seconds: float | None) -> QueueManagerClient:
            return QueueManagerClient(
                url,
                options.token,
                retry_seconds=seconds or retry_seconds or options.timeout_s,
                allow_plain_token=options.allow_plain_token,
            )

        self.managers = QueueManagers(make, urls)
        self._found: dict[LogKey, LogFacts] = {}
        self._found_at = float("-inf")
        self._present: set[str] = set()
        """Names of all queues, including those that the options do not name."""
        self._paused: set[LogKey] = set()
        """Logs whose readers are paused, so that each pause is logged once."""
        self._logged: OncePerKey[str] = OncePerKey(TOLD_MAX, starts_over=True)
        """Warnings that were logged and need not be repeated: globs without a queue, lost rows."""

    def client(self, key: LogKey) -> QueueManagerClient:
        """Return the client of the log's queue manager.

        Raises :class:`KeyError` if the query names no URL of this queue manager.
        """
        return self.managers[key.queue_manager]

    def __contains__(self, key: LogKey) -> bool:
        """Return whether the query names the log's queue manager and the log's queue."""
        return key.queue_manager in self.managers and queue_matches(key.queue, self._options.queues)

    def is_read(self, key: LogKey, position: Position) -> bool:
        """Return whether a log of the checkpoint is read now.

        If the options no longer name the queue, it is not read, and its position stays. A queue
        manager that does not answer is not read now. If no URL names the queue manager, the rows
        are lost: :meth:`report_loss` raises :class:`DataLossError` or logs the loss.
        """
        return (
            self.can_be_read(key, position)
            and key in self
            and self.managers.is_here(key.queue_manager)
        )

    def can_be_planned(self, key: LogKey, position: Position) -> bool:
        """Return whether a batch with rows of this log can be planned now.

        If the query does not name the queue manager, the rows are lost: :meth:`report_loss` raises
        :class:`DataLossError` or logs the loss.

        Raises :class:`ApiUnreachableError` if the rows may be at a queue manager that does not
        answer. Otherwise a batch without them would be committed, and they would count as received.
        """
        if key.queue_manager not in self.managers:
            self.managers.check_all_are_here()
        return self.can_be_read(key, position)

    def can_be_read(self, key: LogKey, position: Position) -> bool:
        """Return whether the query names the log's queue manager, as far as its GUID is known.

        While a queue manager has not answered yet, it may have the log, and the result is False. If
        none of the queue managers has the log, the rows are lost: :meth:`report_loss` raises
        :class:`DataLossError` or logs the loss.
        """
        if key.queue_manager in self.managers:
            return True
        # A queue manager that has not answered yet may have the log.
        if not self.managers.some_are_unknown:
            self.report_loss(
                f"its queue manager is none of those at {self.managers.urls} (option queueManager)",
                key,
                position,
            )
        return False

    def discover(
        self, known: Iterable[LogKey] | None = (), *, now: bool = False
    ) -> Mapping[LogKey, LogFacts]:
        """Return the facts of all logs that exist and match the options, sorted by key.

        The queues are listed again at most every :data:`DISCOVERY_SECONDS`, or at once if ``now``.
        Queue managers that are away are called again if that is due, and keep the facts of their
        last list. Raises :class:`ConfigurationError` for a name that is no glob, that no queue has,
        and that is not in ``known``. If ``known`` is ``None``, any name may be missing. Raises
        :class:`ApiUnreachableError` if no queue manager answers.
        """
        if now or time.monotonic() - self._found_at >= DISCOVERY_SECONDS:
            self.managers.look()
            guids = list(self.managers)
            lists = gather([partial(self.managers.ask, guid, self._listed) for guid in guids])
            present = {
                LogKey(guid, entry["name"]): LogFacts.of(entry, self._options.consumer)
                for guid, entries in zip(guids, lists, strict=True)
                for entry in entries or ()
            }
            present.update(
                {
                    key: facts
                    for key, facts in self._found.items()
                    if not self.managers.is_here(key.queue_manager)
                }
            )
            self._present = {key.queue for key in present}
            if known is not None:
                self.check_names(known)
            self._found = {
                key: present[key]
                for key in sorted(present)
                if queue_matches(key.queue, self._options.queues)
            }
            self._found_at = time.monotonic()
        return self._found

    def _listed(self, client: QueueManagerClient) -> list[Mapping[str, Any]]:
        """Return the queues of a queue manager, including named queues that its list omits.

        The list omits its own queues while they are empty, journals, and subqueues that remote
        readers made.
        """
        found: list[Mapping[str, Any]] = [*client.queues()]
        listed = {entry["name"] for entry in found}
        for name in self._options.queues:
            unlisted = (
                name in OWN_QUEUES
                or base_of_journal(name)
                or (base_of_subqueue(name) and not is_glob(name))
            )
            if unlisted and name not in listed:
                try:
                    found.append(client.queue(name))
                except ApiError as error:
                    if error.status != 404:
                        raise
        return found

    def check_names(self, known: Iterable[LogKey]) -> None:
        """Raise :class:`ConfigurationError` if the options name a queue that does not exist.

        A queue of a log in ``known`` counts as existing. A glob that matches no queue is logged
        once. Nothing is checked while a queue manager is away, because it may have the queue.
        """
        self._check_names(self._present, {key.queue for key in known})

    def _check_names(self, present: set[str], known: set[str]) -> None:
        if self.managers.why_away is not None:
            # A queue manager that is away may have the name.
            return
        for pattern in self._options.queues:
            if pattern in present or pattern in known:
                continue
            if is_glob(pattern):
                if (
                    pattern not in self._logged
                    and not any(queue_matches(queue, [pattern]) for queue in present)
                    and self._logged.is_new(pattern)
                ):
                    listed = ", ".join(sorted(present)) or "none"
                    _log.warning(
                        "queues.none no queue matches %r yet, so nothing is read; there are: %s",
                        pattern,
                        listed,
                    )
                continue
            close = difflib.get_close_matches(pattern, present, 1, 0.6)
            advice = (
                f"did you mean {close[0]!r}?"
                if close
                else f"there are: {', '.join(sorted(present)) or 'none'}"
            )
            raise ConfigurationError(
                f"no queue {pattern!r} at {self.managers.urls}; {advice} (create one with "
                f"`srmp-spark serve --queue {pattern}`)"
            )

    def holder_of(self, key: LogKey) -> str | None:
        """Return the text that describes the holder of the consumer's lease of a log, or ``None``.

        The text is from the last list of the queue manager.
        """
        return self._found[key].holder if key in self._found else None

    # --- one log ----------------------------------------------------------------------------------

    def advance(
        self,
        key: LogKey,
        position: Position,
        *,
        max_rows: int | None = None,
        max_bytes: int | None = None,
        wait: float | None = None,
    ) -> LogStep:
        """Find how far a log can be read from ``position`` in one step.

        No row is read, and no position is kept. With ``wait`` (seconds) the queue manager waits
        that long for a new row. The step stays at ``position`` if there is nothing new, or if one
        of several queue managers does not answer; that one then counts as away. Raises
        :class:`DataLossError` if rows are gone (``failOnDataLoss``), :class:`ApiError` for another
        refusal, and :class:`ApiUnreachableError` if no queue manager answers.
        """

        def step(client: QueueManagerClient) -> LogStep:
            return self._advance(client, key, position, max_rows, max_bytes, wait)

        return self.managers.ask(key.queue_manager, step) or LogStep(position, position.sequence)

    def _advance(
        self,
        client: QueueManagerClient,
        key: LogKey,
        position: Position,
        max_rows: int | None,
        max_bytes: int | None,
        wait: float | None,
    ) -> LogStep:
        try:
            found = client.range(
                key.queue,
                epoch=position.epoch,
                after=position.sequence,
                max_rows=max_rows,
                max_bytes=max_bytes,
                wait=wait,
            )
        except ApiError as error:
            step = self._after_refusal(key, position, error)
            if step is None:
                raise
            return step
        self._note_pause(key, is_paused=found.paused)
        if found.last > position.sequence:
            return LogStep(Position(position.epoch, found.last), found.end)
        # A limit below one row still admits one row.
        if found.end > position.sequence:
            return LogStep(Position(position.epoch, position.sequence + 1), found.end)
        if found.next_epoch is None:
            return LogStep(position, found.end)
        _log.info(
            "epoch.followed log=%s from=%s to=%s at=%s",
            key,
            position.epoch,
            found.next_epoch,
            position.sequence,
        )
        return LogStep(Position(found.next_epoch, position.sequence), found.end)

    def _note_pause(self, key: LogKey, *, is_paused: bool) -> None:
        """Log that the readers of a log were paused, or that the pause has ended."""
        if is_paused and key not in self._paused:
            self._paused.add(key)
            _log.warning(
                "log.paused log=%s: its readers are paused, so no rows are planned; "
                "srmp-spark queue resume '%s'",
                key,
                key.queue,
            )
        elif not is_paused and key in self._paused:
            self._paused.discard(key)
            _log.info("log.resumed log=%s", key)

    def _after_refusal(self, key: LogKey, position: Position, error: ApiError) -> LogStep | None:
        """Return the step with which to continue after the queue manager refused a position.

        Return ``None`` if the error has another cause. Raises :class:`DataLossError` unless
        ``failOnDataLoss=false`` allows the loss.
        """
        if error.status == 404:
            self.report_loss(f"the queue no longer exists ({error.message})", key, position)
            return LogStep(position, position.sequence)
        if error.code == UNKNOWN_EPOCH:
            now = self.client(key).range(key.queue)
            self.report_loss(
                f"its epoch {position.epoch} is unknown there, the log now has epoch "
                f"{now.epoch}: the queue manager was "
                "started from another or an empty data directory",
                key,
                position,
                f"continues at sequence {now.first} of epoch {now.epoch}",
            )
            return LogStep(Position(now.epoch, now.first - 1), now.end, anew=True)
        if error.code not in (TRIMMED, PAST_THE_END):
            return None
        now = self.client(key).range(key.queue, epoch=position.epoch)
        if error.code == TRIMMED:
            self.report_loss(
                f"rows up to {now.first - 1} were deleted by retention, by `queue trim`, or with "
                "an earlier queue of this name",
                key,
                position,
                f"skips {position.sequence + 1} to {now.first - 1}",
            )
            return LogStep(Position(position.epoch, now.first - 1), now.end)
        self.report_loss(
            f"the log ends at {now.end}, before what the query has read",
            key,
            position,
            f"continues after {now.end}",
        )
        return LogStep(Position(position.epoch, now.end), now.end)

    def report_loss(
        self, what: str, key: LogKey, position: Position, instead: str = "leaves it out"
    ) -> None:
        """Raise :class:`DataLossError` or log a loss, because rows of a log are gone.

        With ``failOnDataLoss=false`` nothing is raised: the loss is logged once, with ``instead``,
        the text of what the query does.
        """
        text = f"{key}, read up to {position.sequence}: {what}"
        if self._options.fail_on_data_loss:
            raise DataLossError(f"{text}. With failOnDataLoss=false the query {instead}.")
        # An idle query finds the same loss several times a second.
        if self._logged.is_new(text):
            _log.warning("data.lost %s; failOnDataLoss=false: the query %s", text, instead)
