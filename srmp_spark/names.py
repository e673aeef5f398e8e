"""Names: queues, addresses, GUIDs, message identifiers, and the host names of this queue manager.

A queue name has one canonical form, ``private$/orders`` or ``orders``: lower case, forward slash,
no host. A queue name is only ever the key of a map and never becomes a path of the file system.

**Separators.** In the path of a URL (of a request target or of a ``<to>``), ``/`` and the backslash
separate segments when they are written as such. The encodings ``%2f``, ``%5c``, ``%2e`` and ``%00``
are refused with 400 (:data:`ENCODED_SEPARATOR`). Proxies and web servers differ in whether they
decode these encodings, and a check in front of the queue manager must see the same path as the
queue manager. No queue needs these encodings, because a queue name contains neither slash nor
backslash. Every other percent-encoding means its character. In the *API* a queue name is one
segment of the path, so the slash of ``private$/orders`` is written ``%2F`` there
(:func:`quote_queue_name`).

**Hosts.** Hosts are compared in lower case, without the final dot of an absolute name (RFC 1034
3.1). IPv6 addresses are compared in their shortest form (RFC 5952). :func:`canonical_host` returns
this form.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from heapq import nlargest
from ipaddress import IPv4Address, IPv6Address
from itertools import islice
from operator import eq
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

from srmp_spark.errors import ConfigurationError, RemoteProtocolError
from srmp_spark.transports import SPELLINGS, Transport

NULL_GUID = "00000000-0000-0000-0000-000000000000"
PRIVATE_PREFIX = "private$/"
ORDER_QUEUE = "private$/order_queue$"
"""Queue to which peers send stream receipts ([MC-MQSRM] 3.1.7.2.4)."""
FORWARD_QUEUE = "private$/forward$"
"""Queue of messages for other hosts, which the sender process sends on
(docs/adr/0012-forwarding.md). No other process writes to this queue.
"""
OWN_QUEUES = frozenset({ORDER_QUEUE, FORWARD_QUEUE})
"""Queues that the queue manager creates itself.

Such a queue is shown to people only once the queue holds a message.
"""
VIRTUAL_DIRECTORY = "msmq"
"""Virtual directory of MSMQ in IIS, the first segment of every queue URL. Its case is ignored."""

QUEUE_NAME_LENGTH_MAX = 124
"""Longest queue name in characters, without ``private$/``: MSMQ's own limit, MQ_MAX_Q_NAME_LEN.

A longer name is refused.
"""
JOURNAL_SUFFIX = ";journal"
"""Suffix that turns the name of a queue into the name of its journal ([MS-MQMQ] 2.1.2).

No queue name itself ends with this suffix.
"""
SUBQUEUE_NAME_LENGTH_MAX = 31
"""Longest name of an undeclared subqueue after its ``;``, in UTF-16 units.

SubqueueName of a message has 64 bytes with its NUL ([MS-MQRR] 2.2.5.3), so a reader could not be
given a longer name.
"""
_NOT_IN_A_SUBQUEUE_NAME = frozenset(';"+,')
"""Characters that a subqueue name must not contain ([MS-MQMQ] 2.1.1).

Path separators are not listed because no queue name contains them.
"""
CONSUMER_NAME_LENGTH_MAX = 100
"""Longest consumer name, in characters: ``status`` prints it next to the name of the queue.

A longer name is refused.
"""

NEAR_LENGTH_MAX = 64
"""Longest name, without ``private$/``, that is compared with other names for a hint, in characters.

The cost grows with the square of the length; a longer name gets no hint.
"""
NEAR_NAMES_MAX = 4_000
"""Number of known names that are examined for a hint by length, first and last character.

Examining them takes one or two milliseconds; further names are ignored.
"""
NEAR_ALIKE_MAX = 400
"""Number of these names that are compared character by character.

Comparing them takes one or two milliseconds.
"""
NEAR_SEEN_MAX = 32
"""Number of the most similar of these names for which it is checked whether the caller may see the
queue. Each check tries globs.
"""
NEAR_COMPARED_MAX = 4
"""Number of these names that are compared thoroughly. Each comparison takes up to one millisecond.
"""

ENCODED_SEPARATOR = re.compile(r"%(?:2f|5c|2e|00)", re.IGNORECASE)
"""Percent-encoded slash, backslash, dot or NUL, which the path of a queue URL must not contain.

