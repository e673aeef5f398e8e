"""Who may call the API (INTERFACE.md section 3).

On loopback every program of this host may, but no web page that a browser of this host shows: such a page's requests carry
a foreign ``Host`` (DNS rebinding) or ``Origin``. Elsewhere a bearer token is needed, and TLS. If a token is configured it
counts on loopback as well. What a token may do, its entry says (:mod:`srmp_spark.queue_manager.tokens`), and what a call takes,
the table of routes (:mod:`.app`): :func:`authorize` compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping

from srmp_spark.errors import ApiError
from srmp_spark.names import base_of_journal, canonical_queue_name
from srmp_spark.queue_manager.api.router import Access, Extent
from srmp_spark.queue_manager.tokens import Token, Tokens

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""Answered without a token: an orchestrator's probes carry none, and they say one word."""

_LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})


def _host_of(value: str) -> str:
    """``[::1]:8081`` → ``::1``."""
    value = value.strip().lower()
    if value.startswith("["):
        return value[1:].partition("]")[0]
    return value.rpartition(":")[0] if value.count(":") == 1 else value


_NO_TOKEN = ("a token is needed", "give --token-file, SRMP_SPARK_TOKEN or the Spark option token")
_WRONG_TOKEN = (
    "the token is none of this queue manager's",
    "its --token-file, SRMP_SPARK_TOKEN or a [[token]] of its file has it",
)
_SECTION = "INTERFACE.md section 7"


class Guard:
    """The rule for one API address."""

    def __init__(self, *, loopback: bool, own_host: str, tokens: Tokens) -> None:
        self._loopback = loopback
        self._hosts = _LOOPBACK_HOSTS | {own_host.lower()}
        self._tokens = tokens

    def check(self, path: str, headers: Mapping[str, str]) -> Token | None:
        """Whose token the call carries; ``None``: no token is asked for. Raises a 401 or 403 :class:`ApiError`."""
        if self._loopback:
            if _host_of(headers.get("host", "")) not in self._hosts:
                raise ApiError(
                    403,
                    "foreign-host",
                    "the Host header is not this machine's loopback address",
                    "call the API by 127.0.0.1 or localhost",
                )
            origin = headers.get("origin")
            if origin is not None and _host_of(origin.partition("://")[2]) not in self._hosts:
                raise ApiError(403, "foreign-origin", "web pages of other hosts may not call the API")
        if not self._tokens or path in OPEN_PATHS:
            return None
        given = headers.get("authorization", "")
        token = self._tokens.find(given)
        if token is None:
            raise ApiError(401, "token", *(_WRONG_TOKEN if given.partition(" ")[2].strip() else _NO_TOKEN))
        return token


def authorize(token: Token | None, access: Access, parameters: Mapping[str, str]) -> None:
    """Raise a 403 :class:`ApiError` that names what ``token`` lacks for a route; ``None`` may do everything."""
    verb, extent = access
    if token is None or verb == "any" or verb == "none":  # spelt out: mypy narrows by these alone
        return
    if extent is Extent.QUEUE:
        try:
            queue = canonical_queue_name(parameters["queue"])
        except ValueError:
            queue = parameters["queue"]  # no queue can be called so; the handler says why, if the token gets there
        queue = base_of_journal(queue) or queue  # a journal holds the queue's rows: it is for whom the queue is
        if token.allows(verb, queue):
            return
        what, wanted = f"queue {queue}", queue
    else:
        if token.allows_all(verb):
            return
        what, wanted = "what goes out, or for metrics: these are for tokens of every queue", "*"
    hint = f'in its [[token]]: verbs must hold "{verb}", queues "{wanted}" or a glob for it'
    raise ApiError(403, "forbidden", f"token {token.name} has not the verb {verb} for {what}", hint, _SECTION)
