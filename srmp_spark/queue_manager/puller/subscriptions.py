"""Which remote queues are read: ``[[subscription]]`` of the configuration file.

[[subscription]]
host = "windows.example"          # or HOST:PORT; without a port its endpoint mapper is asked
queue = 'private$\\orders'         # or ;JOURNAL, a subqueue, deadletter$, or a whole format name
mode = "move"                     # or "copy"
to = "private$/orders"            # a queue of ours, not transactional; default private$/orders@windows.example
"""

from __future__ import annotations

import difflib
import ipaddress
from typing import Any, Literal, NamedTuple, cast

from srmp_spark.errors import ConfigurationError
from srmp_spark.mqrr.queue_format import QueueFormat, queue_format_for
from srmp_spark.names import canonical_queue_name

SUBSCRIPTIONS_MAX = 1_000
"""Each has a connection and a task."""
MODES = ("move", "copy")
_KEYS = ("host", "queue", "mode", "to", "auth_level")


class Subscription(NamedTuple):
    """An entry."""

    host: str
    port: int | None
    """``None``: what the endpoint mapper of the host says."""
    queue: str
    """As it was written."""
    mode: Literal["move", "copy"]
    to: str

    @property
    def name(self) -> str:
        """By what it is stored: host, port and queue, and nothing that may be changed without reading everything anew."""
        host = self.host if self.port is None else f"{self.host}:{self.port}"
        return f"{host}\\{self.queue.lower()}"

    @property
    def format(self) -> QueueFormat:
        """What is opened."""
        return queue_format_for(self.host, self.queue)


def parse_subscriptions(where: str, value: Any) -> tuple[Subscription, ...]:  # noqa: ANN401  # a TOML value may be anything
    """The entries as TOML has them. Raises :class:`ConfigurationError`."""
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise ConfigurationError(f"{where}: expected tables, [[subscription]] with host and queue")
    if len(value) > SUBSCRIPTIONS_MAX:
        raise ConfigurationError(f"{where}: SUBSCRIPTIONS_MAX is {SUBSCRIPTIONS_MAX}, got {len(value)}")
    found = tuple(_parse(where, entry) for entry in value)
    for what, names in (("queue", [each.name for each in found]), ("to", [each.to for each in found])):
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ConfigurationError(f"{where}: {what} {twice!r} stands there twice")
    return found


def _parse(where: str, entry: dict[str, Any]) -> Subscription:
    for key, value in entry.items():
        if key not in _KEYS:
            close = difflib.get_close_matches(key, _KEYS, 1, 0.5)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(_KEYS)}"
            raise ConfigurationError(f"{where}: unknown key {key!r}; {hint}")
        if not isinstance(value, str) or not value:
            raise ConfigurationError(f"{where}: {key} is a text, got {value!r}")
    for key in ("host", "queue"):
        if key not in entry:
            raise ConfigurationError(f"{where}: {key} is missing")
    mode = entry.get("mode", "move")
    if mode not in MODES:
        raise ConfigurationError(f"{where}: mode is move or copy, got {mode!r}")
    host, port = _host(where, entry["host"])
    if entry.get("auth_level", "none") != "none" or not ("auth_level" in entry or _is_loopback(host)):
        raise ConfigurationError(
            f'{where}: signing in is not in this version: give auth_level = "none" if {host} asks for nothing (Windows does)'
        )
    queue = entry["queue"].replace("/", "\\")
    subscription = Subscription(host, port, queue, cast('Literal["move", "copy"]', mode), _to(where, entry, host, port, queue))
    try:
        _ = subscription.format
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from None
    return subscription


def _host(where: str, text: str) -> tuple[str, int | None]:
    host, colon, port = text.rpartition(":")
    if not colon or "]" in port:
        host, port = text, ""
    elif not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigurationError(f"{where}: host is HOST or HOST:PORT, got {text!r}")
    host = host.strip("[]").lower()
    if not host or any(sign in host for sign in "/\\@ ?#;"):
        raise ConfigurationError(f"{where}: host is HOST or HOST:PORT, got {text!r}")
    return host, int(port) if port else None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _to(where: str, entry: dict[str, Any], host: str, port: int | None, queue: str) -> str:
    """The queue of ours: ``private$/orders@HOST``, of a journal ``private$/orders.journal@HOST``."""
    given = entry.get("to")
    if given is None:
        name = queue.rpartition("\\")[2] if "=" in queue else queue
        at = f"{host}.{port}" if port is not None else host
        base = name.replace(";", ".").removeprefix("private$\\").removeprefix("PRIVATE$\\")
        given = f"private$/{base}@{at}"
    try:
        return canonical_queue_name(given)
    except ValueError as error:
        raise ConfigurationError(f"{where}: to {given!r} is no name of a queue: {error}") from None
