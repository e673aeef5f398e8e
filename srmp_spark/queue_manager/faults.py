"""Faults of ours that stay inside one request: its sender is answered 503, and the log has each fault once.

A stranger may repeat what shows a fault a thousand times a second. The traceback is written at the first time, with the shape
of the request and never its content; later ones are counted by the metric of refusals.
"""

from __future__ import annotations

import logging
import traceback

from srmp_spark.queue_manager.http_limits import RETRY_AFTER_SECONDS
from srmp_spark.srmp.effects import Refused

FAULTS_MAX = 100
"""Faults that are told apart; further ones are not written."""
REASON = "internal"
"""Of the refusal, in metrics and in the answer."""

log = logging.getLogger(__name__)


class Faults:
    """Which faults the log has."""

    def __init__(self) -> None:
        self._written: set[tuple[str, str, int]] = set()

    def note(self, error: Exception, shape: str) -> None:
        """Write the fault with its traceback unless the log has it. Call while the exception is handled."""
        place = traceback.extract_tb(error.__traceback__)[-1:]
        key = (
            type(error).__name__,
            place[0].filename if place else "",
            place[0].lineno or 0 if place else 0,
        )
        if key in self._written or len(self._written) >= FAULTS_MAX:
            return
        self._written.add(key)
        log.error(
            'request.failed shape="%s": a bug of srmp-spark, not of the sender or the '
            "disk; answered 503, and the sender may "
            "send again. Further ones of this kind are counted as refusals, reason internal",
            shape,
            exc_info=error,
        )

    def refusal(self, error: Exception, shape: str) -> Refused:
        """Note the fault, and return what its sender is answered."""
        self.note(error, shape)
        text = "a fault of this queue manager; its log has it"
        return Refused(503, REASON, text, "docs/GUARANTEES.md promise 2", RETRY_AFTER_SECONDS)
