"""The versions of SOAP, WS-Addressing and WS-ReliableMessaging: each an enum whose members know their URIs."""

from __future__ import annotations

from enum import Enum

XML = "http://www.w3.org/XML/1998/namespace"
FLOW_CONTROL = "http://schemas.microsoft.com/ws/2006/05/rm"
"""[MS-WSRVCRM] 2.2.3, one for all versions of WS-ReliableMessaging."""
MAKE_CONNECTION = "http://docs.oasis-open.org/ws-rx/wsmc/200702"
MAKE_CONNECTION_ANONYMOUS = f"{MAKE_CONNECTION}/anonymous?id="
"""Before the client's own part of an address that can only be polled."""


class SoapVersion(Enum):
    """Its namespace."""

    V1_1 = "http://schemas.xmlsoap.org/soap/envelope/"
    V1_2 = "http://www.w3.org/2003/05/soap-envelope"

    @property
    def media_type(self) -> str:
        """Of an HTTP message that carries it."""
        return "text/xml" if self is SoapVersion.V1_1 else "application/soap+xml"


class AddressingVersion(Enum):
    """Its namespace."""

    V2004_08 = "http://schemas.xmlsoap.org/ws/2004/08/addressing"
    V2005_08 = "http://www.w3.org/2005/08/addressing"

    @property
    def anonymous(self) -> str:
        """The address that means: on the way back of this very exchange."""
        return (
            f"{self.value}/role/anonymous"
            if self is AddressingVersion.V2004_08
            else f"{self.value}/anonymous"
        )

    @property
    def none(self) -> str:
        """The address to which nothing is ever sent; 2004/08 has none."""
        return "" if self is AddressingVersion.V2004_08 else f"{self.value}/none"

    @property
    def fault(self) -> str:
        """The action of a fault that has no action of its own."""
        return f"{self.value}/fault"


class RmVersion(Enum):
    """Its namespace. 1.2 cannot be told from 1.1 on the wire."""

    V1_0 = "http://schemas.xmlsoap.org/ws/2005/02/rm"
    V1_1 = "http://docs.oasis-open.org/ws-rx/wsrm/200702"

    def action(self, name: str) -> str:
        """``wsa:Action`` of a message of the protocol."""
        return f"{self.value}/{name}"


MAKE_CONNECTION_ACTION = f"{MAKE_CONNECTION}/MakeConnection"

SOAP_OF = {version.value: version for version in SoapVersion}
ADDRESSING_OF = {version.value: version for version in AddressingVersion}
RM_OF = {version.value: version for version in RmVersion}
"""Namespace to version."""


def qualified(namespace: str, name: str) -> str:
    """A name in Clark's notation, as the reader tells it."""
    return f"{{{namespace}}}{name}"


def split(tag: str) -> tuple[str, str]:
    """(namespace, local name) of :func:`qualified`."""
    namespace, brace, name = tag.rpartition("}")
    return (namespace[1:], name) if brace else ("", tag)
