"""The judge: what the process may cost and answer while it is attacked. Each limit is a bound that users are promised."""

from __future__ import annotations

from dataclasses import dataclass

HEALTHZ_MAX = 0.25
"""Seconds until ``GET /healthz`` is answered. A later answer means that something held the accepting loop."""
HONEST_MAX = 3.0
"""Seconds until a good sender's message is stored and answered while everything else is attacked. It waits for the same disk
and the same cores as the attack, so this is a bound for starving and no measure of speed."""
OPTIONAL_MAX = 10.0
"""Seconds for the good client of an optional transport: its own process may be busy with a large message of a stranger."""
MEMORY_MAX = 1_400_000_000
"""Bytes of the main process and of all its helpers together. At rest they have about 400 MB; ports have budgets of 64 to
256 MB each."""
RESTART_MAX = 25.0
"""Seconds from the start after kill -9 to the ready line."""
PULL_MAX = 60.0
"""Seconds until what can be read in a remote queue is a row, once its server is honest: a reader waits up to 30 s between its
attempts."""
SENT_MAX = 75.0
"""Seconds until messages that were sent have arrived at a good destination. A connection that others wait for is held for 30 s
at most by a destination that does not answer, and what was under way at a kill is sent again after a resend interval."""
ANSWER_MAX = 30.0
"""Seconds after which a whole request that has no answer, on a connection that is not closed, is a finding."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that must not happen."""

    kind: str
    """One word: what was broken. A replay must find the same kind."""
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


class FoundError(Exception):
    """Raised where a walker sees a finding itself."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding


def check_status(port: str, status: int, allowed: frozenset[int], sent: str) -> None:
    """Raise :class:`FoundError` if ``status`` is no answer that the documents allow."""
    if status not in allowed:
        raise FoundError(Finding("answer", f"{port} answered {status} to {sent}"))
