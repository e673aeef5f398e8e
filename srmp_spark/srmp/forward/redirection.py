"""Redirection, receipt URLs and transparent store-and-forward: which URL replaces which.

See [MC-MQSRM] 3.1.1.1.7 to 3.1.1.1.10. A rule of the operator names URLs by
``SCHEME://HOST[:PORT|:*][/PATH][*]``, as ``--allow-url`` does. Without a port the rule means the
default port of the scheme, and ``:*`` means any port. Without a path the rule means every path.
``SCHEME://*`` means every host. "A trailing asterisk is treated as a wildcard, matching any
characters at or following that position" (3.1.1.1.10). This is supported in a path. After a host
name an asterisk is refused, because ``http://orders*`` would also match
``http://orders.evil.example``. Rule and URL are parsed and compared in canonical form
(:mod:`srmp_spark.canonical_url`), never as text. The host is in lower case, either slash is
accepted, and in ``/msmq/…`` case and percent-encodings do not matter, because queues are found in
the same way. The query of a URL is not compared.

The first rule that matches decides. If one of its exceptions matches too, the URL stays unchanged.
No URL is redirected twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import unquote

from srmp_spark.canonical_url import canonical_destination
from srmp_spark.errors import ConfigurationError
from srmp_spark.names import (
    ENCODED_SEPARATOR,
    VIRTUAL_DIRECTORY,
    LocalHosts,
    UrlParts,
    canonical_host,
    split_url,
)

_RULE = re.compile(
    r"(https?)://(?:\*|"
    r"(\[[0-9a-fA-F:.]+\]|[^:/\\\[\]@?#*\s]+)(?::(\d{1,5}|\*))?([/\\][^?#*\x00-\x1f\x7f]*)?(\*)?)",
    re.IGNORECASE,
)
_DOT_SEGMENT = re.compile(r"/\.{1,2}(?:/|$)")
_QUEUES = f"/{VIRTUAL_DIRECTORY}/"


def _parts_of(url: str) -> UrlParts | None:
    """Return the parts of a URL in canonical form; ``None`` if no queue can have this URL.

    No rule matches such a URL.
    """
    try:
        return split_url(canonical_destination(url))
    except (ConfigurationError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class UrlRule:
    """One pattern of URLs: the **From** of a redirection, or an exception."""

    scheme: str
    host: str | None
    """Host of the URLs; ``None`` matches every host."""
    port: int | None
    """Port of the URLs; ``None`` matches every port."""
    path: str
    """Path of the URLs in canonical form, perhaps with ``*`` at its end; empty for every path."""
    is_prefix: bool

    @classmethod
    def parse(cls, text: str) -> UrlRule:
        """Parse a rule such as ``http://host:8080/msmq/*``.

        Raises :class:`ConfigurationError` if ``text`` is no rule.
        """
        match = _RULE.fullmatch(text.strip())
        if match is None:
            after_host = re.match(r"https?://[^/\\]*\*", text.strip(), re.IGNORECASE)
            hint = (
                "a * after a host name would match others: write http://HOST/*"
                if after_host
                else "a * may stand at its end"
            )
            raise ConfigurationError(
                f"not a URL to match: {text[:200]!r} (expected "
                f"http://HOST[:PORT|:*]/msmq/QUEUE; {hint})"
            )
        scheme, named, port_text, path, star = (
            match[1].lower(),
            match[2],
            match[3],
            match[4] or "",
            match[5],
        )
        if named is None:
            return cls(scheme, None, None, "", is_prefix=True)
        host = canonical_host(str(named).strip("[]"))
        if star and not path:
            message = (
                f"not a URL to match: {text[:200]!r} (write {scheme}://{host}/*: "
                "else it names other hosts too)"
            )
            raise ConfigurationError(message)
        port = None if port_text == "*" else int(port_text or (443 if scheme == "https" else 80))
        if port is not None and not 0 < port < 65536:
            raise ConfigurationError(f"not a port: {text[:200]!r}")
        path = path.replace("\\", "/")
        if _DOT_SEGMENT.search(path) or ENCODED_SEPARATOR.search(path):
            raise ConfigurationError(
                f"not a URL to match: {text[:200]!r} has a dot segment or an encoded slash"
            )
        if path in ("", "/"):
            return cls(scheme, host, port, "", is_prefix=True)
        return cls(scheme, host, port, _path_of(path, is_prefix=bool(star)), bool(star))

    def matches(self, url: UrlParts) -> bool:
        """Return whether the rule matches ``url``, which must be in canonical form."""
        if (
            url.scheme != self.scheme
            or self.host not in (None, url.host)
            or self.port not in (None, url.port)
        ):
            return False
        return self.matches_path(url.path)

    def matches_path(self, of_url: str) -> bool:
        """Return whether the rule matches the path ``of_url``, which must be in canonical form.

        A path with a dot segment never matches. In ``/msmq/…`` the case of the rule does not
        matter.
        """
        # Such a path is no queue's, and it is unknown how another server resolves it.
        if _DOT_SEGMENT.search(of_url):
            return False
        path = self.path.lower() if of_url.startswith(_QUEUES) else self.path
        return of_url.startswith(path) if self.is_prefix else of_url == path

    def __str__(self) -> str:
        if self.host is None:
            return f"{self.scheme}://*"
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "*" if self.port is None else self.port
        return (
            f"{self.scheme}://{host}:{port}{self.path}{'*' if self.is_prefix and self.path else ''}"
        )


def _path_of(path: str, *, is_prefix: bool) -> str:
    if not is_prefix:
        return split_url(canonical_destination(f"http://host{path}")).path
    if not path.lower().startswith(_QUEUES):
        return path
    return unquote(path).lower().replace("%", "%25").replace("?", "%3f").replace("#", "%23")


@dataclass(frozen=True, slots=True)
class Redirection:
    """One redirection ([MC-MQSRM] 3.1.1.1.10) with its own exceptions (3.1.1.1.9)."""

    source: UrlRule
    """**From**: the URLs to redirect."""
    to: str
    """**To**: the target URL, as the operator wrote it."""
    exceptions: tuple[UrlRule, ...] = ()

    @classmethod
    def parse(cls, source: str, to: str, exceptions: Sequence[str] = ()) -> Redirection:
        """Parse a redirection.

        Raises :class:`ConfigurationError` if a part is no rule or no URL.
        """
        try:
            parts = split_url(to)
        except ValueError as error:
            raise ConfigurationError(str(error)) from None
        # This checks the host by the same rules as any destination.
        canonical_destination(f"{parts.scheme}://{parts.authority}/{VIRTUAL_DIRECTORY}/x")
        return cls(UrlRule.parse(source), to, tuple(UrlRule.parse(each) for each in exceptions))


class Redirections(NamedTuple):
    """The redirections of one direction, in order: inbound (received messages) or outbound.

    They are the InboundRedirectionCollection or the OutboundRedirectionCollection.
    """

    rules: tuple[Redirection, ...] = ()

    def target(self, url: str) -> str | None:
        """Return **To** of the first rule whose **From** matches ``url``.

        Return ``None`` if no rule matches, if an exception of this rule matches, or if no queue can
        have the URL.
        """
        if not self.rules:
            return None
        parts = _parts_of(url)
        if parts is None:
            return None
        for rule in self.rules:
            if rule.source.matches(parts):
                return None if any(each.matches(parts) for each in rule.exceptions) else rule.to
        return None

    def endpoint_of(self, destination: str) -> str:
        """Return the redirected URL of ``destination``, or ``destination`` itself.

        See [MC-MQSRM] 3.1.7.9.

        A connection is opened to this URL. Only scheme, host and port of this URL are used. The
        path of the request and ``<to>`` stay those of the destination.
        """
        return self.target(destination) or destination

    @classmethod
    def load(cls, stored: Sequence[Mapping[str, Any]]) -> Redirections:
        """Return the redirections that :meth:`dump` stored."""
        return cls(
            tuple(Redirection.parse(each["from"], each["to"], each["except"]) for each in stored)
        )

    def dump(self) -> list[dict[str, Any]]:
        """Return the redirections in a form for JSON, which :meth:`load` reads."""
        return [
            {
                "from": str(rule.source),
                "to": rule.to,
                "except": [str(each) for each in rule.exceptions],
            }
            for rule in self.rules
        ]


class ReceiptUrls(NamedTuple):
    """The URLs that the operator set for ``<sendReceiptsTo>``, instead of the default one.

    They are StreamReceiptURLReplacementCollection and DefaultStreamReceiptURLReplacement
    ([MC-MQSRM] 3.1.7.2.4).
    """

    rules: tuple[tuple[UrlRule | None, str], ...] = ()
    """Pairs of From and To. A pair without From is the default."""

    def replacement(self, destination: str, own: str) -> str:
        """Return ``<sendReceiptsTo>`` for streams to ``destination``.

        The result is ``own`` if no rule matches and there is no default. ``own`` is the URL of this
        queue manager's order queue with its secret
        (:mod:`srmp_spark.srmp.sending.receipts_address`). The specification uses **To** unchanged.
        This method adds the query of ``own`` to a **To** without a query, because a receipt counts
        only if it arrives at an address that only the peer knows.
        """
        parts = _parts_of(destination) if self.rules else None
        default = None
        for source, to in self.rules:
            if source is None:
                default = default or to
            elif parts is not None and source.matches(parts):
                return _with_query(to, own)
        return own if default is None else _with_query(default, own)


def _with_query(to: str, own: str) -> str:
    return to if "?" in to else to + "".join(own.partition("?")[1:])


NO_REDIRECTIONS, NO_RECEIPT_URLS = Redirections(), ReceiptUrls()


def _nothing(url: UrlParts) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Forwarding:
    """The rules for an incoming message that is not for the queue that ``<to>`` names.

    See [MC-MQSRM] 3.1.5.1.3.
    """

    store_and_forward: bool = False
    """TransparentStoreAndForward: whether messages for other hosts are accepted and sent on."""
    allows: Callable[[UrlParts], bool] = _nothing
    """Function that returns whether a URL matches a pattern of ``--allow-url``.

    The URL is in canonical form. Without this check any client could send to any host through this
    queue manager.
    """
    inbound: Redirections = NO_REDIRECTIONS
    """Redirections that the operator of this queue manager configured; their targets are allowed.
    """

    @property
    def is_on(self) -> bool:
        """Return whether any message may be forwarded."""
        return self.store_and_forward or bool(self.inbound.rules)

    def forward_to(self, destination: str, hosts: LocalHosts) -> str:
        """Return the URL to which a message for ``destination`` is sent on.

        If the host of ``destination`` is one of ``hosts``, the URL is the target of the inbound
        redirection that matches. Otherwise the URL is ``destination`` itself, because the
        specification redirects only destinations on the own host. Raises :class:`ValueError` if
        ``destination`` is no URL.
        """
        if split_url(destination).host not in hosts:
            return destination
        return self.inbound.target(destination) or destination


NO_FORWARDING = Forwarding()
