"""Decide who may call the API (INTERFACE.md section 3).

On loopback every program of the same user and of root may call
(:mod:`srmp_spark.queue_manager.trust.peer_process`). A web page in a browser of this host may not.
Requests of such a page carry a foreign ``Host`` (DNS rebinding) or ``Origin``. A call that changes
something must be sent in a form that a page cannot use without a preflight request. On other
addresses an API token (a bearer token) and TLS are required. A configured token is required on
loopback as well. The entry of a token states what the token allows
(:mod:`srmp_spark.queue_manager.trust.tokens`), and the table of routes states what a call requires
(:mod:`.app`). :func:`authorize` compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from srmp_spark.errors import ApiError
from srmp_spark.interface import CLIENT_HEADER, DEFAULT_CONSUMER
from srmp_spark.names import base_of_journal, canonical_queue_name
from srmp_spark.queue_manager.api.port_side.router import Access, Extent
from srmp_spark.queue_manager.trust.peer_process import is_ours
from srmp_spark.queue_manager.trust.tokens import Token, Tokens

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""Paths that are answered without an API token.

An orchestrator's probes carry no token, and the answers are one word.
"""

_LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})


_AUTHORITY = re.compile(
    r"(?:\[([0-9a-f:.]{2,45})\]|([a-z0-9](?:[a-z0-9.\-]{0,251}[a-z0-9])?))(?::([0-9]{1,5}))?"
)
"""Matches ``HOST``, ``HOST:PORT`` and ``[::1]:PORT``, if nothing precedes or follows."""
_READS = frozenset({"GET", "HEAD"})
_SIMPLE_TYPES = frozenset(
    {"text/plain", "application/x-www-form-urlencoded", "multipart/form-data"}
)
"""Media types that a page may send to any host without a preflight request.

See Fetch, "CORS-safelisted request-header".
"""
_OF_PAGES = ("origin", "referer", "sec-fetch-site", "cookie")
"""Headers that only a browser sends."""


class _Authority(NamedTuple):
    host: str
    port: int | None


def _authority(value: str) -> _Authority | None:
    """Parse ``HOST[:PORT]``. Return ``None`` for any other text, such as ``[::1]evil``."""
    found = _AUTHORITY.fullmatch(value.strip().lower())
    if found is None:
        return None
    return _Authority(found[1] or found[2], None if found[3] is None else int(found[3]))


_NO_TOKEN = ("a token is needed", "give --token-file, SRMP_SPARK_TOKEN or the Spark option token")
_WRONG_TOKEN = (
    "the token is none of this queue manager's",
    "its --token-file, SRMP_SPARK_TOKEN or a [[token]] of its file has it",
)
_SECTION = "INTERFACE.md section 7"


class Guard:
    """Checks the callers of one address of the API."""

    def __init__(
        self, *, loopback: bool, own_host: str, tokens: Tokens, scheme: str = "http", port: int = 0
    ) -> None:
        """Prepare the checks of an address.

        ``loopback`` states that the address is one of this host only. There the ``Host`` of a call
        must be ``own_host``, the host of the address, or a name of the loopback address. ``scheme``
        and ``port`` are those of the API, because the ``Origin`` of a page must be the API's own.
        """
        self._loopback = loopback
        self._hosts = _LOOPBACK_HOSTS | {own_host.lower().strip("[]")}
        self._tokens = tokens
        self._scheme = scheme
        self._port = port

    def check(
        self, method: str, path: str, headers: Mapping[str, str], owner: int | None = None
    ) -> Token | None:
        """Return the API token that the call carries, or ``None`` if no token is required.

        ``owner`` is the user id of the calling process, or ``None`` if the kernel does not know it.
        Raises :class:`ApiError`: 401 if a token is required and missing or unknown, 403 if the call
        is not allowed for another reason.
        """
        if self._loopback:
            self._check_host(headers.get("host", ""))
            origin = headers.get("origin")
            if origin is not None and not self._is_own(origin):
                raise ApiError(
                    403, "foreign-origin", "web pages of other origins may not call the API"
                )
        if path in OPEN_PATHS:
            return None
        if not self._tokens:
            if self._loopback:
                _check_owner(owner)
                _check_is_no_form(method, headers)
            return None
        given = headers.get("authorization", "")
        token = self._tokens.find(given)
        if token is None:
            raise ApiError(
                401, "token", *(_WRONG_TOKEN if given.partition(" ")[2].strip() else _NO_TOKEN)
            )
        return token

    def _check_host(self, value: str) -> None:
        found = _authority(value)
        if found is None or found.host not in self._hosts:
            raise ApiError(
                403,
                "foreign-host",
                "the Host header is not this machine's loopback address",
                "call the API by 127.0.0.1 or localhost",
            )

    def _is_own(self, origin: str) -> bool:
        scheme, separator, rest = origin.strip().lower().partition("://")
        found = _authority(rest) if separator else None
        if found is None or scheme != self._scheme or found.host not in self._hosts:
            return False
        default = 443 if scheme == "https" else 80
        return (found.port or default) == self._port


