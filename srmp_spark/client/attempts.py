"""What became of a subscription since a moment: has all of the remote queue come, has it failed, or is it under way?

A queue manager reads its subscriptions in the background and never gives up, so adding one always succeeds. Who adds one wants
to know whether it works: ``subscribe add``, and a stream of ``format("mqrr")``. Both look at ``status.subscriptions``, where
``lag_seconds`` and ``failed_seconds`` say how long ago the one and the other was; no clock of another machine is compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

ROUNDED_SECONDS = 0.001
"""``status`` has seconds with three decimals: what seems to be after the moment by less than this may be before it."""


class Attempt(Enum):
    """What became of it."""

    COMPLETE = auto()
    """What was there at the moment is in our log."""
    FAILED = auto()
    """It could not be read: ``last_error`` says why. It is tried again and again."""
    HINDERED = auto()
    """It is read, and something is in the way of some messages: ``last_error`` says what."""
    UNDER_WAY = auto()


def attempt(entry: Mapping[str, Any], since: float) -> Attempt:
    """``entry`` of ``status.subscriptions``, asked for ``since`` seconds after the moment; ``inf``: whatever is known."""
    since -= ROUNDED_SECONDS
    lag, failed = entry["lag_seconds"], entry.get("failed_seconds")
    if entry["mode"] is None or entry.get("removing") or entry.get("held"):
        return Attempt.FAILED  # nobody reads it
    if lag is not None and lag <= since and (failed is None or lag <= failed):
        return Attempt.COMPLETE
    if failed is not None:
        return Attempt.FAILED if failed <= since else Attempt.UNDER_WAY
    return Attempt.HINDERED if entry["last_error"] else Attempt.UNDER_WAY
