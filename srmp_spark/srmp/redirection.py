"""Redirection, receipt URLs and transparent store-and-forward: which URL stands for which ([MC-MQSRM] 3.1.1.1.7 to .10).

A rule of the operator names URLs by ``SCHEME://HOST[:PORT|:*][/PATH][*]``, as ``--allow-url`` does: no port is the default port
of the scheme, ``:*`` any, no path every path; ``SCHEME://*`` is every host. "A trailing asterisk is treated
as a wildcard, matching any characters at or following that position" (3.1.1.1.10): in a path. After a host name it is refused:
``http://orders*`` would be ``http://orders.evil.example`` too. Both sides are compared parsed and in the one spelling of
:mod:`srmp_spark.canonical_url`, never as text: host in lower case, either slash, in ``/msmq/…`` any case
and any percent-encoding, for that is how queues are found. The query of a URL is not compared.

The first rule that matches decides; if one of its exceptions matches too, the URL stays as it is. Nothing is redirected twice.
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
    """A URL in its one spelling; ``None`` for what names nothing: no rule matches that."""
    try:
        return split_url(canonical_destination(url))
    except (ConfigurationError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class UrlRule:
    """The URLs that a **From** or an exception means."""

    scheme: str
    host: str | None
    """``None``: every host."""
    port: int | None
    """``None``: every port."""
    path: str
    """In its one spelling; empty: every path."""
    is_prefix: bool

    @classmethod
    def parse(cls, text: str) -> UrlRule:
        """Raises :class:`ConfigurationError` for what is no rule."""
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
        """Whether it means ``url``, which is in its one spelling."""
        if (
            url.scheme != self.scheme
            or self.host not in (None, url.host)
            or self.port not in (None, url.port)
        ):
            return False
        return self.matches_path(url.path)

    def matches_path(self, of_url: str) -> bool:
        """Whether it means the path of a URL in its one spelling."""
        if _DOT_SEGMENT.search(of_url):
            return False  # of another path than a queue's: nobody knows what a server behind makes of it
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
    """[MC-MQSRM] 3.1.1.1.10, with the exceptions of 3.1.1.1.9, which are each rule's own."""

    source: UrlRule
    """**From**."""
    to: str
    """**To**: a URL, as the operator wrote it."""
    exceptions: tuple[UrlRule, ...] = ()

    @classmethod
    def parse(cls, source: str, to: str, exceptions: Sequence[str] = ()) -> Redirection:
        """Raises :class:`ConfigurationError`."""
        try:
            parts = split_url(to)
        except ValueError as error:
            raise ConfigurationError(str(error)) from None
        canonical_destination(
            f"{parts.scheme}://{parts.authority}/{VIRTUAL_DIRECTORY}/x"
        )  # the host, by the same rules
        return cls(UrlRule.parse(source), to, tuple(UrlRule.parse(each) for each in exceptions))


class Redirections(NamedTuple):
    """InboundRedirectionCollection or OutboundRedirectionCollection."""

    rules: tuple[Redirection, ...] = ()

    def target(self, url: str) -> str | None:
        """**To** of the first rule whose **From** matches; ``None`` if there is none, or it makes an exception."""
        if not self.rules:
            return None
        parts = _parts_of(url)
        if parts is None:
            return None
        for rule in self.rules:
            if rule.source.matches(parts):
                return None if any(each.matches(parts) for each in rule.exceptions) else rule.to
        return None

    def may_redirect(self, path: str, hosts: LocalHosts) -> bool:
        """Whether a URL with ``path`` (in its one spelling) and any of ``hosts`` may be redirected, exceptions aside."""
        return any(
            rule.source.matches_path(path)
            and (rule.source.host is None or rule.source.host in hosts)
            for rule in self.rules
        )

    def endpoint_of(self, destination: str) -> str:
        """The URL whose scheme, host and port are connected to for ``destination`` ([MC-MQSRM] 3.1.7.9).

        Only they change: the request's path and ``<to>`` stay those of the destination.
        """
        return self.target(destination) or destination

    @classmethod
    def load(cls, stored: Sequence[Mapping[str, Any]]) -> Redirections:
        """From :meth:`dump`."""
        return cls(
            tuple(Redirection.parse(each["from"], each["to"], each["except"]) for each in stored)
        )

    def dump(self) -> list[dict[str, Any]]:
        """As JSON."""
        return [
            {
                "from": str(rule.source),
                "to": rule.to,
                "except": [str(each) for each in rule.exceptions],
            }
            for rule in self.rules
        ]


class ReceiptUrls(NamedTuple):
    """StreamReceiptURLReplacementCollection and DefaultStreamReceiptURLReplacement ([MC-MQSRM] 3.1.7.2.4)."""

    rules: tuple[tuple[UrlRule | None, str], ...] = ()
    """From and To; without From it is the default."""

    def replacement(self, destination: str, own: str) -> str:
        """``<sendReceiptsTo>`` for streams to ``destination``; ``own`` is our order queue with the secret that it carries.

        The text takes **To** as it is. Without a query of its own it gets ours here: a receipt counts only if it comes to an
        address that nobody but the peer was told.
        """
        parts = _parts_of(destination) if self.rules else None
        default = None
        for source, to in self.rules:
            if source is None:
                default = default or to
            elif parts is not None and source.matches(parts):
                return _with_query(to, own)
        return own if default is None else _with_query(default, own)

    @classmethod
    def load(cls, stored: Sequence[Mapping[str, Any]]) -> ReceiptUrls:
        """From :meth:`dump`."""
        return cls(
            tuple(
                (UrlRule.parse(each["from"]) if each["from"] else None, each["to"])
                for each in stored
            )
        )

    def dump(self) -> list[dict[str, Any]]:
        """As JSON."""
        return [{"from": str(source) if source else None, "to": to} for source, to in self.rules]


def _with_query(to: str, own: str) -> str:
    return to if "?" in to else to + "".join(own.partition("?")[1:])


NO_REDIRECTIONS, NO_RECEIPT_URLS = Redirections(), ReceiptUrls()


def _nothing(url: UrlParts) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Forwarding:
    """What becomes of a message that comes in and is not for the queue that ``<to>`` names ([MC-MQSRM] 3.1.5.1.3)."""

    store_and_forward: bool = False
    """TransparentStoreAndForward: messages for other hosts are taken, and sent on."""
    allows: Callable[[UrlParts], bool] = _nothing
    """Which of them: the patterns of ``--allow-url``. Else anybody could send anywhere through us (bad input 21)."""
    inbound: Redirections = NO_REDIRECTIONS
    """Our own configuration: where it leads is not restricted."""

    @property
    def is_on(self) -> bool:
        """Whether anything may be forwarded."""
        return self.store_and_forward or bool(self.inbound.rules)

    def forward_to(self, destination: str, hosts: LocalHosts) -> str:
        """Where a message that was taken to be forwarded goes: the text checks redirections for our own host alone."""
        if split_url(destination).host not in hosts:
            return destination
        return self.inbound.target(destination) or destination


NO_FORWARDING = Forwarding()
