"""Queues of a glob whose consumer another receiver holds: the query reads the others, and these when their lease is free.

Whoever names a queue exactly wants that queue, and a lease that another receiver holds is an error. A glob asks for what is
there. One queue that somebody else receives must not keep the rows of all others from being read. A job that must be the only
one of its kind says ``failOnQueueInUse``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection

from srmp_spark.errors import ApiError
from srmp_spark.interface import SHARING_VIOLATION
from srmp_spark.spark.offsets import LogKey

AGAIN_SECONDS = 10.0
"""How long a lease is left alone that was refused: the queue manager answers such a call only when its holder renews, and the
rows of all others wait meanwhile."""

_log = logging.getLogger(__name__)


class Elsewhere:
    """Knows which queues of a query another receiver holds."""

    def __init__(self, names: Collection[str], *, fails: bool = False) -> None:
        """``names``: option ``queue``, in which a queue that stands as it is has no choice; ``fails``: none of a glob has."""
        self._names = names
        self._fails = fails
        self._refused: dict[LogKey, tuple[float, ApiError]] = {}
        self._lock = threading.Lock()

    def __contains__(self, key: LogKey) -> bool:
        return key in self._refused

    def note(self, key: LogKey, error: ApiError) -> None:
        """Note that the lease of a queue was refused, and log it once; forget a queue that is gone.

        Raises ``error`` if it is another one, or the query has no choice.
        """
        is_held = error.code == SHARING_VIOLATION
        if (
            key.queue in self._names
            or (is_held and self._fails)
            or (not is_held and error.status != 404)
        ):
            raise error
        if error.status == 404:
            self.joined(key)
            return
        with self._lock:
            if key not in self._refused:
                _log.warning(
                    "log.elsewhere log=%s: another receiver holds it, so its rows are not "
                    "read; it joins when the lease is "
                    "free: %s",
                    key,
                    error,
                )
            self._refused[key] = (time.monotonic(), error)

    def may_be_asked(self, key: LogKey, holder: str | None) -> bool:
        """Return whether it is time to ask for a lease; ``holder``: who holds it by the last list of the queue manager."""
        refused = self._refused.get(key)
        return refused is None or (
            holder is None and time.monotonic() >= refused[0] + AGAIN_SECONDS
        )

    def joined(self, key: LogKey) -> bool:
        """Note that a lease was given, or the queue is gone; whether it had been refused before."""
        return self._refused.pop(key, None) is not None

    def check(self, key: LogKey) -> None:
        """Raise the refusal of a queue whose rows a batch needs."""
        if key in self._refused:
            raise self._refused[key][1]
