"""Judges the process under attack; each limit is a bound that users are promised."""

from __future__ import annotations

from dataclasses import dataclass

HEALTHZ_MAX = 0.25
"""Longest time until ``GET /healthz`` is answered, in seconds.

A later answer means that something blocked the loop that accepts connections.
"""
HONEST_MAX = 3.0
"""Longest time, in seconds, until a good sender's message is stored and answered.

The sender shares the disk and the cores with the attack. The limit detects starvation and does not
measure speed.
"""
OPTIONAL_MAX = 10.0
"""Longest time, in seconds, for the good client of an optional transport.

The transport's own process may be busy with a large message of another client.
"""
MEMORY_MAX = 1_400_000_000
"""Most bytes of the main process and all its helpers together.

At rest these processes use about 400 MB. The ports have budgets of 64 to 256 MB each.
"""
RESTART_MAX = 25.0
"""Longest time, in seconds, from the start after kill -9 to the ready line."""
PULL_MAX = 60.0
"""Longest time, in seconds, until each readable message of an honest remote queue is a row.

A reader waits up to 30 s between its attempts.
"""
SENT_MAX = 75.0
"""Longest time, in seconds, until sent messages have arrived at a good destination.

A destination that does not answer holds a needed connection for at most 30 s. Messages that were in
flight at a kill are sent again after a resend interval.
"""
ANSWER_MAX = 30.0
"""Longest time, in seconds, until a complete request is answered.

Instead of an answer the port may also close the connection.
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """An event that must not happen."""

    kind: str
    """One word that says what was broken. A replay must end with a finding of the same kind."""
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


class FoundError(Exception):
    """Raised by a walker that sees a finding itself. ``finding`` has it."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding


def check_status(port: str, status: int, allowed: frozenset[int], sent: str) -> None:
    """Raise :class:`FoundError` if the HTTP ``status`` is not in ``allowed``.

    ``port`` and ``sent`` (a description of the request) are only for the text of the finding.
    """
    if status not in allowed:
        raise FoundError(Finding("answer", f"{port} answered {status} to {sent}"))
