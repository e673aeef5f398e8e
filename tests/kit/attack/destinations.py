"""The destinations of the target: a good one that checks messages, and a hostile server.

Every message for the good destination must arrive there once. Messages must arrive in order where
the order is promised. These rules hold whatever the hostile server does at the same time. Messages
for the hostile server are not judged.
"""

from __future__ import annotations

import itertools
from collections import Counter

from srmp_spark.testing.foreign.destination_server import Destination
from tests.kit.attack.hostile_http import HostileServer
from tests.kit.attack.judge import Finding

STREAM, PLAIN, STAGED = "private$/stream", "private$/plain", "private$/staged"
"""Queues of the good destination for transactional messages, recoverable ones, and stages."""
ASTRAY = "private$/astray"
"""Queue of the good destination that receives no message; redirects lead to it."""
ORDERED = frozenset({STREAM, STAGED})
BAD_MAX = 400
"""Number of queues of the hostile server.

The number is higher than the number of connections that destinations without an answer may hold
(TROUBLED_MAX).
"""
KINDS = ("stream", "plain", "express", "wsrm")
"""The ways in which messages are sent to the hostile server.

``stream``, ``plain`` and ``express`` are transactional, recoverable and express messages of SRMP;
``wsrm`` is WS-ReliableMessaging.
"""


class Destinations:
    """One good destination and one hostile one, which outlive each restart of the target.

    The body of a message for the good destination is a number, from 1 in each queue.
    """

    def __init__(self) -> None:
        self.good = Destination()
        self.bad = HostileServer(self.good.url(ASTRAY))
        self._asked: dict[str, list[int]] = {STREAM: [], PLAIN: [], STAGED: []}
        """Numbers that were sent, by queue; the target may have accepted them."""
        self._taken: dict[str, set[int]] = {STREAM: set(), PLAIN: set(), STAGED: set()}
        """Numbers that the target accepted with an answer, by queue."""

    def start(self) -> None:
        """Start to listen with both servers."""
        self.good.start()
        self.bad.start()

    def stop(self) -> None:
        """Stop both servers and close their ports."""
        self.bad.stop()
        self.good.stop()

    def good_url(self, queue: str) -> str:
        """Return the URL of a queue of the good destination."""
        return self.good.url(queue)

    def bad_url(self, number: int, kind: str) -> str:
        """Return the URL of queue ``number`` of the hostile server for messages of ``kind``."""
        if kind == "wsrm":
            return f"wsrm:http://127.0.0.1:{self.bad.port}/bad{number}"
        return f"http://127.0.0.1:{self.bad.port}/msmq/private$/bad{number}"

    # --- what must have become of it --------------------------------------------------------------

    def ask(self, queue: str, count: int) -> list[int]:
        """Reserve the next ``count`` numbers of a queue and return them.

        Messages with these numbers may arrive from now on.
        """
        asked = self._asked[queue]
        numbers = list(range(len(asked) + 1, len(asked) + count + 1))
        asked += numbers
        return numbers

    def taken(self, queue: str, numbers: list[int]) -> None:
        """Record that the target accepted the messages ``numbers``, so they must arrive."""
        self._taken[queue].update(numbers)

    def problem(self) -> Finding | None:
        """Return a finding if messages are missing, doubled, disordered or unexpected.

        A broken rule of [MC-MQSRM] is a finding too. Return ``None`` otherwise. A missing message
        may still be in flight, so call this method again later.
        """
        queues = self.good.queues
        if unknown := queues.keys() - self._asked.keys():
            return Finding(
                "astray", f"messages arrived in {sorted(unknown)}, and nobody sent any there"
            )
        for queue, asked in self._asked.items():
            there = [int(message.body) for message in queues.get(queue, [])]
            if doubled := [number for number, times in Counter(there).items() if times > 1]:
                return Finding("doubled", f"{queue}: {doubled[:10]} arrived more than once")
            if strange := set(there) - set(asked):
                return Finding(
                    "astray", f"{queue}: {sorted(strange)[:10]} arrived, and nobody sent them"
                )
            if queue in ORDERED and there != sorted(there):
                first = next(after for before, after in itertools.pairwise(there) if after < before)
                return Finding("disordered", f"{queue}: {first} arrived after a later message")
            if missing := self._taken[queue] - set(there):
                return Finding(
                    "stuck", f"{queue}: {sorted(missing)[:10]} do not arrive at a good destination"
                )
        if self.good.violations:
            return Finding("violation", f"the good destination saw: {self.good.violations[0]}")
        return None
