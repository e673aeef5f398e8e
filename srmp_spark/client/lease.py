"""The leases of a receiver: acquired once, renewed by threads, released at the end.

INTERFACE.md section 1, consumers. One receiver at a time holds a consumer of a queue. The keeper
renews each lease every :data:`RENEW_SECONDS`, with one thread for each queue manager: an
unreachable queue manager must not delay the renewals at the others. If the queue manager states
that another receiver holds the lease now (this process was frozen for longer than a lease lasts),
the lease is lost for good and :meth:`LeaseKeeper.check` raises: the receiver must stop. No lease is
lost while a queue manager is unreachable for some time, because the queue manager counts from its
own last answer.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from srmp_spark.client.api import QueueManagerClient, Registration
from srmp_spark.errors import ApiError, SrmpSparkError
from srmp_spark.interface import SHARING_VIOLATION

RENEW_SECONDS = 10.0
"""Seconds between two renewals. A lease lasts 60 s after the last call, so five may be lost."""
RENEW_ANSWER_SECONDS = 20.0
"""Longest wait in seconds for the answer of one renewal, which is tried again at its next turn.

The time is two renewal intervals of another holder: if another receiver has the lease, the queue
manager answers when that receiver renews.
"""
RELEASE_SECONDS = 1.0
"""Longest wait in seconds for the single attempt to release a lease at the end.

A process that must end does not wait for a queue manager.
"""

_log = logging.getLogger(__name__)


class _Lease(NamedTuple):
    client: QueueManagerClient
    queue: str
    consumer: str


class LeaseKeeper:
    """Keeps the leases of one receiver by renewing them in threads.

    ``holder`` describes the receiver (``Holder.here(...).as_dict()``).
    """

    def __init__(self, holder: Mapping[str, Any], renew_seconds: float = RENEW_SECONDS) -> None:
        self.holder = dict(holder)
        self._renew_seconds = renew_seconds
        self._lock = threading.Lock()
        self._leases: dict[tuple[str, str, str], _Lease] = {}
        self._refusal: ApiError | None = None
        self._stopped = threading.Event()
        self._renewing: set[str] = set()
        """URLs of the queue managers that have a renewing thread."""

    def __repr__(self) -> str:
        return f"<LeaseKeeper leases={len(self._leases)} lost={self._refusal is not None}>"

    def acquire(
        self,
        client: QueueManagerClient,
        queue: str,
        consumer: str,
        *,
        first: int | None = None,
        ranged: bool = False,
    ) -> Registration:
        """Acquire a lease, keep renewing it, and return the sequences already received.

        ``first`` and ``ranged`` are those of :meth:`QueueManagerClient.register`. The call may wait
        up to REGISTER_SECONDS until the lease of another receiver ends. Raises :class:`ApiError`
        ``C00E0009`` with the name of the holder if another receiver holds the lease and renews it,
        and the other errors of that method.
        """
        answer = client.register(queue, consumer, holder=self.holder, first=first, ranged=ranged)
        with self._lock:
            self._leases[client.url, queue, consumer] = _Lease(client, queue, consumer)
            if client.url not in self._renewing:
                self._renewing.add(client.url)
                threading.Thread(
                    target=self._renew_for_ever, args=(client.url,), name="srmp-lease", daemon=True
                ).start()
        return answer

    def check(self) -> None:
        """Raise the :class:`ApiError` by which a lease was lost, if one has been lost so far."""
        if self._refusal is not None:
            raise self._refusal

    def release(self) -> None:
        """Release all leases and stop the threads.

        Never raises, and takes at most :data:`RELEASE_SECONDS`. A lease whose release got no answer
        in this time ends by itself, 60 s after its last call.
        """
        self._stopped.set()
        with self._lock:
            leases, self._leases = list(self._leases.values()), {}
        threads = [
            threading.Thread(target=self._release, args=(lease,), daemon=True) for lease in leases
        ]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + RELEASE_SECONDS
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _release(self, lease: _Lease) -> None:
        try:
            lease.client.release(
                lease.queue, lease.consumer, holder=self.holder, timeout=RELEASE_SECONDS
            )
        # A lease that is not released ends by itself.
        except SrmpSparkError as error:
            _log.warning("lease.not_released queue=%s reason=%s", lease.queue, error)

    def _renew_for_ever(self, url: str) -> None:
        while not self._stopped.wait(self._renew_seconds):
            with self._lock:
                leases = [lease for key, lease in self._leases.items() if key[0] == url]
            for lease in leases:
                if not self._stopped.is_set():
                    self._renew(lease)

    def _renew(self, lease: _Lease) -> None:
        try:
            lease.client.register(
                lease.queue, lease.consumer, holder=self.holder, timeout=RENEW_ANSWER_SECONDS
            )
        except ApiError as error:
            if error.code == SHARING_VIOLATION:
                _log.error(
                    "lease.lost queue=%s consumer=%s reason=%s", lease.queue, lease.consumer, error
                )
                self._refusal = error
            else:
                _log.warning("lease.not_renewed queue=%s reason=%s", lease.queue, error)
        except SrmpSparkError as error:
            _log.warning("lease.not_renewed queue=%s reason=%s", lease.queue, error)