The docstring of the module gives the reason.
"""

_GUID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
# The path may contain blanks: Windows writes format names unencoded, and queue names have blanks.
_URL = re.compile(
    r"(https?)://([^/\\?#\s]*)((?:[/\\][^?#\x00-\x1f\x7f]*)?)(\?[^#\x00-\x1f\x7f]*)?", re.IGNORECASE
)
_QUEUE_SUFFIX = re.compile(r"(.*):(transactional|journal|multicast=.*)", re.IGNORECASE | re.DOTALL)
_BETWEEN_ELEMENTS = re.compile(
    r"[ \t]*,[ \t]*(?=(?:DIRECT|PUBLIC|PRIVATE|MACHINE|CONNECTOR|DL)=|https?://|" + SPELLINGS + ")",
    re.IGNORECASE,
)
_USER_INFO = re.compile(r"//[^/]*@")
_HOST_PORT = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]@]+)(?::(\d{1,5}))?")


def parse_guid(text: str) -> str:
    """Return a GUID in the one form that the package stores: lower case, no braces.

    Raises :class:`RemoteProtocolError` if ``text`` is no GUID ([MC-MQSRM] 2.2.1.1).
    """
    if not _GUID.fullmatch(text):
        raise RemoteProtocolError(f"not a GUID: {text[:50]!r}", section="[MC-MQSRM] 2.2.1.1")
    return text.lower()


def message_id(lineage: str, uniquifier: int) -> str:
    r"""Return an OBJECTID as MSMQ prints it, ``{guid}\number``."""
    return f"{{{lineage}}}\\{uniquifier}"


def canonical_queue_name(text: str) -> str:
    r"""Return the canonical form of ``PRIVATE$\Orders``, ``private$/orders`` or ``orders``.

    Raises :class:`ValueError` for an empty or too long name, a character that cannot be printed, a
    dot segment or more than one slash.
    """
    name = text.strip().replace("\\", "/").lower()
    # A path name of MSMQ, ".\private$\orders", writes the local computer as a dot.
    if name.startswith("./"):
        name = name[2:].strip()
    base = name.removeprefix(PRIVATE_PREFIX)
    if not base or len(base) > QUEUE_NAME_LENGTH_MAX:
        raise ValueError(
            f"a queue name has 1 to {QUEUE_NAME_LENGTH_MAX} characters: {text[:150]!r}"
        )
    if "/" in base or base in (".", "..") or not base.isprintable():
        raise ValueError(f"not a queue name: {text[:150]!r} (expected NAME or private$/NAME)")
    return name


def dead_letter_queue_name(text: str) -> str:
    """Return the canonical name of a local queue that may accept dead letters.

    Whether the queue exists is not checked. Raises :class:`ValueError` for a name that is no queue
    name, and for a queue that never accepts dead letters.
    """
    name = canonical_queue_name(text)
    if name in OWN_QUEUES or base_of_journal(name) is not None:
        raise ValueError(f"{name} accepts no dead letters: name a transactional queue of your own")
    return name


def local_queue_name(text: str) -> str:
    """Return :func:`canonical_queue_name` of a name from an option or a command line.

    Raises :class:`ConfigurationError` if the name is no queue name.
    """
    try:
        return canonical_queue_name(text)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None


def nearest_queue_name(
    name: str, known: Iterable[str], sees: Callable[[str], bool] = lambda _: True
) -> str | None:
    """Return the known queue that an unknown canonical ``name`` probably means.

    The name has a typing error or lacks ``private$/``. Return ``None`` if no known name is similar.
    ``sees`` returns whether the caller may see a queue; other queues are never returned. Every
    caller can ask for unknown names for as long as it likes. The cost of one answer is therefore
    limited by :data:`NEAR_NAMES_MAX` and the constants after it.
    """
    wanted = name.removeprefix(PRIVATE_PREFIX)
    if not 0 < len(wanted) <= NEAR_LENGTH_MAX:
        return None
    # Beyond these lengths the similarity ratio is below 0.6.
    first, last, shortest, longest = (
        wanted[0],
        wanted[-1],
        len(wanted) * 3 / 7,
        len(wanted) * 7 / 3,
    )
    alike: list[tuple[str, str]] = []
    for each in islice(known, NEAR_NAMES_MAX):
        base = each.removeprefix(PRIVATE_PREFIX)
        if (
            shortest <= len(base) <= longest
            and len(base) <= NEAR_LENGTH_MAX
            and (base[0] == first or base[-1] == last)
        ):
            alike.append((base, each))
    close = nlargest(
        NEAR_SEEN_MAX, alike[:NEAR_ALIKE_MAX], key=lambda pair: _same_places(wanted, pair[0])
    )
    seen = {base: each for base, each in close if sees(each)}
    found = difflib.get_close_matches(wanted, list(seen)[:NEAR_COMPARED_MAX], 1, 0.6)
    return seen[found[0]] if found else None


def _same_places(one: str, other: str) -> int:
    """Count the characters that are equal at the same position, from the front and the end."""
    return int(sum(map(eq, one, other)) + sum(map(eq, one[::-1], other[::-1])))


def split_queue_suffixes(text: str) -> tuple[str, tuple[str, ...]]:
    """Split ``private$/a:b:transactional`` into ``private$/a:b`` and ``("transactional",)``.

    ``serve --queue`` takes names with such options. The options are those of INTERFACE.md section
    2, at the end of the text and in any case: ``transactional``, ``journal``, ``multicast=…``.
    Every other colon belongs to the name. This function does not check the name.
    """
    suffixes: list[str] = []
    while (match := _QUEUE_SUFFIX.fullmatch(text)) is not None:
        text = match[1]
        suffixes.insert(0, match[2].lower())
    return text, tuple(suffixes)


def base_of_journal(name: str) -> str | None:
    """Return the queue whose journal has this canonical name, such as ``private$/orders;journal``.

    Return ``None`` if the name is not the name of a journal.
    """
    return name.removesuffix(JOURNAL_SUFFIX) if name.endswith(JOURNAL_SUFFIX) else None


def base_of_subqueue(name: str) -> str | None:
    """Return the queue of a subqueue, given a canonical name such as ``private$/orders;retry``.

    Return ``None`` for the name of a queue or of a journal, and for a name that no subqueue can
    have ([MS-MQMQ] 2.1.1). A subqueue has no subqueues.
    """
    base, _, word = name.partition(";")
    if not base.removeprefix(PRIVATE_PREFIX) or not word or name.endswith(JOURNAL_SUFFIX):
        return None
    if len(word.encode("utf-16-le", "surrogatepass")) > 2 * SUBQUEUE_NAME_LENGTH_MAX:
        return None
    return None if any(sign in _NOT_IN_A_SUBQUEUE_NAME or sign.isspace() for sign in word) else base


def format_names(text: str) -> tuple[str, ...]:
    """Split a multiple-element format name into its elements, which are not checked.

    See [MS-MQMQ] 2.1.7.

    Any other format name or URL is returned as the only element. A comma separates two elements
    only if a format name or URL follows it; any other comma belongs to the name of a queue.
    """
    return tuple(_BETWEEN_ELEMENTS.split(text)) if "," in text else (text,)


def quote_queue_name(name: str) -> str:
    """Return a canonical name as one percent-encoded path segment of the API."""
    return quote(name, safe="")


def canonical_host(text: str) -> str:
    """Return a host in the form in which hosts are compared.

    The host has lower case and no final dot: ``machine2.``, an absolute name (RFC 1034 3.1), is
    ``machine2``. An IPv6 address has its shortest form (RFC 5952). An IPv6 address that stands for
    an IPv4 address (``::ffff:192.0.2.7``) becomes this IPv4 address.
    """
    host = text.lower()
    if ":" in host:
        try:
            address = IPv6Address(host)
        except ValueError:
            # The address has a zone or is no address. The user of the host checks this.
            return host
        return str(address.ipv4_mapped or address)
    return host[:-1] if host.endswith(".") and len(host) > 1 else host


class QueueAddress(NamedTuple):
    """The parts of a queue URL such as ``http://host:port/msmq/private$/orders?SenderStream=x``."""

    scheme: str
    host: str
    port: int
    queue: str
    query: str
    """Query with its ``?``, unchanged; empty if the URL has none ([MC-MQSRM] 4.4:
    ``?SenderStream=…`` is kept as sent).
    """


