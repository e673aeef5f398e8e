"""Choose the versions of the protocols in which a message is sent.

The versions are read from the columns of a sink's row, or from the one text in which the outbox
stores them.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from srmp_spark.errors import ConfigurationError
from srmp_spark.wsrm.codec.namespaces import AddressingVersion, RmVersion, SoapVersion

_T = TypeVar("_T")

RM_VERSIONS = {"1.0": RmVersion.V1_0, "1.1": RmVersion.V1_1, "1.2": RmVersion.V1_1}
"""Versions by the values of the column ``wsrm_version``.

1.2 looks like 1.1 on the network.
"""
SOAP_VERSIONS = {"1.1": SoapVersion.V1_1, "1.2": SoapVersion.V1_2}
"""Versions by the values of the column ``soap_version``."""
ADDRESSING_VERSIONS = {"2004/08": AddressingVersion.V2004_08, "2005/08": AddressingVersion.V2005_08}
"""Versions by the values of the column ``wsa_version``."""


class Versions(NamedTuple):
    """The three versions of the protocols in which one sequence is sent."""

    rm: RmVersion = RmVersion.V1_1
    soap: SoapVersion = SoapVersion.V1_2
    addressing: AddressingVersion = AddressingVersion.V2005_08

    @classmethod
    def of(cls, wsrm: str | None, soap: str | None, wsa: str | None) -> Versions:
        """Return the versions that the columns of a sink's row name.

        ``None`` or an empty text means the default: 1.1, 1.2 and 2005/08. Raises
        :class:`ConfigurationError` if a value is unknown, or two versions do not go together.
        """
        found = cls(
            _one("wsrm_version", RM_VERSIONS, wsrm or "1.1"),
            _one("soap_version", SOAP_VERSIONS, soap or "1.2"),
            _one("wsa_version", ADDRESSING_VERSIONS, wsa or "2005/08"),
        )
        if found.rm is RmVersion.V1_1 and found.addressing is AddressingVersion.V2004_08:
            raise ConfigurationError("wsa_version 2004/08 goes with wsrm_version 1.0 alone")
        return found

    @classmethod
    def load(cls, text: str) -> Versions:
        """Return the versions that :meth:`dump` wrote as ``text``.

        A text without commas is the version of SOAP alone, and the others are the defaults. Raises
        :class:`ConfigurationError` if ``text`` is anything else.
        """
        wsrm, soap, wsa = text.split(",") if text.count(",") == 2 else ("", text, "")
        return cls.of(wsrm, soap, wsa)

    def dump(self) -> str:
        """Return the versions as a text for the outbox, such as ``1.1,1.2,2005/08``."""
        return ",".join(
            (
                _name(RM_VERSIONS, self.rm),
                _name(SOAP_VERSIONS, self.soap),
                _name(ADDRESSING_VERSIONS, self.addressing),
            )
        )


def _one(name: str, known: dict[str, _T], text: str) -> _T:
    found = known.get(text)
    if found is None:
        raise ConfigurationError(f"{name} is {text[:40]!r}; known: {', '.join(known)}")
    return found


def _name(known: dict[str, _T], value: _T) -> str:
    return next(text for text, each in known.items() if each is value)
