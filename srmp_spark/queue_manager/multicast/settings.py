"""``--pgm``, ``--pgm-interface``, ``--pgm-ttl`` and the table ``[pgm_constants]`` of the configuration file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

from srmp_spark.errors import ConfigurationError
from srmp_spark.pgm.settings import ReceiverSettings, SourceSettings

LOOPBACK = "127.0.0.1"
TTL_DEFAULT = 1
"""The own network and no farther, unless told otherwise. Windows' driver has 255."""
IP_UDP_HEADERS = 28
IP_ALERT_HEADERS = 24
"""Octets before a PGM packet: IPv4 and UDP; raw, IPv4 with the Router Alert option."""


class Encapsulation(NamedTuple):
    """How PGM goes over IP: ``raw`` or ``udp:PORT``."""

    udp_port: int | None
    """One port for all: OpenPGM's source listens on that of the group alone. ``None``: IP protocol 113, as Windows has it."""

    @classmethod
    def parse(cls, text: str) -> Encapsulation:
        """Raises :class:`ValueError`."""
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
        """Octets of a datagram before the PGM packet."""
        return IP_ALERT_HEADERS if self.udp_port is None else IP_UDP_HEADERS

    def __str__(self) -> str:
        return "raw" if self.udp_port is None else f"udp:{self.udp_port}"


def ttl(text: str) -> int:
    """Raises :class:`ValueError`."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 255:
        raise ValueError("expected a number of hops from 1 to 255")
    return int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class PgmSettings:
    """Everything about multicast that a queue manager was told."""

    encapsulation: Encapsulation
    interface: str = LOOPBACK
    """Name or address."""
    ttl: int = TTL_DEFAULT
    source: SourceSettings = field(default_factory=SourceSettings)
    receiver: ReceiverSettings = field(default_factory=ReceiverSettings)

    def dump(self) -> dict[str, Any]:
        """As JSON, for the sender process and the gateway."""
        return {
            "encapsulation": str(self.encapsulation),
            "interface": self.interface,
            "ttl": self.ttl,
            "source": asdict(self.source),
            "receiver": asdict(self.receiver),
        }

    @classmethod
    def load(cls, dumped: Mapping[str, Any]) -> PgmSettings:
        """Return what :meth:`dump` wrote."""
        back_off = tuple(dumped["receiver"]["nak_rb_ivl"])  # JSON has lists alone
        return cls(
            encapsulation=Encapsulation.parse(dumped["encapsulation"]),
            interface=dumped["interface"],
            ttl=dumped["ttl"],
            source=SourceSettings(**dumped["source"]),
            receiver=ReceiverSettings(**{**dumped["receiver"], "nak_rb_ivl": back_off}),
        )


class PgmConstants(NamedTuple):
    """``[pgm_constants]``: what was set of the constants of [MC-MQSRM] 2.1.3.1, by the names of the settings."""

    source: tuple[tuple[str, Any], ...] = ()
    receiver: tuple[tuple[str, Any], ...] = ()

    def source_settings(self) -> SourceSettings:
        """Raises :class:`ConfigurationError` for what makes no sense."""
        return SourceSettings(**dict(self.source))

    def receiver_settings(self) -> ReceiverSettings:
        """Raises :class:`ConfigurationError` for what makes no sense."""
        return ReceiverSettings(**dict(self.receiver))


NO_CONSTANTS = PgmConstants()


def parse_pgm_constants(where: str, value: object) -> PgmConstants:
    """Read the table ``[pgm_constants]``.

    Raises :class:`ConfigurationError` for an unknown name or a value that makes no sense.
    """
    if not isinstance(value, dict):
        raise ConfigurationError(f"{where}: expected a table, [pgm_constants]")
    ends: tuple[list[tuple[str, Any]], list[tuple[str, Any]]] = ([], [])
    defaults = tuple(
        {each.name: getattr(kind(), each.name) for each in fields(kind)}
        for kind in (SourceSettings, ReceiverSettings)
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
    """``given`` in the type of ``default``."""
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
        return float(given)  # type: ignore[arg-type]  # just checked
    expected = {bool: "true or false", int: "a whole number", tuple: "two numbers"}.get(
        type(default), "a number"
    )
    raise ConfigurationError(f"{where}: expected {expected}, got {given!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
