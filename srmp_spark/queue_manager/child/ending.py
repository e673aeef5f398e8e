"""Cancel tasks reliably.

asyncio may lose a cancellation, and code that waits for the end of such a task would wait forever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

AGAIN_SECONDS = 1.0
"""Seconds after which a task that is not over is cancelled again.

A task needs less time than this for its clean-up.
"""


async def end(tasks: Iterable[asyncio.Task[Any] | None]) -> None:
    """Cancel ``tasks`` and wait until all of them have ended. Their exceptions are discarded.

    There is no time-out. ``asyncio.wait_for`` before Python 3.12 loses a cancellation that arrives
    at the moment when the awaited thing is done, so a loop around ``wait_for`` continues. Therefore
    a task that has not ended after AGAIN_SECONDS is cancelled again. ``None`` in ``tasks`` is
    skipped.
    """
    all_of_them = [task for task in tasks if task is not None]
    left = set(all_of_them)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=AGAIN_SECONDS)
    await asyncio.gather(*all_of_them, return_exceptions=True)
