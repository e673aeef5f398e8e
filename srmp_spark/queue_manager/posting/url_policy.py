"""Decide which URLs of a message may be called (INTERFACE.md section 2, ``--allow-url``).

This module does no I/O: the caller looks hosts up. A message names where its receipts are sent, so
any client that can post a message can make this machine connect to any address: to a cloud's
metadata address, to a service on loopback, to a victim. The rule: a URL is called only if its host
resolves to the address from which the message arrived (or is the sender's TLS name), or if a
pattern of the operator allows it. Loopback and link-local addresses need a pattern even then. Every
address that is called was judged, because there is no second look-up.

Everything is compared on the parsed parts. Comparing the text would let ``http://127.0.0.1:9@evil``
pass.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from srmp_spark.errors import ConfigurationError
from srmp_spark.names import ENCODED_SEPARATOR, UrlParts, canonical_host, split_url

URL_LENGTH_MAX = 2_048
"""Most characters of a receipt URL.

A longer one is never called. Windows' own format names end at 255 characters.
"""

_PATTERN = re.compile(
    r"(https?)://(\[[0-9a-fA-F:.]+\]|[^:/\[\]@?#*\s]+)(?::(\d{1,5}|\*))?(/[^?#\s]*)?", re.IGNORECASE
)
_UNSAFE_PATH = re.compile(
    rf"(?:^|[/\\])\.{{1,2}}(?:[/\\]|$)|{ENCODED_SEPARATOR.pattern}", re.IGNORECASE
)

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Allowed(NamedTuple):
    """States that a URL may be called at ``address``, or at one of ``others`` if that fails.

    No other address may be called.
    """

    address: str
    others: tuple[str, ...] = ()

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return ``address`` and ``others``: all addresses that may be called, in order."""
        return self.address, *self.others


class Blocked(NamedTuple):
    """States that a URL may not be called. ``reason`` is a sentence for logs and ``status``.

    ``pattern`` is the ``--allow-url`` that would allow the URL, or empty if none would.
    """

    host: str
    reason: str
    pattern: str


@dataclass(frozen=True, slots=True)
class UrlPattern:
    """One pattern of ``--allow-url``: ``SCHEME://HOST[:PORT|:*][/PATH*]``."""

    scheme: Literal["http", "https"]
    host: str
    port: int | None
    """The port of the URL. ``None`` allows every port."""
    path: str
    """The path in lower case. A ``*`` at the end makes it a prefix; ``/*`` allows every path."""

    @classmethod
    def parse(cls, text: str) -> UrlPattern:
        """Parse a pattern. Raises :class:`ConfigurationError` if ``text`` is no valid pattern."""
        match = _PATTERN.fullmatch(text.strip())
        if match is None or "*" in (match[4] or "")[:-1] or _UNSAFE_PATH.search(match[4] or ""):
            raise ConfigurationError(
                f"not an --allow-url pattern: {text!r} (expected "
                "SCHEME://HOST[:PORT|:*][/PATH*], like http://orders.example:8080/msmq/*)"
            )
        scheme: Literal["http", "https"] = "https" if match[1].lower() == "https" else "http"
        default = 443 if scheme == "https" else 80
        port = None if match[3] == "*" else int(match[3] or default)
        if port is not None and not 0 < port < 65536:
            raise ConfigurationError(f"not a port in --allow-url {text!r}: {port}")
        return cls(scheme, canonical_host(match[2].strip("[]")), port, (match[4] or "/*").lower())

    def matches(self, url: UrlParts) -> bool:
        """Return whether the pattern allows ``url``. The query of the URL is not compared."""
        if (url.scheme, url.host) != (self.scheme, self.host) or self.port not in (None, url.port):
            return False
        path = url.path.lower() or "/"
        return path.startswith(self.path[:-1]) if self.path.endswith("*") else path == self.path


def address_of(text: str) -> _Address | None:
    """Parse an IP address into canonical form. Return ``None`` if ``text`` is no IP address.

    IPv4-mapped IPv6 becomes IPv4, and zones are dropped. Only IPv6 has zones:
    ``192.0.2.7%1.example`` is a name that some name server answers.
    """
    try:
        address = ipaddress.ip_address(text.partition("%")[0] if ":" in text else text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def needs_pattern(address: _Address) -> bool:
    """Return whether ``address`` may be called only if a pattern of the operator allows it.

    These are loopback addresses, link-local addresses (the clouds' metadata services), multicast
    groups, and unspecified or reserved addresses.
    """
    return (
        address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or address.is_reserved
    )


def split_receipt_url(url: str) -> UrlParts:
    """Check a receipt URL, and split it into parts as :func:`srmp_spark.names.split_url` does.

    Raises :class:`ValueError` if it is no URL, is longer than URL_LENGTH_MAX, is not printable
    ASCII, or has a dot segment or an encoded slash in its path.
    """
    if len(url) > URL_LENGTH_MAX or not url.isprintable() or not url.isascii():
        raise ValueError("the URL is too long, or holds a character that is not printable ASCII")
    parts = split_url(url)
    if _UNSAFE_PATH.search(parts.path):
        raise ValueError(f"a dot segment or an encoded slash in {url[:150]!r}")
    return parts


class UrlPolicy:
    """Decides by the operator's patterns and by the rule above which URLs may be called."""

    def __init__(self, patterns: Iterable[UrlPattern]) -> None:
        self._patterns = tuple(patterns)

    def names(self, url: UrlParts) -> bool:
        """Return whether a pattern of the operator allows ``url``.

        The sender of the message and the addresses of the host do not matter.
        """
        return any(pattern.matches(url) for pattern in self._patterns)

    def decide(
        self, url: UrlParts, resolved: Sequence[str], *, peer: str, tls_name: str | None = None
    ) -> Allowed | Blocked:
        """Return whether ``url`` may be called for a message from the address ``peer``.

        The result is :class:`Allowed` with the allowed addresses, or :class:`Blocked` with the
        reason. ``resolved`` are the addresses of the URL's host, in the resolver's order.
        ``tls_name`` is the name in the sender's TLS certificate, if it was checked.
        """
        addresses = [
            (text, address) for text in resolved if (address := address_of(text)) is not None
        ]
        if not addresses:
            return Blocked(url.host, "the host has no address", "")
        if self.names(url):
            return Allowed(addresses[0][0], tuple(text for text, _ in addresses[1:]))
        source = address_of(peer)
        is_sender = tls_name is not None and canonical_host(tls_name) == url.host
        allowed = [
            text
            for text, address in addresses
            if not needs_pattern(address) and (is_sender or address == source)
        ]
        if allowed:
            return Allowed(allowed[0], tuple(allowed[1:]))
        pattern = f"{url.scheme}://{url.authority}"
        if all(needs_pattern(address) for _, address in addresses):
            return Blocked(
                url.host,
                "loopback, link-local and group addresses are called only by pattern",
                pattern,
            )
        return Blocked(url.host, f"the host is not the sender ({peer or 'unknown'})", pattern)
