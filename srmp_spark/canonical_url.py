"""The canonical form of each destination, in which destinations are compared as texts.

Each destination has exactly one canonical form ("its one spelling"). Outgoing queues, redirections
and forwarded messages are compared in this form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from urllib.parse import quote, unquote

from srmp_spark.errors import ConfigurationError
from srmp_spark.names import (
    VIRTUAL_DIRECTORY,
    MulticastAddress,
    queue_of_path,
    split_url,
)
from srmp_spark.transports import Transport, transport_of

HOST_LENGTH_MAX, HOST_LABEL_LENGTH_MAX = 253, 63
"""Longest host name, and longest label of a host name, in characters (RFC 1035 2.3.4).

A destination with a longer host is refused.
"""

_ESCAPES = re.compile("(?:%[0-9a-fA-F]{2})+")
# The dot is missing so that /%2e%2e/ stays encoded.
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_~")


def canonical_destination(destination: str) -> str:
    """Return the canonical form of a queue's URL, by which destinations are compared.

    The form has no ``DIRECT=``, the host in lower case, no default port, and forward slashes.

    MSMQ ignores the case of ``/msmq/…`` and decodes each percent-encoding, so this form has lower
    case and no percent-encodings there. The request line gets the encodings that it needs
    (:attr:`~srmp_spark.names.UrlParts.request_target`). Any other path may belong to another kind
    of web server, so the path keeps its case, and only letters, digits and ``-_~`` are decoded (RFC
    3986 6.2.2.2). Hosts are not looked up: ``localhost`` and ``127.0.0.1`` are two destinations.

    Raises :class:`ConfigurationError` if ``destination`` is no http or https URL, or if no queue
    can have this URL.
    """
    url = destination[7:] if destination[:7].upper() == "DIRECT=" else destination
    try:
        parts = split_url(url)
        _check_host(parts.host)
        path = _canonical_path(parts.path.replace("\\", "/"))
    except ValueError as error:
        raise ConfigurationError(f"not a destination: {error}") from None
    return f"{parts.scheme}://{parts.authority}{path}{parts.query}"


def canonical_outgoing(destination: str) -> str:
    """Return the canonical form of a destination of any transport.

    A multicast group becomes ``MULTICAST=234.1.1.1:8001``. A service of WS-ReliableMessaging
    becomes ``wsrm:URL``, and the path of its URL always keeps its case. Any other destination
    becomes what :func:`canonical_destination` returns. Raises :class:`ConfigurationError` if the
    text is no destination.
    """
    transport = transport_of(destination)
    address = transport.address_in(destination)
    return _CANONICAL[transport](destination if address is None else address)


def _canonical_group(address: str) -> str:
    try:
        return MulticastAddress.parse(address).format_name
    except ValueError as error:
        raise ConfigurationError(f"not a destination: {error}") from None


def _canonical_service(url: str) -> str:
    try:
        parts = split_url(url)
        _check_host(parts.host)
        path = _other_path(parts.path or "/")
    except ValueError as error:
        raise ConfigurationError(
            f"not a destination: {error}; write wsrm:http://HOST/PATH"
        ) from None
    prefix = Transport.RELIABLE.rules.prefix
    return f"{prefix}{parts.scheme}://{parts.authority}{path}{parts.query}"


_CANONICAL: Mapping[Transport, Callable[[str], str]] = {
    Transport.HTTP: canonical_destination,
    Transport.MULTICAST: _canonical_group,
    Transport.RELIABLE: _canonical_service,
}
"""Transport → function that returns the canonical destination of an address."""


def _check_host(host: str) -> None:
    if len(host) > HOST_LENGTH_MAX or max(map(len, host.split("."))) > HOST_LABEL_LENGTH_MAX:
        raise ValueError(
            f"a host name has up to {HOST_LENGTH_MAX} characters, {HOST_LABEL_LENGTH_MAX} "
            f"between dots: {host[:80]!r}…"
        )
    if not host.isascii() or not host.isprintable():
        raise ValueError(f"a host name is ASCII; write others as xn--…: {host[:80]!r}")


def _canonical_path(path: str) -> str:
    if path in ("", "/"):
        raise ValueError(
            "the URL has no path, so it names no queue; write http://HOST/msmq/private$/QUEUE"
        )
    if path.split("/")[1].lower() != VIRTUAL_DIRECTORY:
        return _other_path(path)
    queue_of_path(path)
    name = unquote(path, errors="strict").lower()
    if not name.isprintable():
        raise ValueError(f"a character in the path that cannot be printed: {path[:150]!r}")
    # "?" and "#" would end the path, and "%" would begin an escape. <to> would lose a final blank.
    name = name.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    bare = name.rstrip(" ")
    return bare + "%20" * (len(name) - len(bare))


def _other_path(path: str) -> str:
    if "%00" in path:
        raise ValueError("an encoded NUL in the path")
    return _ESCAPES.sub(lambda match: _decode_unreserved(match[0]), quote(path, safe=_AS_WRITTEN))


_AS_WRITTEN = "/%:@!$&'()*+,;=~-._[]{}|^`\"<>"


def _decode_unreserved(escapes: str) -> str:
    octets = bytes.fromhex(escapes.replace("%", ""))
    return "".join(chr(octet) if octet in _UNRESERVED else f"%{octet:02X}" for octet in octets)