def _check_owner(owner: int | None) -> None:
    """Raise a 403 unless the calling process belongs to this process's user or to root.

    ``owner`` is the user id of the caller, or ``None`` if it is unknown, which is refused too.
    Without an API token the API serves only these users.
    """
    if not is_ours(owner):
        who = (
            "a process that the kernel does not name"
            if owner is None
            else f"a process of user {owner}"
        )
        raise ApiError(
            403,
            "foreign-user",
            f"{who} called; without a token the API serves the user of serve, and root",
            "give serve a --token-file, and the token to those who may call (SRMP_SPARK_TOKEN)",
        )


def _check_is_no_form(method: str, headers: Mapping[str, str]) -> None:
    """Raise a 403 for a call that changes something and that a web page could have sent.

    Web pages can send simple forms without a preflight request. A call with the header
    CLIENT_HEADER, or with another Content-Type than a form's, passes.
    """
    if method in _READS or CLIENT_HEADER in headers:
        return
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    from_a_page = any(name in headers for name in _OF_PAGES)
    if content_type in _SIMPLE_TYPES or (not content_type and from_a_page):
        raise ApiError(
            403,
            "form",
            "a call that changes something needs Content-Type: application/json, or the "
            f"header {CLIENT_HEADER}",
            f"curl -H '{CLIENT_HEADER}: 1' …",
        )


def authorize(token: Token | None, access: Access, parameters: Mapping[str, str]) -> None:
    """Raise a 403 :class:`ApiError` if ``token`` does not allow a call of a route.

    ``access`` is what the route requires, and ``parameters`` name the queue. The error names the
    permission that is missing. A token of ``None`` allows everything.
    """
    verb, extent, default_verb = access
    if default_verb is not None and parameters.get("consumer") == DEFAULT_CONSUMER:
        verb = default_verb
    # Both verbs are written out, because mypy narrows the type only by such comparisons.
    if token is None or verb == "any" or verb == "none":
        return
    if extent is Extent.SEEN:
        if verb in token.verbs:
            return
        what, wanted = "any queue", "*"
    elif extent is Extent.QUEUE:
        try:
            queue = canonical_queue_name(parameters["queue"])
        except ValueError:
            # No queue can have this name; the handler explains it, if the token gets that far.
            queue = parameters["queue"]
        # A journal holds the queue's rows, so it has the queue's permissions.
        queue = base_of_journal(queue) or queue
        if token.allows(verb, queue):
            return
        what, wanted = f"queue {queue}", queue
    else:
        if token.allows_all(verb):
            return
        what, wanted = "outgoing messages, which need a token for every queue", "*"
    hint = f'in its [[token]]: verbs must hold "{verb}", queues "{wanted}" or a glob for it'
    if verb == "decide":
        hint += "; or read as another consumer (--consumer NAME, Spark option consumer)"
    raise ApiError(
        403, "forbidden", f"token {token.name} has not the verb {verb} for {what}", hint, _SECTION
    )
