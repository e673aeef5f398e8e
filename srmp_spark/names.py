"""Names: queues, addresses, GUIDs, message identifiers, and the host names that are ours.

A queue name is kept in one canonical form, ``private$/orders`` or ``orders`` (lower case, forward slash, no host), and is
only ever a key of a map: it never becomes a path of the file system.

**Separators.** In a URL's path, of a request target or of a ``<to>`` alike, ``/`` and the backslash separate, as written.
Written as ``%2f`` or ``%5c`` they are refused, like ``%2e`` and ``%00`` (:data:`ENCODED_SEPARATOR`; 400): proxies and web
servers differ in whether they decode these, and a check in front of us must not see another path than we do. No queue
needs them: a name holds no slash of either kind. Every other percent-encoding means its character. In the *API* a queue
name is one segment of the path, so there the slash of ``private$/orders`` is written ``%2F`` (:func:`quote_queue_name`).

**Hosts.** Compared in lower case, without the dot that may end an absolute name (RFC 1034 3.1), and IPv6 addresses in their
shortest form (RFC 5952): :func:`canonical_host`.
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

NULL_GUID = "00000000-0000-0000-0000-000000000000"
PRIVATE_PREFIX = "private$/"
ORDER_QUEUE = "private$/order_queue$"
"""Where peers send stream receipts to ([MC-MQSRM] 3.1.7.2.4)."""
FORWARD_QUEUE = "private$/forward$"
"""What came for other hosts and is sent on by our sender process (docs/adr/0012-forwarding.md); nobody else writes there."""
OWN_QUEUES = frozenset({ORDER_QUEUE, FORWARD_QUEUE})
"""Queues that we make ourselves; people see them once something is in them."""
VIRTUAL_DIRECTORY = "msmq"
"""The IIS virtual directory of MSMQ, first segment of every queue URL; compared without regard to case."""

QUEUE_NAME_LENGTH_MAX = 124
"""MSMQ's own limit, MQ_MAX_Q_NAME_LEN."""
JOURNAL_SUFFIX = ";journal"
"""After a queue's name: its journal ([MS-MQMQ] 2.1.2). No queue's own name ends so."""
SUBQUEUE_NAME_LENGTH_MAX = 31
"""UTF-16 units behind the ``;`` of a subqueue that nobody declared. SubqueueName of a message has 64 bytes, its NUL among them
([MS-MQRR] 2.2.5.3): of a longer name no reader could be told."""
_NOT_IN_A_SUBQUEUE_NAME = frozenset(';"+,')
"""[MS-MQMQ] 2.1.1, with the separators of paths, which no queue's name has."""
CONSUMER_NAME_LENGTH_MAX = 100
"""Characters of a consumer's name: people read it in ``status`` beside the queue's."""

NEAR_LENGTH_MAX = 64
"""Characters of a name, without ``private$/``, that is compared with others for a hint: the cost grows with their square."""
NEAR_NAMES_MAX = 4_000
"""Names that are looked at for a hint, by length, first and last character: a millisecond or two."""
NEAR_ALIKE_MAX = 400
"""Of these, names that are compared place by place: about as much."""
NEAR_SEEN_MAX = 32
"""Of these, the likest, about which is asked whether the caller may hear of them: globs are tried for each."""
NEAR_COMPARED_MAX = 4
"""Of these, names that are compared thoroughly: up to a millisecond for each."""

ENCODED_SEPARATOR = re.compile(r"%(?:2f|5c|2e|00)", re.IGNORECASE)
"""What must not stand in the path of a queue URL: slash, backslash, dot, NUL, percent-encoded. Why: the module's docstring."""

