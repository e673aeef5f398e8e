"""Decide when a stream of ``format("mqrr")`` may read the log that its subscription fills.

Theory of operation. The queue manager pulls messages (receives them from remote queues into its
own) in the background, so a query that reads at once would find an empty log. With ``availableNow``
it would end with success and no rows, whatever waits in the remote queue. So such a query waits
until each remote queue was read completely after the query began (``lag_seconds``). The query fails
with ``last_error`` if a queue cannot be read. A continuous query waits a short time for the queues
that it has just subscribed to, logs problems, and continues, as the queue manager does.

If the query fails, it removes each subscription that it made and that never read anything. A
mistyped host must not keep a subscription that begins to remove messages some day. The queue
manager itself checks that the subscription never read anything.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from srmp_spark.client.attempts import Attempt, attempt
from srmp_spark.client.subscriptions import SubscriptionsClient
from srmp_spark.errors import ApiError, ApiUnreachableError, RemoteQueueError

QUIET_SECONDS = 60.0
"""Seconds without a row or a failure after which ``availableNow`` fails.

This time is longer than the pause between two attempts plus the time-out of a connection.
"""
HINDERED_SECONDS = 10.0
"""Seconds without a new row after which a hindered query takes the rows that it has.

A query is hindered if the local queue is full or remote messages are locked.
"""
PASS_SECONDS = 600.0
"""Longest time that ``availableNow`` waits, in seconds. Then the rows that arrived are the batch.

A queue that is filled as fast as it is read is never seen empty.
"""
FIRST_BATCH_SECONDS = 5.0
"""Longest time that the first batch of a continuous query waits, in seconds.

The next batch has the rest of the rows.
"""
POLL_SECONDS = 0.1
TELL_SECONDS = 30.0
"""Seconds between two checks of a continuous query whether its queues are still read.

