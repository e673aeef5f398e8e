"""Shortens a finding: leaves out walks and steps while the rest still leads to the finding."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from tests.kit.attack.judge import Finding
from tests.kit.attack.steps import Walk

Replay = Callable[[Sequence[Walk]], Awaitable[Finding | None]]
"""Plays walks at a new target and returns the finding, or None."""


async def minimised(
    walks: Sequence[Walk], kind: str, replay: Replay, until: float
) -> tuple[Walk, ...] | None:
    """Return walks, shortened as far as possible, that still lead to a finding of ``kind``.

    The result is ``None`` if all ``walks`` together do not lead to the finding. Each trial removes
    some walks or steps and calls ``replay``. At the time ``until`` the search ends with the
    shortest walks so far.
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
    """Leave out walks, many at once at first, and return those that are still needed.

    ``leads`` returns whether some walks lead to the finding. The search ends at the time ``until``.
    """
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
