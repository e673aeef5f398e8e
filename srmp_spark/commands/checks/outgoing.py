"""Check the destinations of messages: which of them messages wait for, and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from srmp_spark.commands.checks.report import Check

DESTINATIONS_TOLD_MAX = 20
"""Most destinations with trouble that a report names; the number of others is added."""
NOT_SENT = ("Inactive", "OnHold")
"""States in which nothing is sent: the destination does not answer, or an operator has paused."""


def outgoing_checks(status: dict[str, Any]) -> Iterator[Check]:
    """Yield the checks of the destinations. ``status`` is the answer of ``/v1/status``."""
    waiting = []
    for outgoing in status["outgoing"]:
        if outgoing.get("damaged"):
            text, _, hint = outgoing["damaged"].rpartition("; ")
            yield Check("outgoing", False, text, hint)
        elif _waiting(outgoing) and _is_in_trouble(outgoing):
            waiting.append(outgoing)
        if same := outgoing.get("same_queue"):
            yield Check("same-queue", not same["receipts_missing"], same["text"], same["hint"])
    for outgoing in waiting[:DESTINATIONS_TOLD_MAX]:
        yield _not_sent(outgoing)
    if (more := len(waiting) - DESTINATIONS_TOLD_MAX) > 0:
        text = f"messages wait for {more} more destinations"
        yield Check("outgoing", False, text, "srmp-spark streams shows all of them")


def _is_in_trouble(outgoing: dict[str, Any]) -> bool:
    """Return whether nothing is sent, or the last attempt failed and the next one has begun."""
    is_tried_again = outgoing["state"] != "Connected" and outgoing["last_error"] is not None
    return outgoing["state"] in NOT_SENT or is_tried_again


def _waiting(outgoing: dict[str, Any]) -> int:
    return sum(
        outgoing[name] or 0
        for name in ("queued", "awaiting_stream_receipt", "awaiting_final_stream_receipt")
    )


def _not_sent(outgoing: dict[str, Any]) -> Check:
    """Return the check of one destination for which messages wait and are not sent now."""
    where = outgoing["destination"]
    why = f": {outgoing['last_error']}" if outgoing["last_error"] else ""
    if outgoing["state"] == "OnHold":
        hint = f"decide with srmp-spark streams resume, resend or drop --destination {where}"
    elif outgoing["next_attempt_at"]:
        hint = f"the next attempt is at {outgoing['next_attempt_at']}; let the destination answer"
    else:
        hint = "srmp-spark streams shows the next attempt; let the destination answer"
    text = f"{_waiting(outgoing)} messages wait for {where} ({outgoing['state']}){why}"
    return Check("outgoing", False, text, hint)