_GUID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
# A blank may stand in the path: Windows writes a format name as it is, and queue names have blanks.
_URL = re.compile(
    r"(https?)://([^/\\?#\s]*)((?:[/\\][^?#\x00-\x1f\x7f]*)?)(\?[^#\x00-\x1f\x7f]*)?", re.IGNORECASE
)
_QUEUE_SUFFIX = re.compile(r"(.*):(transactional|journal|multicast=.*)", re.IGNORECASE | re.DOTALL)
_BETWEEN_ELEMENTS = re.compile(
    r"[ \t]*,[ \t]*(?=(?:DIRECT|PUBLIC|PRIVATE|MACHINE|CONNECTOR|DL|(?:MSMQ:)?MULTICAST)=|https?://|WSRM:)",
    re.IGNORECASE,
)
_MULTICAST = re.compile(r"(?:DIRECT=)?(?:MSMQ:)?MULTICAST=(.*)", re.IGNORECASE | re.DOTALL)
_RELIABLE = re.compile(r"(?:DIRECT=)?WSRM:(.*)", re.IGNORECASE | re.DOTALL)
RELIABLE_PREFIX = "wsrm:"
"""Before the URL of a service that is reached by WS-ReliableMessaging (INTERFACE.md section 4, Sink)."""
_USER_INFO = re.compile(r"//[^/]*@")
_HOST_PORT = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]@]+)(?::(\d{1,5}))?")


def parse_guid(text: str) -> str:
    """A GUID in the one form that the package stores: lower case, no braces ([MC-MQSRM] 2.2.1.1).

    Raises :class:`RemoteProtocolError` for anything else.
    """
    if not _GUID.fullmatch(text):
        raise RemoteProtocolError(f"not a GUID: {text[:50]!r}", section="[MC-MQSRM] 2.2.1.1")
    return text.lower()


def message_id(lineage: str, uniquifier: int) -> str:
    r"""An OBJECTID as MSMQ prints it, ``{guid}\number``."""
    return f"{{{lineage}}}\\{uniquifier}"


def canonical_queue_name(text: str) -> str:
    """``PRIVATE$\\Orders``, ``private$/orders`` or ``orders`` in canonical form.

    Raises :class:`ValueError` for an empty name, a control character, a dot segment or more than one slash.
    """
    name = text.strip().replace("\\", "/").lower()
    if name.startswith("./"):  # ".\private$\orders", as MSMQ's path names write the local computer
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
    """The canonical name of a queue of ours that may take dead letters. Raises :class:`ValueError` for one that never can."""
    name = canonical_queue_name(text)
    if name in OWN_QUEUES or base_of_journal(name) is not None:
        raise ValueError(f"{name} takes no dead letters: name a transactional queue of your own")
    return name


def local_queue_name(text: str) -> str:
    """:func:`canonical_queue_name` for names from our own user: a bad one is a :class:`ConfigurationError`."""
    try:
        return canonical_queue_name(text)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None


def nearest_queue_name(
    name: str, known: Iterable[str], sees: Callable[[str], bool] = lambda _: True
) -> str | None:
    """The queue meant by a canonical ``name`` that is not ``known``: it has a typing error, or no ``private$/``.

    ``sees``: whether who asked may hear of a queue. Whoever can call asks for names that are not there, as long and as often as
    the caller likes: what one answer costs has limits, :data:`NEAR_NAMES_MAX` and those behind it.
    """
    wanted = name.removeprefix(PRIVATE_PREFIX)
    if not 0 < len(wanted) <= NEAR_LENGTH_MAX:
        return None
    first, last, shortest, longest = (
        wanted[0],
        wanted[-1],
        len(wanted) * 3 / 7,
        len(wanted) * 7 / 3,
    )  # a ratio below 0.6
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
    """How many characters stand where the other has them, counted from the front and from the back."""
    return int(sum(map(eq, one, other)) + sum(map(eq, one[::-1], other[::-1])))


def split_queue_suffixes(text: str) -> tuple[str, tuple[str, ...]]:
    """``private$/a:b:transactional`` → ``private$/a:b`` and its options, ``("transactional",)`` (``serve --queue``).

    Only what INTERFACE.md section 2 knows is an option, from the end and in any case: ``transactional``, ``journal``,
    ``multicast=…``. Every other colon belongs to the name. The name is not judged here.
    """
    suffixes: list[str] = []
    while (match := _QUEUE_SUFFIX.fullmatch(text)) is not None:
        text = match[1]
        suffixes.insert(0, match[2].lower())
    return text, tuple(suffixes)