A failing queue is tried equally often.
"""

_log = logging.getLogger(__name__)


class Subscribed(NamedTuple):
    """One remote queue of a query, and its subscription."""

    host: str
    queue: str
    to: str
    """Name of the local queue that the messages are pulled into."""
    is_made: bool
    """Whether this query made the subscription."""

    @property
    def remove(self) -> str:
        """Return the command line that a user runs to remove the subscription."""
        return f"srmp-spark subscribe remove --host {self.host} --queue '{self.queue}'"


class FirstPass:
    """Watches, for one query since its start, whether its subscriptions read their queues."""

    def __init__(
        self, client: SubscriptionsClient, queues: Sequence[Subscribed], began: float
    ) -> None:
        """Begin to watch ``queues``.

        ``began`` is the monotonic clock, in seconds, before the first call to the queue manager.
        """
        self._client = client
        self._queues = queues
        self._began = began
        self._logged: dict[Subscribed, str] = {}
        self._asked_at = -math.inf

    def wait_or_fail(self) -> None:
        """Wait until each remote queue was read completely, at most PASS_SECONDS.

        A run with ``availableNow`` calls this. If all queues that are not complete are hindered,
        the wait ends when HINDERED_SECONDS pass without a new row. Raises :class:`RemoteQueueError`
        if a queue cannot be read, or if nothing happens for QUIET_SECONDS; the subscriptions that
        this query made and that never read anything are removed before. Raises the errors of a call
        if the queue manager does not answer.
        """
        self._wait(self._queues, QUIET_SECONDS, PASS_SECONDS, fails=True)

    def wait_a_little(self) -> None:
        """Wait at most FIRST_BATCH_SECONDS for the queues that this query has just subscribed to.

        The first batch of a continuous query calls this method. The logs of the other queues
        already have what was pulled. A queue that cannot be read is logged. Raises the errors of a
        call if the queue manager does not answer.
        """
        made = [each for each in self._queues if each.is_made]
        self._wait(made, FIRST_BATCH_SECONDS, FIRST_BATCH_SECONDS, fails=False)

    def tell(self) -> None:
        """Log new problems of the subscriptions, each once, at most every TELL_SECONDS.

        Between these times the call does nothing. A queue manager that does not answer is ignored,
        because the reader of the log reports it.
        """
        if time.monotonic() < self._asked_at + TELL_SECONDS:
            return
        self._asked_at = time.monotonic()
        try:
            found = self._look(self._queues, known=True)
        except ApiUnreachableError:
            # The log has the same address, so the reader of the log reports the error.
            return
        for each, (entry, what) in found.items():
            if what in (Attempt.FAILED, Attempt.HINDERED):
                self._warn(each, entry)
            elif what is Attempt.COMPLETE:
                self._logged.pop(each, None)

    def _look(
        self, queues: Sequence[Subscribed], *, known: bool = False
    ) -> dict[Subscribed, tuple[dict[str, Any], Attempt]]:
        """Ask for the status; return (entry, outcome of its attempts) for each subscription.

        A subscription that was removed meanwhile gets an entry that says so. With ``known``,
        outcomes from before the query began count too.
        """
        now = time.monotonic()
        there = {
            (each["host"], each["to"]): each for each in self._client.status()["subscriptions"]
        }
        found = {}
        for each in queues:
            entry = there.get((each.host, each.to)) or {
                "mode": None,
                "pulled": 0,
                "lag_seconds": None,
                "last_error": "its subscription was removed",
            }
            found[each] = (
                entry,
                attempt(entry, math.inf if known or each.is_made else now - self._began),
            )
        return found

    def _wait(
        self, queues: Sequence[Subscribed], quiet_s: float, pass_s: float, *, fails: bool
    ) -> None:
        begins = moved_at = time.monotonic()
        pulled: list[int] = []
        while queues:
            found = self._look(queues)
            failed = [each for each, (_, what) in found.items() if what is Attempt.FAILED]
            if failed and fails:
                raise self._failure(failed[0], found[failed[0]][0]["last_error"])
            for each in failed:
                self._warn(each, found[each][0])
            waiting = [
                each
                for each, (_, what) in found.items()
                if what not in (Attempt.COMPLETE, Attempt.FAILED)
            ]
            if not waiting:
                return
            now = time.monotonic()
            if (count := [entry["pulled"] for entry, _ in found.values()]) != pulled:
                pulled, moved_at = count, now
            hindered = [each for each in waiting if found[each][1] is Attempt.HINDERED]
            if len(hindered) == len(waiting) and now > moved_at + min(HINDERED_SECONDS, quiet_s):
                for each in hindered:
                    self._warn(each, found[each][0])
                return
            if now > begins + pass_s:
                _log.info(
                    "mqrr.not_whole queues=%s: the next batch has the rest",
                    ",".join(each.queue for each in waiting),
                )
                return
            if now > moved_at + quiet_s and fails:
                raise self._failure(waiting[0], f"no answer in {quiet_s:g} s")
            time.sleep(POLL_SECONDS)

    def _warn(self, each: Subscribed, entry: dict[str, Any]) -> None:
        why = str(entry["last_error"])
        if self._logged.get(each) != why:
            self._logged[each] = why
            _log.warning(
                "mqrr.trouble queue=%s host=%s: it is tried again: %s", each.queue, each.host, why
            )

    def _failure(self, each: Subscribed, why: str) -> RemoteQueueError:
        went = [one for one in self._queues if one.is_made and self._take_back(one)]
        stays = (
            "its subscription was made by this query, never read anything, and was removed"
            if each in went
            else f"its subscription stays and is tried again; to end it: {each.remove}"
        )
        return RemoteQueueError(f"queue {each.queue} of {each.host} cannot be read: {why}; {stays}")

    def _take_back(self, each: Subscribed) -> bool:
        try:
            self._client.unsubscribe(each.host, each.queue, unused=True)
        except (
            ApiError,
            ApiUnreachableError,
        ):
            # The subscription has read something meanwhile, or was removed.
            return False
        return True
