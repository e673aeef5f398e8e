"""When a stream of ``format("mqrr")`` may look at the log: what waits in the remote queue has come, or it is known why not.

Theory of operation. The queue manager pulls in the background, and a query that looks at once finds an empty log: with
``availableNow`` it would end with success and no row, whatever waits there. So such a query waits until each queue was seen
whole after it began (``lag_seconds``), and fails with ``last_error`` if one cannot be read. A query that goes on waits a short
while for what it has just subscribed to, says in the log what is wrong, and goes on: so does the queue manager.

A subscription that this query made and that never read anything is taken back when the query fails: who mistyped a host shall
not have a reader there that begins to remove messages some day. The queue manager itself checks that it never read anything.
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
"""With neither a row nor a failure for so long, ``availableNow`` fails. More than a pause between two attempts and a connection
that nobody takes."""
HINDERED_SECONDS = 10.0
"""Nothing new for so long, and something is in the way (our queue is full, messages are locked): what is here is the batch."""
PASS_SECONDS = 600.0
"""A queue that is filled as fast as it is read is never seen empty: then what is here is the batch."""
FIRST_BATCH_SECONDS = 5.0
"""The same for the first batch of a query that goes on: the next batch has the rest."""
POLL_SECONDS = 0.1
TELL_SECONDS = 30.0
"""How often a query that goes on asks whether its queues are still read: as often as a failing one is tried."""

_log = logging.getLogger(__name__)


class Subscribed(NamedTuple):
    """One remote queue of a query."""

    host: str
    queue: str
    to: str
    """The queue of ours."""
    is_made: bool
    """This query made the subscription."""

    @property
    def remove(self) -> str:
        """The command."""
        return f"srmp-spark subscribe remove --host {self.host} --queue '{self.queue}'"


class FirstPass:
    """The subscriptions of one query, since it began."""

    def __init__(
        self, client: SubscriptionsClient, queues: Sequence[Subscribed], began: float
    ) -> None:
        """``began``: monotonic, before anything was asked."""
        self._client = client
        self._queues = queues
        self._began = began
        self._told: dict[Subscribed, str] = {}
        self._asked_at = -math.inf

    def wait_or_fail(self) -> None:
        """For ``availableNow``. Raises :class:`RemoteQueueError`."""
        self._wait(self._queues, QUIET_SECONDS, PASS_SECONDS, fails=True)

    def wait_a_little(self) -> None:
        """For the first batch of a query that goes on: what it has just subscribed to; of the rest the log has what came."""
        made = [each for each in self._queues if each.is_made]
        self._wait(made, FIRST_BATCH_SECONDS, FIRST_BATCH_SECONDS, fails=False)

    def tell(self) -> None:
        """Say in the log what is wrong now: once, and not with every batch."""
        if time.monotonic() < self._asked_at + TELL_SECONDS:
            return
        self._asked_at = time.monotonic()
        try:
            found = self._look(self._queues, known=True)
        except ApiUnreachableError:
            return  # the log is behind the same address: who reads it says so
        for each, (entry, what) in found.items():
            if what in (Attempt.FAILED, Attempt.HINDERED):
                self._warn(each, entry)
            elif what is Attempt.COMPLETE:
                self._told.pop(each, None)

    def _look(
        self, queues: Sequence[Subscribed], *, known: bool = False
    ) -> dict[Subscribed, tuple[dict[str, Any], Attempt]]:
        """``known``: what is known, and not only what was found out since the query began."""
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
        if self._told.get(each) != why:
            self._told[each] = why
            _log.warning(
                "mqrr.trouble queue=%s host=%s: it is tried again: %s", each.queue, each.host, why
            )

    def _failure(self, each: Subscribed, why: str) -> RemoteQueueError:
        went = [one for one in self._queues if one.is_made and self._take_back(one)]
        stays = (
            "its subscription was made by this query, never read anything, and was taken back"
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
        ):  # it has read something meanwhile, or somebody else has removed it
            return False
        return True
