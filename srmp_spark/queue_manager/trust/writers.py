"""Decide who may write to a queue at the SRMP port (``[[writer]]``, INTERFACE.md section 7).

    [[writer]]
    queue = "private$/orders"                        # a name or a glob
    certificate = "CN=orders.example,O=Example"      # the subject, as in the column sender_name
    [[writer]]
    queue = "private$/orders"
    address = "192.0.2.0/24"                         # an address or a network, or a list
    token = "partner"                                # the name of a [[token]] with the verb enqueue

All conditions of one entry must be true. Of several entries for a queue one is enough. A queue
without an entry accepts messages from every client, as in [MC-MQSRM] without an access check. No
glob matches the queue manager's own queues, because peers send their receipts to them. An entry
that names ``private$/forward$`` states who may have messages forwarded. The API asks for the verb
``enqueue`` instead, whatever the entries state.

**Why 403.** 3.1.5.1.12 "disregards" messages that the access check denies, which loses the message
without notice. 400 would lose it too: a sender deletes messages that are answered 400 (3.1.7.2.5).
The reason would be a line in this queue manager's file that an administrator may have mistyped or
not written yet. So the answer is 403, which leaves the message with its sender. IIS also answers
403 to a sender that it does not let in. The answer is given before the engine is asked, so no
history, no stream and no row changes.
"""

from __future__ import annotations

import difflib
import ipaddress
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from srmp_spark.errors import ConfigurationError
from srmp_spark.log_once import OncePerKey
from srmp_spark.names import FORWARD_QUEUE, queue_matches
from srmp_spark.queue_manager.posting.url_policy import address_of
from srmp_spark.queue_manager.trust.queue_patterns import parse_pattern
from srmp_spark.queue_manager.trust.tokens import Tokens
from srmp_spark.srmp.receiving.effects import Refused

WRITERS_MAX = 10_000
"""Most entries; more is a configuration error. A queue manager may have as many queues."""
QUEUES_KNOWN_MAX = 10_000
"""Most queues whose entries are cached. At the limit all are forgotten."""

_KEYS = ("queue", "certificate", "address", "token")
_ADDRESS = "address is an address or a network like 192.0.2.0/24"
_SECTION = "[MC-MQSRM] 3.1.5.1.12"
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network

log = logging.getLogger(__name__)


