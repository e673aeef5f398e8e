"""Who may call the API (INTERFACE.md section 3).

On loopback every program of this host may, but no web page that a browser of this host shows: such a page's requests carry
a foreign ``Host`` (DNS rebinding) or ``Origin``. Elsewhere a bearer token is needed, and TLS. If a token is configured it
counts on loopback as well.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from srmp_spark.errors import ApiError

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
_WRONG_TOKEN = ("the token is not the one of this queue manager", "it is what its --token-file or SRMP_SPARK_TOKEN holds")


class Guard:
    """The rule for one API address."""

    def __init__(self, *, loopback: bool, own_host: str, token: str | None) -> None:
        self._loopback = loopback
        self._hosts = _LOOPBACK_HOSTS | {own_host.lower()}
        self._token = token.encode("ascii") if token is not None else None

    def check(self, path: str, headers: Mapping[str, str]) -> None:
        """Raises a 401 or 403 :class:`ApiError`."""
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
        if self._token is not None and path not in OPEN_PATHS:
            scheme, _, given = headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode("latin-1", "replace"), self._token):
                raise ApiError(401, "token", *(_WRONG_TOKEN if given.strip() else _NO_TOKEN))
