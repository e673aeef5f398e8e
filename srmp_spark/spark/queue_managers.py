"""The queue managers that a query reads, and which of them answers.

Theory of operation. A query that reads several must not end because one of them is away: its rows wait there, and those of
the others come. So a call that finds nobody notes the time, and nobody asks again before :data:`AWAY_SECONDS` have passed; then
one short call finds out whether the queue manager is back. Where all are away the query ends, as it would with one.

A queue manager is known by its GUID, which only its own answer tells. Of one that has not answered since this process began
nobody knows which of the checkpoint's logs are there: until it does, a log that none of the others has may be its.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.errors import ApiUnreachableError, ConfigurationError, SrmpSparkError
from srmp_spark.spark.parallel import gather

AWAY_SECONDS = 5.0
"""How often one that is away is tried: whoever reads the others must not wait for it at each step."""
ONE_OF_SEVERAL_RETRY_SECONDS = 5.0
"""How long a call to one of several is repeated: a restart takes seconds, and the rows of all others wait meanwhile."""

T = TypeVar("T")
_log = logging.getLogger(__name__)


class QueueManagers:
    """Clients by GUID; which are away."""

    def __init__(
        self, make: Callable[[str, float | None], QueueManagerClient], urls: Sequence[str]
    ) -> None:
        """``make(url, retry_seconds)`` makes a client; ``None``: with the seconds of a client that reads nothing else.

        Raises :class:`ApiUnreachableError` if none answers, :class:`ConfigurationError` if two URLs name one.
        """
        several = len(urls) > 1
        self._clients = [
            make(url, ONE_OF_SEVERAL_RETRY_SECONDS if several else None) for url in urls
        ]
        self._by_guid: dict[str, QueueManagerClient] = {}
        self._away: dict[str, tuple[float, QueueManagerClient, ApiUnreachableError]] = {}
        """By URL: when it is tried again, and what the last attempt said."""
        answers = gather([lambda client=client: self._guid_of(client) for client in self._clients])  # type: ignore[misc]
        for client, guid in zip(self._clients, answers, strict=True):
            if guid is not None:
                self._enter(client, guid)
        self._check_somebody_is_here()

    def __iter__(self) -> Iterator[str]:
        """The GUIDs of those that have answered, also of those that are away now."""
        return iter(self._by_guid)

    def __contains__(self, guid: str) -> bool:
        return guid in self._by_guid

    def __getitem__(self, guid: str) -> QueueManagerClient:
        return self._by_guid[guid]

    @property
    def urls(self) -> str:
        """All, for people."""
        return ", ".join(client.url for client in self._clients)

    @property
    def some_are_unknown(self) -> bool:
        """Whether one has not answered since this process began."""
        return len(self._by_guid) < len(self._clients)

    @property
    def why_away(self) -> ApiUnreachableError | None:
        """What the one said that is away, if one is."""
        return next((error for _, _, error in self._away.values()), None)

    def check_all_are_here(self) -> None:
        """Raise :class:`ApiUnreachableError` if one is away: a query begins with all of them, and a batch reads all."""
        for _, _, error in self._away.values():
            raise error

    @property
    def here(self) -> Iterator[str]:
        """The GUIDs of those that have answered and are not away."""
        return filter(self.is_here, self._by_guid)

    def is_here(self, guid: str) -> bool:
        """Return whether one has answered and is not away."""
        return guid in self._by_guid and self._by_guid[guid].url not in self._away

    def ask(self, guid: str, call: Callable[[QueueManagerClient], T]) -> T | None:
        """Return what ``call`` returns, ``None`` if this one of several is away.

        Raises :class:`ApiUnreachableError` if it was the last one that was here.
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
        """Try those that are away and have not been tried for a while. Raises :class:`ApiUnreachableError` if none is here."""
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