class Caller(NamedTuple):
    """The sender of a message, as far as it is known."""

    peer: str
    """Address of the sender as ``host:port``."""
    sender_name: str | None
    """Name in the client certificate, or ``None`` without a certificate."""
    authorization: bytes
    """The ``Authorization`` header as it arrived, or empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """One entry of ``[[writer]]``: a queue or glob, and the conditions on its senders."""

    queue: str
    certificate: str | None = None
    networks: tuple[_Network, ...] = ()
    token: str | None = None

    def __str__(self) -> str:
        networks = "address " + " or ".join(map(str, self.networks)) if self.networks else ""
        certificate = f"certificate {self.certificate}" if self.certificate is not None else ""
        return " and ".join(
            filter(
                None,
                (certificate, networks, f"token {self.token}" if self.token is not None else ""),
            )
        )


class Writers:
    """Decides by the entries of ``[[writer]]`` whether a sender may write to a queue."""

    def __init__(self, writers: Sequence[Writer], tokens: Tokens) -> None:
        self._writers = tuple(writers)
        self._tokens = tokens
        self._of: dict[str, tuple[Writer, ...]] = {}
        self._logged: OncePerKey[tuple[str, str]] = OncePerKey()

    def __repr__(self) -> str:
        return f"<Writers {len(self._writers)}>"

    def of(self, queue: str) -> tuple[Writer, ...]:
        """Return the entries for the queue ``queue``.

        If there is none, every client may write to it.
        """
        found = self._of.get(queue)
        if found is None:
            if len(self._of) >= QUEUES_KNOWN_MAX:
                self._of.clear()
            found = self._of[queue] = tuple(
                writer for writer in self._writers if queue_matches(queue, (writer.queue,))
            )
        return found

    def refuses(self, queue: str, caller: Caller) -> Refused | None:
        """Return the refusal if ``caller`` may not write to ``queue``, or ``None`` if it may.

        The refusal has the status 403, or 401 for a token that does not exist. It is logged, once
        for each sender and queue.
        """
        writers = self.of(queue)
        if not writers:
            return None
        token = self._tokens.find(caller.authorization) if caller.authorization else None
        name = token.name if token is not None and token.allows("enqueue", queue) else None
        host = address_of(caller.peer.rpartition(":")[0].strip("[]"))
        for writer in writers:
            if (
                (writer.certificate is None or writer.certificate == caller.sender_name)
                and (
                    not writer.networks
                    or (host is not None and any(host in network for network in writer.networks))
                )
                and (writer.token is None or writer.token == name)
            ):
                return None
        self._tell(queue, caller, "none" if token is None else token.name)
        if caller.authorization[:7].lower() == b"bearer " and token is None:
            return Refused(
                401, "token", "this queue manager has no such token", "INTERFACE.md section 7"
            )
        return Refused(
            403, "not-a-writer", f"{queue} takes messages only from its writers", _SECTION
        )

    def _tell(self, queue: str, caller: Caller, token: str) -> None:
        """Log a refused sender, once for each queue, with an entry that would let it in.

        A sender is its certificate's name or, without a certificate, its host. ``token`` is the
        name of the API token that it gave, or "none". At most KEYS_MAX pairs of queue and sender
        are logged.
        """
        host = caller.peer.rpartition(":")[0].strip("[]")
        who = caller.sender_name or host
        if not self._logged.is_new((queue, who)):
            return
        key = "certificate" if caller.sender_name is not None else "address"
        log.warning(
            "writer.refused queue=%s peer=%s sender_name=%r token=%s "
            'hint="to let it in, a [[writer]] with queue = %r and %s = %r; the sender '
            'keeps the message and tries again"',
            queue,
            caller.peer,
            caller.sender_name,
            token,
            queue,
            key,
            who,
        )


def parse_writers(where: str, value: Any) -> tuple[Writer, ...]:  # noqa: ANN401  # a TOML value may be anything
    """Parse the entries of ``[[writer]]`` from their TOML values.

    ``where`` names the key in errors. Raises :class:`ConfigurationError` for a wrong entry, and for
    more than WRITERS_MAX entries.
    """
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise ConfigurationError(
            f"{where}: expected tables, [[writer]] with queue and certificate, address or token"
        )
    if len(value) > WRITERS_MAX:
        raise ConfigurationError(f"{where}: WRITERS_MAX is {WRITERS_MAX}, got {len(value)}")
    return tuple(_parse(where, entry) for entry in value)


def check_writers(
    writers: Sequence[Writer], tokens: Tokens, *, asks_for_certificates: bool
) -> None:
    """Raise :class:`ConfigurationError` for an entry that could let no sender in.

    ``asks_for_certificates`` states whether the port asks clients for a certificate.
    """
    for writer in writers:
        where = f"writer of {writer.queue}"
        if writer.certificate is not None and not asks_for_certificates:
            raise ConfigurationError(
                f"{where}: a certificate is seen only with --listen-https and --client-ca"
            )
        if writer.token is None:
            continue
        token = tokens.named(writer.token)
        if token is None:
            raise ConfigurationError(f"{where}: there is no [[token]] named {writer.token!r}")
        meets = token.is_for(writer.queue) or any(
            queue_matches(pattern, (writer.queue,)) for pattern in token.queues
        )
        if "enqueue" not in token.verbs or not meets:
            raise ConfigurationError(
                f"{where}: token {token.name} needs the verb enqueue for that queue"
            )


NO_HOST_ADVICE = (
    "--store-and-forward needs --allow-url PATTERN for each host that it may forward to"
)
"""Advice to an operator who gives ``--store-and-forward`` alone."""


def open_forwarding(writers: Sequence[Writer]) -> str | None:
    """Return a warning if there are entries, but none restricts who may have messages forwarded.

    Return ``None`` otherwise.
    """
    if not writers or any(writer.queue == FORWARD_QUEUE for writer in writers):
        return None
    return (
        f"everybody may have messages forwarded: no [[writer]] names {FORWARD_QUEUE}, and "
        "no glob matches it; "
        f'to restrict it: [[writer]] queue = "{FORWARD_QUEUE}" with certificate, address or token'
    )


def _parse(where: str, entry: Mapping[str, object]) -> Writer:
    for key in entry:
        if key not in _KEYS:
            close = difflib.get_close_matches(key, _KEYS, 1, 0.5)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(_KEYS)}"
            raise ConfigurationError(f"{where}: unknown key {key!r}; {hint}")
    queue = parse_pattern(where, entry.get("queue"))
    where = f"{where}, writer of {queue}"
    writer = Writer(
        queue=queue,
        certificate=_text(where, entry, "certificate"),
        networks=_networks(where, entry),
        token=_text(where, entry, "token"),
    )
    if writer.certificate is None and not writer.networks and writer.token is None:
        raise ConfigurationError(
            f"{where}: give certificate, address or token (nobody at all: pause the queue)"
        )
    return writer


def _text(where: str, entry: Mapping[str, object], key: str) -> str | None:
    value = entry.get(key)
    if value is not None and (not isinstance(value, str) or not value):
        raise ConfigurationError(f"{where}: {key} is a text, got {value!r}")
    return value


def _networks(where: str, entry: Mapping[str, object]) -> tuple[_Network, ...]:
    if "address" not in entry:
        return ()
    given = entry["address"]
    texts = given if isinstance(given, list) else [given]
    if not texts:
        raise ConfigurationError(f"{where}: address is an empty list: it would let no sender in")
    found: list[_Network] = []
    for text in texts:
        if not isinstance(text, str):  # A number would be an address too.
            raise ConfigurationError(f"{where}: {_ADDRESS}: got {text!r}")
        try:
            found.append(ipaddress.ip_network(text))
        except ValueError as error:
            raise ConfigurationError(f"{where}: {_ADDRESS}: {error}") from None
    return tuple(found)
