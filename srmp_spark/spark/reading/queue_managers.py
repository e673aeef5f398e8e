"""The queue managers that a query reads, and which of them answer.

A queue manager is *away* if its last call got no answer. Theory of operation. A query that reads
several queue managers must not end because one of them is away. The rows of that one wait there,
and the rows of the others are read. So a call that gets no answer notes the time, and the queue
manager is not called again before :data:`AWAY_SECONDS` have passed. Then one short call finds out
whether the queue manager is back. If all of them are away, the query ends, as it would with one.

A queue manager is identified by its GUID, which only its own answer states. If one has not answered
since this process began, it is unknown which of the checkpoint's logs it has. Until it answers, a
log that none of the others has may be its log.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.errors import ApiUnreachableError, ConfigurationError, SrmpSparkError
from srmp_spark.spark.reading.parallel import gather

AWAY_SECONDS = 5.0
"""Seconds between two attempts to reach a queue manager that is away.

A reader of the others must not wait for it at each step.
"""
ONE_OF_SEVERAL_RETRY_SECONDS = 5.0
"""Longest time, in seconds, for which a call to one of several queue managers is repeated.

A restart takes seconds, and the rows of all others wait meanwhile.
"""

T = TypeVar("T")
_log = logging.getLogger(__name__)


class QueueManagers:
    """Keeps the clients of the queue managers by GUID, and notes which of them are away."""

    def __init__(
        self, make: Callable[[str, float | None], QueueManagerClient], urls: Sequence[str]
    ) -> None:
        """Connect to the queue managers at ``urls``.

        ``make(url, retry_seconds)`` makes a client. ``retry_seconds`` is
        ``ONE_OF_SEVERAL_RETRY_SECONDS`` if there are several URLs. For a single URL it is ``None``,
        and ``make`` chooses the time. Raises :class:`ApiUnreachableError` if none answers, and
        :class:`ConfigurationError` if two URLs name the same one.
        """
        several = len(urls) > 1
        self._clients = [
            make(url, ONE_OF_SEVERAL_RETRY_SECONDS if several else None) for url in urls
        ]
        self._by_guid: dict[str, QueueManagerClient] = {}
        self._away: dict[str, tuple[float, QueueManagerClient, ApiUnreachableError]] = {}
        """The queue managers that are away, by URL.

        Each value has the time of the next attempt, the client and the error of the last attempt.
        """
        answers = gather([lambda client=client: self._guid_of(client) for client in self._clients])  # type: ignore[misc]
        for client, guid in zip(self._clients, answers, strict=True):
            if guid is not None:
                self._enter(client, guid)
        self._check_somebody_is_here()

    def __iter__(self) -> Iterator[str]:
        """Iterate over the GUIDs of all that have answered, including those that are away now."""
        return iter(self._by_guid)

    def __contains__(self, guid: str) -> bool:
        return guid in self._by_guid

    def __getitem__(self, guid: str) -> QueueManagerClient:
        return self._by_guid[guid]

    @property
    def urls(self) -> str:
        """Return the URLs of all queue managers as one text for people."""
        return ", ".join(client.url for client in self._clients)

    @property
    def some_are_unknown(self) -> bool:
        """Return whether a queue manager has not answered since this process began.

        The GUID of such a queue manager is unknown.
        """
        return len(self._by_guid) < len(self._clients)

    @property
    def why_away(self) -> ApiUnreachableError | None:
        """Return the error of a queue manager that is away, or ``None`` if none is away."""
        return next((error for _, _, error in self._away.values()), None)

    def check_all_are_here(self) -> None:
        """Raise the :class:`ApiUnreachableError` of a queue manager that is away, if one is away.

        A new query and a batch read need all of them.
        """
        for _, _, error in self._away.values():
            raise error

    @property
    def here(self) -> Iterator[str]:
        """Return an iterator over the GUIDs of queue managers that answered and are not away."""
        return filter(self.is_here, self._by_guid)

    def is_here(self, guid: str) -> bool:
        """Return whether a queue manager has answered and is not away."""
        return guid in self._by_guid and self._by_guid[guid].url not in self._away

    def ask(self, guid: str, call: Callable[[QueueManagerClient], T]) -> T | None:
        """Return the result of ``call``, or ``None`` if the queue manager is away.

        A queue manager that does not answer counts as away from then on. Raises
        :class:`ApiUnreachableError` if no queue manager is left that answers, or if the query names
        only this one, the errors of ``call``, and :class:`KeyError` for an unknown GUID.
        """
        client = self._by_guid[guid]
        if client.url in self._away:
            return None
        try:
            return call(client)
        except ApiUnreachableError as error:
            if len(self._clients) == 1:
                raise
            self._leave(client, error)
            self._check_somebody_is_here()
            return None

    def look(self) -> None:
        """Call each queue manager that is away and was not called for AWAY_SECONDS.

        One that answers is no longer away. Raises :class:`ApiUnreachableError` if all queue
        managers are still away, and :class:`ConfigurationError` if two URLs turn out to name the
        same one.
        """
        now = time.monotonic()
        for url, (again_at, client, _) in tuple(self._away.items()):
            if now < again_at:
                continue
            try:
                guid = str(client.status(retry=False)["queue_manager"])
            except ApiUnreachableError as error:
                self._away[url] = (time.monotonic() + AWAY_SECONDS, client, error)
            except SrmpSparkError as error:
                self._away[url] = (
                    time.monotonic() + AWAY_SECONDS,
                    client,
                    ApiUnreachableError(str(error)),
                )
            else:
                del self._away[url]
                self._enter(client, guid)
                _log.warning("queue_manager.back url=%s queue_manager=%s", url, guid)
        self._check_somebody_is_here()

    def _guid_of(self, client: QueueManagerClient) -> str | None:
        try:
            return str(client.status()["queue_manager"])
        except ApiUnreachableError as error:
            if len(self._clients) == 1:
                raise
            self._leave(client, error)
            return None

    def _enter(self, client: QueueManagerClient, guid: str) -> None:
        other = self._by_guid.setdefault(guid, client)
        if other is not client:
            raise ConfigurationError(
                f"{client.url} and {other.url} are one queue manager ({guid}): its rows "
                "would be read twice; name it once"
            )

    def _leave(self, client: QueueManagerClient, error: ApiUnreachableError) -> None:
        if client.url not in self._away:
            _log.warning(
                "queue_manager.away url=%s reason=%s; its rows wait, those of the others are read",
                client.url,
                error,
            )
        self._away[client.url] = (time.monotonic() + AWAY_SECONDS, client, error)

    def _check_somebody_is_here(self) -> None:
        if len(self._away) == len(self._clients):
            raise next(error for _, _, error in self._away.values())
