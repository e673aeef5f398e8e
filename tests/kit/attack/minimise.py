"""Make a finding short: leave out walks, then steps, as long as the same kind of finding comes of the rest."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from tests.kit.attack.judge import Finding
from tests.kit.attack.steps import Walk

Replay = Callable[[Sequence[Walk]], Awaitable[Finding | None]]
"""Plays walks at a new target and returns what is found."""


async def minimised(
    walks: Sequence[Walk], kind: str, replay: Replay, until: float
) -> tuple[Walk, ...] | None:
    """Return the shortest walks that still lead to a finding of ``kind``; ``None`` if all of them do not.

    ``until``: the time, ``time.monotonic``, at which the shortest so far must do.
    """

    async def leads(some: Sequence[Walk]) -> bool:
        found = await replay(some)
        return found is not None and found.kind == kind

    kept = tuple(walks)
    if not await leads(kept):
        return None
    kept = await _without(kept, leads, until)
    for place in range(len(kept)):
        steps = tuple(kept[place].steps)
        size = max(1, len(steps) // 2)
        while size and time.monotonic() < until:
            at = 0
            while at < len(steps) and time.monotonic() < until:
                fewer = steps[:at] + steps[at + size :]
                walk = replace(kept[place], steps=fewer)
                if fewer and await leads((*kept[:place], walk, *kept[place + 1 :])):
                    steps, kept = fewer, (*kept[:place], walk, *kept[place + 1 :])
                else:
                    at += size
            size //= 2
    return kept


async def _without(
    kept: tuple[Walk, ...], leads: Callable[[Sequence[Walk]], Awaitable[bool]], until: float
) -> tuple[Walk, ...]:
    """Leave out walks, many at once first."""
    size = max(1, len(kept) // 2)
    while size and len(kept) > 1 and time.monotonic() < until:
        at = 0
        while at < len(kept) and len(kept) > 1 and time.monotonic() < until:
            fewer = kept[:at] + kept[at + size :]
            if fewer and await leads(fewer):
                kept = fewer
            else:
                at += size
        size //= 2
    return kept
