r"""Read the subscriptions of the configuration file: ``[[subscription]]``.

[[subscription]]
host = "windows.example"          # or HOST:PORT; without a port its endpoint mapper is asked
queue = 'private$\orders'         # or ;JOURNAL, a subqueue, deadletter$, a whole format name
mode = "move"                     # or "copy"
to = "private$/orders"            # a local queue, not transactional;
                                  # default private$/orders@windows.example
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from srmp_spark.errors import ConfigurationError
from srmp_spark.mqrr.queue_format import QueueFormat, queue_format_for
from srmp_spark.mqrr.remote_host import RemoteHost, parse_remote_host
from srmp_spark.names import canonical_queue_name
from srmp_spark.private_files import refuse_open_secret
from srmp_spark.signing_in.credentials import Credentials, credentials

SUBSCRIPTIONS_MAX = 1_000
"""Most subscriptions, because each has a connection and a task. More are refused."""
MODES = ("move", "copy")
KEYS = (
    "host",
    "queue",
    "mode",
    "to",
    "username",
    "password_file",
    "domain",
    "auth_protocol",
    "auth_level",
)
PASSWORD_MAX = 4_096
"""Most bytes that are read from a password file.

Passwords of Windows have at most 256 characters.
"""


class Subscription(NamedTuple):
    """One entry ``[[subscription]]``: messages of a remote queue become messages of a local one."""

    host: RemoteHost
    queue: str
    """Name of the remote queue as it was written, with backslashes."""
    mode: Literal["move", "copy"]
    to: str
    credentials: Credentials

    @property
    def name(self) -> str:
        """Return the name under which the subscription is stored: host, port if given, and queue.

        The queue's part is in lower case. A change of any other value keeps the stored position, so
        the remote queue is not read from its beginning again.
        """
        return _name(self.host, self.queue)

    @property
    def format(self) -> QueueFormat:
        """Return the queue format of the remote queue to open.

        Raises :class:`ConfigurationError` if the name of the queue is invalid.
        """
        return queue_format_for(self.host.name, self.queue)


def _name(host: RemoteHost, queue: str) -> str:
    return f"{host.text}\\{queue.lower()}"


def subscription_name(where: str, host: object, queue: object) -> str:
    """Return the :attr:`Subscription.name` of the subscription with this host and queue.

    Raises :class:`ConfigurationError` if host or queue is missing, or the host is invalid.
    ``where`` names the entry in the error's text.
    """
    if not isinstance(host, str) or not isinstance(queue, str) or not queue:
        raise ConfigurationError(f"{where}: host and queue are missing")
    return _name(parse_remote_host(where, host), queue.replace("/", "\\"))


def parse_subscriptions(where: str, value: Any) -> tuple[Subscription, ...]:  # noqa: ANN401
    """Return the subscriptions in ``value``, the TOML value of the key ``subscription``.

    ``where`` names the key in errors. Raises :class:`ConfigurationError` if an entry is invalid,
    two have the same queue or ``to``, or there are more than SUBSCRIPTIONS_MAX.
    """
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise ConfigurationError(f"{where}: expected tables, [[subscription]] with host and queue")
    if len(value) > SUBSCRIPTIONS_MAX:
        raise ConfigurationError(
            f"{where}: SUBSCRIPTIONS_MAX is {SUBSCRIPTIONS_MAX}, got {len(value)}"
        )
    found = tuple(parse_subscription(where, entry) for entry in value)
    for what, names in (
        ("queue", [each.name for each in found]),
        ("to", [each.to for each in found]),
    ):
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ConfigurationError(f"{where}: {what} {twice!r} stands there twice")
    return found


def parse_subscription(
    where: str, entry: Mapping[str, object], password: str | None = None
) -> Subscription:
    """Return the subscription that one entry describes.

    If ``password`` is given, it is used instead of the entry's password file. ``where`` names the
    entry in errors. Raises :class:`ConfigurationError` if the entry is invalid or its password file
    cannot be read.
    """
    texts: dict[str, str] = {}
    for key, value in entry.items():
        if key not in KEYS:
            close = difflib.get_close_matches(key, KEYS, 1, 0.5)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(KEYS)}"
            raise ConfigurationError(f"{where}: unknown key {key!r}; {hint}")
        if not isinstance(value, str) or not value:
            raise ConfigurationError(f"{where}: {key} is a text, got {value!r}")
        texts[key] = value
    for key in ("host", "queue"):
        if key not in texts:
            raise ConfigurationError(f"{where}: {key} is missing")
    mode = texts.get("mode", "move")
    if mode not in MODES:
        raise ConfigurationError(f"{where}: mode is move or copy, got {mode!r}")
    host = parse_remote_host(where, texts["host"])
    signs_in = credentials(
        where,
        host,
        level=texts.get("auth_level"),
        protocol=texts.get("auth_protocol"),
        user=texts.get("username"),
        password=_password(where, texts) if password is None else password,
        domain=texts.get("domain"),
    )
    queue = texts["queue"].replace("/", "\\")
    to = _to(where, texts, host, queue)
    subscription = Subscription(host, queue, cast('Literal["move", "copy"]', mode), to, signs_in)
    try:
        _ = subscription.format
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from None
    return subscription


def _password(where: str, entry: Mapping[str, str]) -> str | None:
    """Return the password from the file that the entry names, or ``None`` if it names none.

    The configuration itself holds no password, because configuration files get into backups and
    tickets. Raises :class:`ConfigurationError` if the file cannot be read, or if other users may
    read it.
    """
    if "password_file" not in entry:
        return None
    path = Path(entry["password_file"])
    try:
        refuse_open_secret(f"{where}, password_file", path)
        with path.open("rb") as file:
            return file.read(PASSWORD_MAX).decode().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{where}: password_file {path}: {error}") from None


def _to(where: str, entry: Mapping[str, str], host: RemoteHost, queue: str) -> str:
    """Return the name of the local queue of an entry, in canonical form.

    The entry's ``to`` is used, by default ``private$/orders@HOST`` for the remote queue ``orders``,
    and ``private$/orders.journal@HOST`` for its journal. Raises :class:`ConfigurationError` if the
    name is invalid.
    """
    given = entry.get("to")
    if given is None:
        name = queue.rpartition("\\")[2] if "=" in queue else queue
        at = host.name if host.port is None else f"{host.name}.{host.port}"
        base = name.replace(";", ".").removeprefix("private$\\").removeprefix("PRIVATE$\\")
        given = f"private$/{base}@{at}"
    try:
        return canonical_queue_name(given)
    except ValueError as error:
        raise ConfigurationError(f"{where}: to {given!r} is no name of a queue: {error}") from None
