"""Parse ``[[redirect]]`` and ``[[receipt_url]]`` of the configuration file.

Only the TOML file has these tables (INTERFACE.md section 2).

    [[redirect]]
    direction = "out"                                # or "in"
    from = "http://orders.example/msmq/*"
    to = "http://gateway.example:8080/"              # out: where to connect to; in: the queue
    except = ["http://orders.example/msmq/private$/direct"]

    [[receipt_url]]
    from = "http://orders.example/msmq/*"            # without it: the default for all
    to = "http://qm.example/msmq/private$/order_queue$"
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from srmp_spark.errors import ConfigurationError
from srmp_spark.names import parse_queue_url
from srmp_spark.srmp.forward.redirection import (
    NO_REDIRECTIONS,
    ReceiptUrls,
    Redirection,
    Redirections,
    UrlRule,
)

RULES_MAX = 1_000
"""Most entries of each table; more is a configuration error.

All entries are compared with each new URL text in a ``<to>``.
"""


class Redirects(NamedTuple):
    """The redirections of ``[[redirect]]``, inbound and outbound."""

    inbound: Redirections = NO_REDIRECTIONS
    outbound: Redirections = NO_REDIRECTIONS


NO_REDIRECTS = Redirects()


def parse_redirects(where: str, value: Any) -> Redirects:  # noqa: ANN401  # a TOML value may be anything
    """Parse the entries of ``[[redirect]]`` from their TOML values.

    ``where`` names the key in errors. Raises :class:`ConfigurationError`, which names the wrong
    entry, and for more than RULES_MAX entries.
    """
    directions: dict[str, list[Redirection]] = {"in": [], "out": []}
    for place, entry in _entries(where, "redirect", value):
        _check_keys(
            entry, {"direction", "from", "to", "except"}, {"direction", "from", "to"}, place
        )
        direction = entry["direction"]
        if direction not in directions:
            raise ConfigurationError(f'{place}: direction is "in" or "out", got {direction!r}')
        exceptions = entry.get("except", [])
        if isinstance(exceptions, str):
            exceptions = [exceptions]
        if not isinstance(exceptions, list):
            raise ConfigurationError(f"{place}: except is a list of URLs")
        source, to = _text(entry, "from", place), _text(entry, "to", place)
        try:
            if direction == "in":
                parse_queue_url(to)
            found = Redirection.parse(
                source, to, [_checked(each, "except", place) for each in exceptions]
            )
        except (ConfigurationError, ValueError) as error:
            raise ConfigurationError(f"{place}: {error}") from None
        directions[direction].append(found)
    return Redirects(Redirections(tuple(directions["in"])), Redirections(tuple(directions["out"])))


def parse_receipt_urls(where: str, value: Any) -> ReceiptUrls:  # noqa: ANN401  # a TOML value may be anything
    """Parse the entries of ``[[receipt_url]]`` from their TOML values.

    ``where`` names the key in errors. Raises :class:`ConfigurationError`, which names the wrong
    entry, and for more than RULES_MAX entries or two defaults.
    """
    urls: list[tuple[UrlRule | None, str]] = []
    for place, entry in _entries(where, "receipt_url", value):
        _check_keys(entry, {"from", "to"}, {"to"}, place)
        try:
            to = _text(entry, "to", place)
            parse_queue_url(to)
            urls.append(
                (UrlRule.parse(_text(entry, "from", place)) if "from" in entry else None, to)
            )
        except (ConfigurationError, ValueError) as error:
            raise ConfigurationError(f"{place}: {error}") from None
    if sum(source is None for source, _ in urls) > 1:
        raise ConfigurationError(f"{where}: two without from; there is one default")
    return ReceiptUrls(tuple(urls))


def _entries(where: str, name: str, entries: object) -> list[tuple[str, dict[str, object]]]:
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ConfigurationError(f"{where} is a list of tables: write [[{name}]]")
    if len(entries) > RULES_MAX:
        raise ConfigurationError(f"{where}: at most {RULES_MAX}")
    return [(f"{where}, number {number}", entry) for number, entry in enumerate(entries, 1)]


def _check_keys(entry: Mapping[str, object], known: set[str], needed: set[str], place: str) -> None:
    for key in entry:
        if key not in known:
            raise ConfigurationError(
                f"{place}: unknown key {key!r}; known: {', '.join(sorted(known))}"
            )
    for key in sorted(needed - entry.keys()):
        raise ConfigurationError(f"{place}: {key} is missing")


def _text(entry: Mapping[str, object], key: str, place: str) -> str:
    return _checked(entry[key], key, place)


def _checked(value: object, key: str, place: str) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise ConfigurationError(f"{place}: {key} is a URL, got {value!r}")
    return value
