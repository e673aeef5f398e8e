"""Decides whether a subscription has read its whole remote queue, has failed, or is in progress.

The question refers to a moment in the past. An *attempt* is one try to read a whole remote queue. A
queue manager reads its subscriptions in the background and never gives up, so adding a subscription
always succeeds. The caller that adds one wants to know whether it works: the command ``subscribe
add``, and a stream of ``format("mqrr")``. Both callers read ``status.subscriptions``, where
``lag_seconds`` and ``failed_seconds`` state how many seconds ago the last success and the last
failure were. No clocks of two machines are compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

ROUNDED_SECONDS = 0.001
"""Rounding of ``status``, whose seconds have three decimals.

An event that seems to be after the moment by less than this may have been before it.
"""


class Attempt(Enum):
    """The outcome of a subscription's attempts to read its remote queue, since a given moment."""

    COMPLETE = auto()
    """All messages that were in the remote queue at the moment are in the log of the local queue.
    """
    FAILED = auto()
    """The remote queue could not be read, or is not read now; ``last_error`` gives the reason.

    A queue manager retries a failed subscription again and again.
    """
    HINDERED = auto()
    """The remote queue is read, but some messages cannot be; ``last_error`` gives the reason."""
    UNDER_WAY = auto()


def attempt(entry: Mapping[str, Any], since: float) -> Attempt:
    """Return the state of the subscription ``entry`` of ``status.subscriptions``.

    ``status`` was requested ``since`` seconds after the moment in question. With ``inf``,
    everything known about the subscription counts.
    """
    since -= ROUNDED_SECONDS
    lag, failed = entry["lag_seconds"], entry.get("failed_seconds")
    if entry["mode"] is None or entry.get("removing") or entry.get("held"):
        # The queue manager does not read this subscription.
        return Attempt.FAILED
    if lag is not None and lag <= since and (failed is None or lag <= failed):
        return Attempt.COMPLETE
    if failed is not None:
        return Attempt.FAILED if failed <= since else Attempt.UNDER_WAY
    return Attempt.HINDERED if entry["last_error"] else Attempt.UNDER_WAY