def base_of_journal(name: str) -> str | None:
    """Whose journal ``private$/orders;journal``, a canonical name, would be; ``None`` for the name of a queue."""
    return name.removesuffix(JOURNAL_SUFFIX) if name.endswith(JOURNAL_SUFFIX) else None


def base_of_subqueue(name: str) -> str | None:
    """Return the queue that ``private$/orders;retry``, a canonical name, would be a subqueue of ([MS-MQMQ] 2.1.1).

    Return None for the name of a queue or journal, and for one that no subqueue can have. A subqueue has none of its own.
    """
    base, _, word = name.partition(";")
    if not base.removeprefix(PRIVATE_PREFIX) or not word or name.endswith(JOURNAL_SUFFIX):
        return None
    if len(word.encode("utf-16-le", "surrogatepass")) > 2 * SUBQUEUE_NAME_LENGTH_MAX:
        return None
    return None if any(sign in _NOT_IN_A_SUBQUEUE_NAME or sign.isspace() for sign in word) else base


def format_names(text: str) -> tuple[str, ...]:
    """The elements of a multiple-element format name ([MS-MQMQ] 2.1.7), of any other format name or URL itself.

    A comma separates where a format name or URL follows; any other belongs to a queue's name.
    """
    return tuple(_BETWEEN_ELEMENTS.split(text)) if "," in text else (text,)


def quote_queue_name(name: str) -> str:
    """A canonical name as one percent-encoded path segment of the API."""
    return quote(name, safe="")


def canonical_host(text: str) -> str:
    """Return a host as it is compared: lower case, and ``machine2.`` is ``machine2`` (RFC 1034 3.1, an absolute name).

    An IPv6 address has its shortest form (RFC 5952); one that stands for an IPv4 address (``::ffff:192.0.2.7``) is that.
    """
    host = text.lower()
    if ":" in host:
        try:
            address = IPv6Address(host)
        except ValueError:
            return host  # with a zone, or none at all: it is judged where it is used
        return str(address.ipv4_mapped or address)
    return host[:-1] if host.endswith(".") and len(host) > 1 else host


class QueueAddress(NamedTuple):
    """A queue URL taken apart: ``http://host:port/msmq/private$/orders?SenderStream=x``."""

    scheme: str
    host: str
    port: int
    queue: str
    query: str
    """With its ``?``, verbatim; empty if there is none ([MC-MQSRM] 4.4: ``?SenderStream=…`` is kept as sent)."""


