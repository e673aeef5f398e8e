"""Parse the settings of multicast: ``--pgm``, its related options, and ``[pgm_constants]``.

``[pgm_constants]`` is a table of the configuration file. The options are ``--pgm-interface`` and
``--pgm-ttl``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from srmp_spark.errors import ConfigurationError
from srmp_spark.pgm.settings import PgmReceiverSettings, PgmSourceSettings

LOOPBACK = "127.0.0.1"
TTL_DEFAULT = 1
"""Hops of multicast packets without ``--pgm-ttl``: the own network only.

The driver of Windows uses 255.
"""
IP_UDP_HEADERS = 28
IP_ALERT_HEADERS = 24
"""Octets before a PGM packet sent over raw IP: IPv4 with the Router Alert option.

``IP_UDP_HEADERS`` is the number for PGM over UDP: IPv4 and UDP.
"""


class Encapsulation(NamedTuple):
    """How PGM is sent over IP: ``raw`` or ``udp:PORT``."""

    udp_port: int | None
    """The one UDP port for all packets, or ``None`` for IP protocol 113, which Windows uses.

    There is one port because the source of OpenPGM listens on the port of the group alone.
    """

    @classmethod
    def parse(cls, text: str) -> Encapsulation:
        """Parse ``raw`` or ``udp:PORT``. Raises :class:`ValueError` for any other text."""
        word, colon, port = text.lower().partition(":")
        if text.lower() == "raw":
            return cls(None)
        if (
            word != "udp"
            or not colon
            or not port.isascii()
            or not port.isdigit()
            or not 0 < int(port) < 65_536
        ):
            raise ValueError("expected raw (IP protocol 113, what Windows speaks) or udp:PORT")
        return cls(int(port))

    @property
    def headers(self) -> int:
        """Return the most octets that precede the PGM packet in an IP datagram.

        Over raw IP these are the octets with the Router Alert option, which some packets lack.
        """
        return IP_ALERT_HEADERS if self.udp_port is None else IP_UDP_HEADERS

    def __str__(self) -> str:
        return "raw" if self.udp_port is None else f"udp:{self.udp_port}"


def ttl(text: str) -> int:
    """Parse a number of hops from 1 to 255. Raises :class:`ValueError` for any other text."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 255:
        raise ValueError("expected a number of hops from 1 to 255")
    return int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class PgmSettings:
    """All multicast settings of a queue manager."""

    encapsulation: Encapsulation
    interface: str = LOOPBACK
    """Name or IPv4 address of the network interface."""
    ttl: int = TTL_DEFAULT
    source: PgmSourceSettings = field(default_factory=PgmSourceSettings)
    receiver: PgmReceiverSettings = field(default_factory=PgmReceiverSettings)


class PgmConstants(NamedTuple):
    """The constants of [MC-MQSRM] 2.1.3.1 that ``[pgm_constants]`` sets, as (name, value) pairs.

    ``source`` holds those for sending, ``receiver`` those for receiving.
    """

    source: tuple[tuple[str, Any], ...] = ()
    receiver: tuple[tuple[str, Any], ...] = ()

    def source_settings(self) -> PgmSourceSettings:
        """Return the settings for sending, with defaults for constants that are not set.

        Raises :class:`ConfigurationError` if the constants contradict each other or are out of
        range.
        """
        return PgmSourceSettings(**dict(self.source))

    def receiver_settings(self) -> PgmReceiverSettings:
        """Return the settings for receiving, with defaults for constants that are not set.

        Raises :class:`ConfigurationError` if the constants contradict each other or are out of
        range.
        """
        return PgmReceiverSettings(**dict(self.receiver))


NO_CONSTANTS = PgmConstants()


def parse_pgm_constants(where: str, value: object) -> PgmConstants:
    """Parse the TOML table ``[pgm_constants]``, and check the values together.

    Raises :class:`ConfigurationError` for an unknown name or an invalid value; ``where`` begins the
    message.
    """
    if not isinstance(value, dict):
        raise ConfigurationError(f"{where}: expected a table, [pgm_constants]")
    ends: tuple[list[tuple[str, Any]], list[tuple[str, Any]]] = ([], [])
    defaults = tuple(
        {each.name: getattr(kind(), each.name) for each in fields(kind)}
        for kind in (PgmSourceSettings, PgmReceiverSettings)
    )
    for name, given in value.items():
        known = [place for place, names in enumerate(defaults) if name in names]
        if not known:
            names = ", ".join(sorted({*defaults[0], *defaults[1]}))
            raise ConfigurationError(f"{where}: unknown constant {name!r}; known: {names}")
        for place in known:
            ends[place].append((name, _like(defaults[place][name], given, f"{where}: {name}")))
    found = PgmConstants(tuple(ends[0]), tuple(ends[1]))
    found.source_settings()
    found.receiver_settings()
    return found


def _like(default: object, given: object, where: str) -> object:
    """Return ``given`` converted to the type of ``default``.

    A whole number is accepted for a number, and a list of two numbers for a tuple. Raises
    :class:`ConfigurationError` if ``given`` has another type; ``where`` begins the message.
    """
    if isinstance(default, bool):
        if isinstance(given, bool):
            return given
    elif isinstance(default, tuple):
        if isinstance(given, list) and len(given) == 2 and all(_is_number(each) for each in given):
            return tuple(float(each) for each in given)
    elif isinstance(default, int):
        if isinstance(given, int) and not isinstance(given, bool):
            return given
    elif _is_number(given):
        # The call of _is_number has just checked the type.
        return float(given)  # type: ignore[arg-type]
    expected = {bool: "true or false", int: "a whole number", tuple: "two numbers"}.get(
        type(default), "a number"
    )
    raise ConfigurationError(f"{where}: expected {expected}, got {given!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
