"""How tasks are ended: a cancellation may be lost, and who waits for the end of such a task would wait for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

AGAIN_SECONDS = 1.0
"""After this long it is said again; whatever a task does at its end takes less."""


async def end(tasks: Iterable[asyncio.Task[Any] | None]) -> None:
    """Cancel them, and return when all are over; what they raise is nobody's any more.

    ``asyncio.wait_for`` before Python 3.12 loses a cancellation that comes together with what it waits for, so a loop around it
    goes on. Therefore a task that is not over is told again.
    """
    all_of_them = [task for task in tasks if task is not None]
    left = set(all_of_them)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=AGAIN_SECONDS)
    await asyncio.gather(*all_of_them, return_exceptions=True)
