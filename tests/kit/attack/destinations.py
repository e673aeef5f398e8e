"""Where the target sends to: one good queue manager, which watches what arrives, and one hostile server.

What was sent to the good one must arrive there once each, in order where order is promised, whatever the hostile one does at
the same time. Nobody judges what becomes of messages to the hostile one.
"""

from __future__ import annotations

import itertools
from collections import Counter

from srmp_spark.testing.foreign.destination_server import Destination
from tests.kit.attack.hostile_http import HostileServer
from tests.kit.attack.judge import Finding

STREAM, PLAIN, STAGED = "private$/stream", "private$/plain", "private$/staged"
"""Queues of the good destination: transactional messages, recoverable ones, and rows of stages."""
ASTRAY = "private$/astray"
"""Queue of the good destination that nothing is sent to: redirects lead to it."""
ORDERED = frozenset({STREAM, STAGED})
BAD_MAX = 400
"""Queues of the hostile server: more than its connections may hold when they are in trouble (TROUBLED_MAX)."""
KINDS = ("stream", "plain", "express", "wsrm")
"""How messages are sent to the hostile server."""


class Destinations:
    """One good destination and one hostile one, over all starts of the target."""

    def __init__(self) -> None:
        self.good = Destination()
        self.bad = HostileServer(self.good.url(ASTRAY))
        self._asked: dict[str, list[int]] = {STREAM: [], PLAIN: [], STAGED: []}
        """Numbers that may have been taken, by queue."""
        self._taken: dict[str, set[int]] = {STREAM: set(), PLAIN: set(), STAGED: set()}
        """Numbers that the target answered for."""

    def start(self) -> None:
        """Listen."""
        self.good.start()
        self.bad.start()

    def stop(self) -> None:
        """Be gone."""
        self.bad.stop()
        self.good.stop()

    def good_url(self, queue: str) -> str:
        """Return the destination of messages for a queue of the good one."""
        return self.good.url(queue)

    def bad_url(self, number: int, kind: str) -> str:
        """Return the destination of messages for the hostile server."""
        if kind == "wsrm":
            return f"wsrm:http://127.0.0.1:{self.bad.port}/bad{number}"
        return f"http://127.0.0.1:{self.bad.port}/msmq/private$/bad{number}"

    # --- what must have become of it --------------------------------------------------------------

    def ask(self, queue: str, count: int) -> list[int]:
        """Return the next numbers for a queue; they may arrive from now on."""
        asked = self._asked[queue]
        numbers = list(range(len(asked) + 1, len(asked) + count + 1))
        asked += numbers
        return numbers

    def taken(self, queue: str, numbers: list[int]) -> None:
        """Note that the target has answered for these: they must arrive."""
        self._taken[queue].update(numbers)

    def problem(self) -> Finding | None:
        """Return what is missing, doubled, disordered or unexpected: call again later, it may still be on its way."""
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