class UrlParts(NamedTuple):
    """An ``http`` or ``https`` URL taken apart; ``path`` and ``query`` stay as written."""

    scheme: str
    host: str
    port: int
    path: str
    query: str

    @property
    def authority(self) -> str:
        """What a ``Host`` header names: an IPv6 address in brackets, the port unless it is the scheme's own (RFC 9110 7.2)."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (
            host if self.port == (443 if self.scheme == "https" else 80) else f"{host}:{self.port}"
        )

    @property
    def request_target(self) -> str:
        """Path and query as an HTTP request line carries them: blanks and letters outside ASCII percent-encoded."""
        return quote((self.path or "/") + self.query, safe="/\\?%:@!$&'()*+,;=~-._[]{}|^`\"<>")


def split_url(url: str) -> UrlParts:
    """Take an absolute http(s) URL apart by its grammar, never by ``in`` or ``startswith``.

    The host comes out as :func:`canonical_host` has it. User info is refused (``http://127.0.0.1:9@evil``): it exists to
    mislead. Raises :class:`ValueError`.
    """
    match = _URL.fullmatch(url)
    if match is None:
        raise ValueError(f"not an http or https URL: {_without_user_info(url)[:150]!r}")
    scheme, authority, path, query = match[1].lower(), match[2], match[3], match[4] or ""
    host_port = _HOST_PORT.fullmatch(authority)
    # RFC 1034 3.1: no label is empty. A percent sign would be a zone to one reader and part of a name to another.
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
    """For errors, which end up in logs: no password is repeated."""
    return _USER_INFO.sub("//…@", url, count=1)


def queue_of_path(path: str) -> str:
    """The canonical queue name in ``/msmq/private$/orders`` (either slash, any case, percent-encoded).

    Raises :class:`ValueError`: no such name, an encoded separator (rule in the module's docstring), bytes that are no UTF-8.
    """
    if ENCODED_SEPARATOR.search(path):
        raise ValueError(
            "an encoded slash, backslash, dot or NUL in a queue path; write / or \\ as it is"
        )
    # UnicodeDecodeError is a ValueError
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
    """``IP:PORT`` of a multicast group ([MS-MQMQ] 2.1.6)."""

    group: str
    """IPv4, dotted."""
    port: int
    """The Data-Destination Port of PGM."""

    @classmethod
    def parse(cls, text: str) -> MulticastAddress:
        """``234.1.1.1:8001``. Raises :class:`ValueError`."""
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
        """In the one spelling by which destinations are compared."""
        return f"MULTICAST={self}"


def is_multicast(destination: str) -> bool:
    """Whether a destination in its one spelling is a multicast group."""
    return destination.startswith("MULTICAST=")


def multicast_address(destination: str) -> MulticastAddress | None:
    """The group that a destination or a ``<to>`` (``MSMQ:MULTICAST=…``) names; ``None`` for what is no multicast at all.

    Raises :class:`ValueError` for one that names no group.
    """
    match = _MULTICAST.fullmatch(destination.strip())
    return None if match is None else MulticastAddress.parse(match[1])


def is_reliable(destination: str) -> bool:
    """Whether a destination in its one spelling is a service of WS-ReliableMessaging."""
    return destination.startswith(RELIABLE_PREFIX)


def reliable_url(destination: str) -> str | None:
    """The URL in ``wsrm:URL``, as it is spelled; ``None`` for any other destination."""
    match = _RELIABLE.fullmatch(destination.strip())
    return None if match is None else match[1]


def parse_queue_url(url: str) -> QueueAddress:
    """The address in a ``<to>``, ``<sendTo>`` or ``<sendReceiptsTo>`` ([MC-MQSRM] 2.2.4.2). Raises :class:`ValueError`."""
    parts = split_url(url)
    return QueueAddress(
        parts.scheme, parts.host, parts.port, queue_of_path(parts.path), parts.query
    )


@dataclass(frozen=True, slots=True)
class LocalHosts:
    """Which hosts in a ``<to>`` are this queue manager ([MC-MQSRM] 3.1.5.1.3); ports are not compared there."""

    names: frozenset[str] = field(default_factory=frozenset)
    """As :func:`canonical_host` has them: ``--host-name``, listening addresses, the host of ``--public-url``. ``localhost`` is
    always ours."""
    ports: frozenset[int] = frozenset()
    """Where SRMP is taken: ``--listen``, ``--listen-https``, ``--public-url``. Empty: not known, every port is ours."""

    def __contains__(self, host: object) -> bool:
        return isinstance(host, str) and (
            host in self.names or host in ("localhost", "127.0.0.1", "::1")
        )

    def is_target_here(self, url: str) -> bool:
        """Whether a URL that a redirection leads to is this queue manager: by host and port.

        One that names another port of this host is another service there, perhaps a second queue manager. Without a port it is
        the queue manager of that host, wherever that listens. Raises :class:`ValueError` for what is no URL.
        """
        parts = split_url(url)
        match = _URL.fullmatch(url)
        named = match is not None and re.search(r":\d+$", match[2]) is not None
        return parts.host in self and (not named or not self.ports or parts.port in self.ports)


def is_glob(pattern: str) -> bool:
    """Whether ``pattern`` can stand for other names than itself."""
    return any(sign in pattern for sign in "*?[")


def queue_matches(queue: str, patterns: Iterable[str]) -> bool:
    """Whether one of ``patterns``, names and globs in canonical form, stands for ``queue``.

    The one rule of the package. Our own queues (:data:`OWN_QUEUES`) are in no glob, only their names stand for them: whoever
    writes ``private$/*`` means what applications send and read, not our peers' receipts and other people's mail.
    """
    in_globs = queue not in OWN_QUEUES
    return any(
        pattern == queue or (in_globs and fnmatchcase(queue, pattern)) for pattern in patterns
    )
