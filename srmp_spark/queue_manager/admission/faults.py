"""Log internal faults that affect one request only, each fault once.

The sender of the request is answered 503. An unauthenticated client may repeat a request that shows
a fault a thousand times a second. So the traceback is logged the first time only, with the shape of
the request and never its content. The metric of refusals counts the later ones.
"""

from __future__ import annotations

import logging
import traceback

from srmp_spark.log_once import OncePerKey
from srmp_spark.queue_manager.admission.gate import GATE_SECTION, RETRY_AFTER_SECONDS
from srmp_spark.srmp.receiving.effects import Refused

FAULTS_MAX = 100
"""Most faults that are logged. Further ones are not logged, only counted."""
REASON = "internal"
"""Reason of the refusal, in metrics and in the answer's ``Srmp-Reason``."""

log = logging.getLogger(__name__)


class FaultLog:
    """Logs internal faults, and remembers which were logged, so that each is logged once.

    Two faults are the same if type and place of the exception are the same.
    """

    def __init__(self) -> None:
        self._written: OncePerKey[tuple[str, str, int]] = OncePerKey(FAULTS_MAX)

    def note(self, error: Exception, shape: str) -> None:
        """Log the fault with its traceback, unless it was logged before or FAULTS_MAX were.

        Call this while the exception is handled. ``shape`` describes the request without its
        content.
        """
        place = traceback.extract_tb(error.__traceback__)[-1:]
        key = (
            type(error).__name__,
            place[0].filename if place else "",
            place[0].lineno or 0 if place else 0,
        )
        if not self._written.is_new(key):
            return
        log.error(
            'request.failed shape="%s": a bug of srmp-spark, not of the sender or the '
            "disk; answered 503, and the sender may "
            "send again. Further ones of this kind are counted as refusals, reason internal",
            shape,
            exc_info=error,
        )

    def refusal(self, error: Exception, shape: str) -> Refused:
        """Log the fault as :meth:`note`, and return the refusal (503) to answer its sender."""
        self.note(error, shape)
        text = "a fault of this queue manager; its log has it"
        return Refused(503, REASON, text, GATE_SECTION, RETRY_AFTER_SECONDS)