class UrlParts(NamedTuple):
    """The parts of an ``http`` or ``https`` URL; ``path`` and ``query`` are as written."""

    scheme: str
    host: str
    port: int
    path: str
    query: str

    @property
    def authority(self) -> str:
        """Return the value of a ``Host`` header (RFC 9110 7.2).

        An IPv6 address stands in brackets. The port is left out if it is the default of the scheme.
        """
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (
            host if self.port == (443 if self.scheme == "https" else 80) else f"{host}:{self.port}"
        )

    @property
    def request_target(self) -> str:
        """Return path and query as an HTTP request line carries them.

        Blanks and characters outside ASCII are percent-encoded.
        """
        return quote((self.path or "/") + self.query, safe="/\\?%:@!$&'()*+,;=~-._[]{}|^`\"<>")


def split_url(url: str) -> UrlParts:
    """Split an absolute http or https URL by its grammar, never by ``in`` or ``startswith``.

    The host is returned as :func:`canonical_host` returns it. User info
    (``http://127.0.0.1:9@evil``) is refused, because it is used to mislead readers. Raises
    :class:`ValueError` if ``url`` is no such URL.
    """
    match = _URL.fullmatch(url)
    if match is None:
        raise ValueError(f"not an http or https URL: {_without_user_info(url)[:150]!r}")
    scheme, authority, path, query = match[1].lower(), match[2], match[3], match[4] or ""
    host_port = _HOST_PORT.fullmatch(authority)
    # No label is empty (RFC 1034 3.1). A percent sign is refused, because one reader takes it for
    # the start of a zone and another reader for a part of the name.
    if (
        host_port is None
        or ".." in host_port[1]
        or host_port[1].startswith(".")
        or "%" in host_port[1]
    ):
        shown = _without_user_info(f"//{authority}")[2:]
        raise ValueError(f"not HOST or HOST:PORT: {shown[:150]!r}")
    port = int(host_port[2]) if host_port[2] else (443 if scheme == "https" else 80)
    if not 0 < port < 65536:
        raise ValueError(f"not a port: {port}")
    return UrlParts(scheme, canonical_host(host_port[1].strip("[]")), port, path, query)


