"""Parse API tokens: who a caller is, and what it may do with which queues (``[[token]]``).

INTERFACE.md section 7 describes them.

    [[token]]
    name = "orders-ingest"                    # shown in logs and errors; the token itself never is
    file = "/etc/srmp-spark/ingest.token"     # or sha256 = "…": what `sha256sum` prints for the
                                              # token without a line end
    queues = ["private$/orders", "private$/eu.*"]   # names or globs; default ["*"]
    verbs = ["browse", "read"]                # see :data:`Verb`: none implies another

The one token of ``--token-file`` or ``SRMP_SPARK_TOKEN`` is named ``admin`` and may do everything.

Builds before the six verbs knew three, and their ``read`` allowed what ``metrics``, ``browse``,
``read`` and ``decide`` allow today. A configuration of such a build keeps its meaning: an entry
that has ``read`` and none of the three new verbs has all four (:data:`BROAD_READ`). ``serve`` logs
``token.broad`` for such an entry, and names the verbs to write.

Only digests are kept, and only digests are compared: in constant time, with every token. So neither
the time nor a dump of the memory reveals a token. Without any token every client that can connect
may do everything, so that is allowed on loopback only.
"""

from __future__ import annotations

import difflib
import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from srmp_spark.errors import ConfigurationError
from srmp_spark.names import queue_matches
from srmp_spark.private_files import refuse_open_secret
from srmp_spark.queue_manager.trust.queue_patterns import parse_pattern

Verb = Literal["metrics", "browse", "read", "decide", "enqueue", "admin"]
"""Rights of an API token.

``metrics``: the numbers of ``/metrics``. ``browse``: rows with their bodies, ranges and marks;
nothing is received. ``read``: receive rows as a consumer other than ``default``. ``decide``:
receive or reject rows as the consumer ``default``, which decides the receipts. ``enqueue``: put
messages into queues or the outbox. ``admin``: create, purge, pause, repair.
"""
VERBS: tuple[Verb, ...] = get_args(Verb)
BROAD_READ: frozenset[Verb] = frozenset(("metrics", "browse", "read", "decide"))
"""The verbs of an entry that has ``read`` and none of the verbs that were added later."""

TOKENS_MAX = 1_000
"""Most API tokens; more is a configuration error. Each call is compared with all of them."""
TOKEN_LENGTH_MIN = 16
"""Least characters of a token. A shorter one is refused, because it can be guessed."""
TOKEN_LENGTH_MAX = 4_096
"""Most characters of a token.

A longer one is refused, because it does not fit into a header everywhere.
"""
NAME_LENGTH_MAX = 64
"""Most characters of a token's name, which is written to log lines. A longer one is refused."""
EVERYTHING = "*"
"""Value in ``queues`` that means every queue, also the queue manager's own ones, and everything
that is no queue: outgoing messages, metrics. No other glob means that.
"""
ADMIN = "admin"
"""Name of the token of ``--token-file``."""

