"""Queues of a glob whose lease another receiver holds: the query reads the other queues meanwhile.

:mod:`srmp_spark.client.lease` describes leases.

A queue joins the query when its lease is free. If the option names a queue exactly, the user wants
that queue, and a lease of another receiver is an error. A glob asks for the queues that are
available, and one queue of another receiver must not stop the reading of all others. A job that
must be the only one of its kind sets ``failOnQueueInUse``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection

from srmp_spark.errors import ApiError
from srmp_spark.interface import SHARING_VIOLATION
from srmp_spark.spark.reading.offsets import LogKey

AGAIN_SECONDS = 10.0
"""Seconds for which a refused lease is not requested again.

The queue manager answers such a request only when the holder renews its lease, and the rows of all
other queues wait meanwhile.
"""

_log = logging.getLogger(__name__)


class Elsewhere:
    """Knows the logs of a query whose leases were refused because another receiver holds them."""

    def __init__(self, names: Collection[str], *, fails: bool = False) -> None:
        """Begin without refused leases.

        ``names`` is the option ``queue``; the lease of a queue that is named exactly must not be
        refused. If ``fails`` is true, the same holds for queues of a glob.
        """
        self._names = names
        self._fails = fails
        self._refused: dict[LogKey, tuple[float, ApiError]] = {}
        self._lock = threading.Lock()

    def __contains__(self, key: LogKey) -> bool:
        return key in self._refused

    def note(self, key: LogKey, error: ApiError) -> None:
        """Process the refusal ``error`` of a queue's lease: note it and log it once.

        A queue that was deleted is forgotten. Raises ``error`` itself if it is another error, if
        ``names`` has the queue exactly, or if ``fails`` was set.
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
        """Return whether to request the lease of a log now.

        A lease that was refused is requested again only if AGAIN_SECONDS have passed and no
        receiver holds it. ``holder`` is its holder in the last list of the queue manager, or
        ``None``.
        """
        refused = self._refused.get(key)
        return refused is None or (
            holder is None and time.monotonic() >= refused[0] + AGAIN_SECONDS
        )

    def joined(self, key: LogKey) -> bool:
        """Forget the refusal of a queue whose lease was given, or that was deleted.

        Return whether there was a refusal.
        """
        return self._refused.pop(key, None) is not None

    def check(self, key: LogKey) -> None:
        """Raise the noted :class:`ApiError` if the lease of the queue was refused.

        Call this for a queue whose rows a batch needs.
        """
        if key in self._refused:
            raise self._refused[key][1]