def _without_user_info(url: str) -> str:
    """Return the URL without its user info, so that errors and logs contain no password."""
    return _USER_INFO.sub("//…@", url, count=1)


def queue_of_path(path: str) -> str:
    """Return the canonical queue name in a path such as ``/msmq/private$/orders``.

    The path may have either slash, any case, and percent-encodings. Raises :class:`ValueError` if
    the path names no queue, has an encoded separator (see the docstring of the module), or has
    bytes that are not UTF-8.
    """
    if ENCODED_SEPARATOR.search(path):
        raise ValueError(
            "an encoded slash, backslash, dot or NUL in a queue path; write / or \\ as it is"
        )
    # The UnicodeDecodeError of bytes that are not UTF-8 is a ValueError.
    decoded = unquote_to_bytes(path).decode("utf-8").replace("\\", "/")
    segments = decoded.split("/")
    if (
        len(segments) < 3
        or segments[0]
        or segments[1].lower() != VIRTUAL_DIRECTORY
        or "" in segments[2:]
    ):
        raise ValueError(f"not /msmq/QUEUE or /msmq/private$/QUEUE: {path[:150]!r}")
    return canonical_queue_name("/".join(segments[2:]))


class MulticastAddress(NamedTuple):
    """The address ``IP:PORT`` of a multicast group ([MS-MQMQ] 2.1.6)."""

    group: str
    """IPv4 address of the group, in dotted form."""
    port: int
    """Port of the group, the Data-Destination Port of PGM."""

    @classmethod
    def parse(cls, text: str) -> MulticastAddress:
        """Parse a text such as ``234.1.1.1:8001``.

        Raises :class:`ValueError` if the text is no address of a multicast group.
        """
        host, colon, digits = text.strip().rpartition(":")
        port = int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 5 else 0
        try:
            group = IPv4Address(host)
        except ValueError:
            group = None
        if not colon or group is None or not group.is_multicast or not 0 < port < 65_536:
            raise ValueError(
                f"{text[:100]!r} is no multicast address: write one like 234.1.1.1:8001 "
                "(224.0.0.0 to 239.255.255.255)"
            )
        return cls(str(group), port)

    def __str__(self) -> str:
        return f"{self.group}:{self.port}"

    @property
    def format_name(self) -> str:
        """Return the address in canonical form, such as ``MULTICAST=234.1.1.1:8001``."""
        return f"{Transport.MULTICAST.rules.prefix}{self}"