_KEYS = ("name", "file", "sha256", "queues", "verbs")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]*")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """One API token: its name, the digest of its secret, and its rights."""

    name: str
    digest: bytes = field(repr=False)
    """SHA-256 of the secret. It is in no repr, because a reader of the digest could test guesses.
    """
    queues: tuple[str, ...] = (EVERYTHING,)
    verbs: frozenset[Verb] = frozenset(VERBS)
    is_broad: bool = False
    """Whether the entry has ``read`` in its old meaning (:data:`BROAD_READ`)."""

    def allows(self, verb: Verb, queue: str) -> bool:
        """Return whether the token has the right ``verb`` to ``queue``, a canonical name."""
        return verb in self.verbs and self.is_for(queue)

    def allows_all(self, verb: Verb) -> bool:
        """Return whether the token has the right ``verb`` to every queue.

        Then it also has it to everything that is no queue.
        """
        return verb in self.verbs and self.is_for_all

    def is_for(self, queue: str) -> bool:
        """Return whether ``queues`` of the token names or matches ``queue``, a canonical name.

        Its verbs are not compared.
        """
        return self.is_for_all or queue_matches(queue, self.queues)

    @property
    def is_for_all(self) -> bool:
        """Return whether the token is for every queue and everything that is no queue.

        Its verbs are not compared.
        """
        return EVERYTHING in self.queues


class Tokens:
    """All API tokens of a configuration."""

    def __init__(self, tokens: Iterable[Token]) -> None:
        self._tokens = tuple(tokens)

    def __bool__(self) -> bool:
        return bool(self._tokens)

    def __repr__(self) -> str:
        return f"<Tokens {[token.name for token in self._tokens]}>"

    def broad(self) -> list[Token]:
        """Return the tokens whose ``read`` has its old meaning."""
        return [token for token in self._tokens if token.is_broad]

    def named(self, name: str) -> Token | None:
        """Return the token called ``name``, or ``None`` if there is none."""
        return next((token for token in self._tokens if token.name == name), None)

    def find(self, authorization: str | bytes) -> Token | None:
        """Return the token whose secret an ``Authorization: Bearer …`` header has, or ``None``.

        The search takes the same time for a wrong secret as for a right one.
        """
        if isinstance(authorization, str):
            authorization = authorization.encode("latin-1", "replace")
        scheme, _, given = authorization.strip().partition(b" ")
        if scheme.lower() != b"bearer":
            return None
        digest = hashlib.sha256(given.strip()).digest()
        found = None
        for token in self._tokens:
            if hmac.compare_digest(digest, token.digest):
                found = token  # Continue, because the time must not reveal which one.
        return found


def broad_advice(token: Token) -> tuple[str, str]:
    """Return why the rights of a token of :meth:`Tokens.broad` are doubtful, and what to do."""
    verbs = ", ".join(f"'{verb}'" for verb in VERBS if verb in token.verbs)
    return (
        "verbs has read without browse, which means what it meant before the six verbs",
        f"write verbs = [{verbs}] to keep that; readers need browse, read",
    )


def check_token(token: str) -> str:
    """Check that the secret of a token can be used in an HTTP header, and return it.

    Raises :class:`ValueError` if it cannot, or if it has fewer than TOKEN_LENGTH_MIN or more than
    TOKEN_LENGTH_MAX characters.
    """
    if (
        len(token) < TOKEN_LENGTH_MIN
        or not token.isascii()
        or not token.isprintable()
        or " " in token
    ):
        raise ValueError(
            f"the token must be {TOKEN_LENGTH_MIN} or more printable ASCII characters "
            "without a space"
        )
    if len(token) > TOKEN_LENGTH_MAX:
        raise ValueError(f"the token must have at most {TOKEN_LENGTH_MAX} characters")
    return token


def read_token(path: str) -> str:
    """Read the secret of a token from a file, and return it without blanks around it.

    Raises :class:`ValueError`, which never quotes the secret, if the file cannot be read or the
    secret cannot be used. Raises :class:`ConfigurationError` if other users may read the file.
    """
    try:
        refuse_open_secret("a token", path)
        token = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(
            f"cannot be read: {getattr(error, 'strerror', None) or 'it is no text'}"
        ) from None
    return check_token(token)


def admin_token(token: str) -> Token:
    """Build the token of ``--token-file`` or ``SRMP_SPARK_TOKEN`` from its secret.

    It has all rights.
    """
    return Token(name=ADMIN, digest=hashlib.sha256(token.encode("ascii")).digest())


def parse_tokens(where: str, value: Any) -> tuple[Token, ...]:  # noqa: ANN401  # a TOML value may be anything
    """Parse the entries of ``[[token]]`` from their TOML values, and read their files.

    ``where`` names the key in errors. Raises :class:`ConfigurationError` for a wrong entry, a file
    that cannot be used, more than TOKENS_MAX entries, or two equal names or secrets.
    """
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise ConfigurationError(
            f"{where}: expected tables, [[token]] with name, file or sha256, queues and verbs"
        )
    if len(value) > TOKENS_MAX:
        raise ConfigurationError(f"{where}: TOKENS_MAX is {TOKENS_MAX}, got {len(value)}")
    tokens = tuple(_parse(where, entry) for entry in value)
    check_unlike(where, tokens)
    return tokens


def check_unlike(where: str, tokens: Sequence[Token]) -> None:
    """Raise :class:`ConfigurationError` if two tokens have the same name or the same secret."""
    for at, token in enumerate(tokens):
        for other in tokens[:at]:
            if token.name == other.name:
                raise ConfigurationError(
                    f"{where}: {token.name} is listed twice; give each token its own name"
                )
            if token.digest == other.digest:
                raise ConfigurationError(
                    f"{where}: {other.name} and {token.name} are the same token; create "
                    "another for one of them"
                )


def _parse(where: str, entry: Mapping[str, object]) -> Token:
    for key in entry:
        if key not in _KEYS:
            close = difflib.get_close_matches(key, _KEYS, 1, 0.5)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(_KEYS)}"
            raise ConfigurationError(f"{where}: unknown key {key!r}; {hint}")
    name = entry.get("name")
    if not isinstance(name, str) or len(name) > NAME_LENGTH_MAX or _NAME.fullmatch(name) is None:
        raise ConfigurationError(
            f"{where}: name is 1 to {NAME_LENGTH_MAX} letters, digits and . _ @ -, got "
            f"{name!r}; it stands in the log"
        )
    where = f"{where}, token {name}"
    verbs = _verbs(where, entry)
    is_broad = "read" in verbs and verbs.isdisjoint(BROAD_READ - {"read"})
    return Token(
        name=name,
        digest=_digest(where, entry),
        queues=_queues(where, entry),
        verbs=verbs | BROAD_READ if is_broad else verbs,
        is_broad=is_broad,
    )


def _digest(where: str, entry: Mapping[str, object]) -> bytes:
    if ("file" in entry) is ("sha256" in entry):
        raise ConfigurationError(
            f"{where}: give file or sha256, one of them (a token itself does not belong "
            "into this file)"
        )
    if "file" in entry:
        file = entry["file"]
        if not isinstance(file, str) or not file:
            raise ConfigurationError(f"{where}: file is the name of a file that holds the token")
        try:
            return hashlib.sha256(read_token(file).encode("ascii")).digest()
        except ValueError as error:
            raise ConfigurationError(f"{where}: the file {file}: {error}") from None
    given = entry["sha256"]
    # The error does not show the value, because it may be the token by mistake.
    if not isinstance(given, str) or _SHA256.fullmatch(given) is None:
        raise ConfigurationError(
            f"{where}: sha256 is 64 hexadecimal digits, as `printf %s TOKEN | sha256sum` "
            "prints them"
        )
    return bytes.fromhex(given)


def _queues(where: str, entry: Mapping[str, object]) -> tuple[str, ...]:
    given = entry.get("queues", [EVERYTHING])
    if not isinstance(given, list) or not given:
        raise ConfigurationError(
            f'{where}: queues is a list of names or globs, like ["private$/orders"], got {given!r}'
        )
    return tuple(parse_pattern(where, each) for each in given)


def _verbs(where: str, entry: Mapping[str, object]) -> frozenset[Verb]:
    given = entry.get("verbs")
    if not isinstance(given, list) or not given:
        raise ConfigurationError(f"{where}: verbs is a list of {', '.join(VERBS)}, got {given!r}")
    unknown = [verb for verb in given if verb not in VERBS]
    if unknown:
        raise ConfigurationError(f"{where}: unknown verb {unknown[0]!r}; known: {', '.join(VERBS)}")
    return frozenset(given)