def multicast_address(destination: str) -> MulticastAddress | None:
    """Return the group that a destination or a ``<to>`` (``MSMQ:MULTICAST=…``) names.

    Return ``None`` for a destination that is not multicast. Raises :class:`ValueError` for a
    multicast destination that names no valid group.
    """
    address = Transport.MULTICAST.address_in(destination)
    return None if address is None else MulticastAddress.parse(address)


def reliable_url(destination: str) -> str | None:
    """Return the URL in ``wsrm:URL``, as it is written, or ``None`` for any other destination."""
    return Transport.RELIABLE.address_in(destination)


def parse_queue_url(url: str) -> QueueAddress:
    """Return the address in a ``<to>``, ``<sendTo>`` or ``<sendReceiptsTo>`` ([MC-MQSRM] 2.2.4.2).

    Raises :class:`ValueError` if ``url`` is not the URL of a queue.
    """
    parts = split_url(url)
    return QueueAddress(
        parts.scheme, parts.host, parts.port, queue_of_path(parts.path), parts.query
    )


@dataclass(frozen=True, slots=True)
class LocalHosts:
    """Knows which hosts in a ``<to>`` mean this queue manager ([MC-MQSRM] 3.1.5.1.3).

    Ports are not compared there.
    """

    names: frozenset[str] = field(default_factory=frozenset)
    """Host names of this queue manager as :func:`canonical_host` returns them: ``--host-name``, the
    listening addresses, and the host of ``--public-url``. ``localhost`` always means this queue
    manager.
    """
    ports: frozenset[int] = frozenset()
    """Ports that accept SRMP: those of ``--listen``, ``--listen-https`` and ``--public-url``.

    An empty set means that the ports are unknown, and every port counts as one of them.
    """

    def __contains__(self, host: object) -> bool:
        return isinstance(host, str) and (
            host in self.names or host in ("localhost", "127.0.0.1", "::1")
        )

    def is_target_here(self, url: str) -> bool:
        """Return whether ``url``, to which a redirection leads, names this queue manager.

        The host and the port decide. A URL with another port of this host names another service,
        perhaps a second queue manager. A URL without a port names the queue manager of its host, at
        whichever port it listens. Raises :class:`ValueError` if ``url`` is no URL.
        """
        parts = split_url(url)
        match = _URL.fullmatch(url)
        named = match is not None and re.search(r":\d+$", match[2]) is not None
        return parts.host in self and (not named or not self.ports or parts.port in self.ports)


def is_glob(pattern: str) -> bool:
    """Return whether ``pattern`` can match names other than itself."""
    return any(sign in pattern for sign in "*?[")


def queue_matches(queue: str, patterns: Iterable[str]) -> bool:
    """Return whether one of ``patterns`` matches ``queue``.

    The patterns are names and globs in canonical form. The whole package matches queues by this one
    rule. No glob matches the queues that the queue manager creates itself (:data:`OWN_QUEUES`);
    only their exact names do. Whoever writes ``private$/*`` means the queues that applications send
    to and read from, and not the receipts of peers or messages for other hosts.
    """
    in_globs = queue not in OWN_QUEUES
    return any(
        pattern == queue or (in_globs and fnmatchcase(queue, pattern)) for pattern in patterns
    )
