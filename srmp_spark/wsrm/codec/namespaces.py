"""Define the versions of SOAP, WS-Addressing and WS-ReliableMessaging as enums.

The value of each version is its namespace URI.
"""

from __future__ import annotations

from enum import Enum

XML = "http://www.w3.org/XML/1998/namespace"
FLOW_CONTROL = "http://schemas.microsoft.com/ws/2006/05/rm"
"""Namespace of flow control, for all versions of WS-ReliableMessaging ([MS-WSRVCRM] 2.2.3)."""
MAKE_CONNECTION = "http://docs.oasis-open.org/ws-rx/wsmc/200702"
MAKE_CONNECTION_ANONYMOUS = f"{MAKE_CONNECTION}/anonymous?id="
"""Beginning of an address that can only be polled. Text of the client's choice follows."""


class SoapVersion(Enum):
    """Versions of SOAP, by their namespaces."""

    V1_1 = "http://schemas.xmlsoap.org/soap/envelope/"
    V1_2 = "http://www.w3.org/2003/05/soap-envelope"

    @property
    def media_type(self) -> str:
        """Return the media type of an HTTP message that carries this version."""
        return "text/xml" if self is SoapVersion.V1_1 else "application/soap+xml"


class AddressingVersion(Enum):
    """Versions of WS-Addressing, by their namespaces."""

    V2004_08 = "http://schemas.xmlsoap.org/ws/2004/08/addressing"
    V2005_08 = "http://www.w3.org/2005/08/addressing"

    @property
    def anonymous(self) -> str:
        """Return the address that means "in the HTTP answer of the same exchange"."""
        return (
            f"{self.value}/role/anonymous"
            if self is AddressingVersion.V2004_08
            else f"{self.value}/anonymous"
        )

    @property
    def none(self) -> str:
        """Return the address to which nothing is ever sent.

        WS-Addressing 2004/08 has no such address; the result is ``""``.
        """
        return "" if self is AddressingVersion.V2004_08 else f"{self.value}/none"

    @property
    def fault(self) -> str:
        """Return ``wsa:Action`` of a fault that has no action of its own."""
        return f"{self.value}/fault"


class RmVersion(Enum):
    """Versions of WS-ReliableMessaging, by their namespaces.

    1.2 looks like 1.1 on the network.
    """

    V1_0 = "http://schemas.xmlsoap.org/ws/2005/02/rm"
    V1_1 = "http://docs.oasis-open.org/ws-rx/wsrm/200702"

    def action(self, name: str) -> str:
        """Return ``wsa:Action`` of the protocol message that is named ``name``."""
        return f"{self.value}/{name}"


SOAP_OF = {version.value: version for version in SoapVersion}
ADDRESSING_OF = {version.value: version for version in AddressingVersion}
RM_OF = {version.value: version for version in RmVersion}
"""Versions of WS-ReliableMessaging by their namespaces."""


def qualified(namespace: str, name: str) -> str:
    """Return ``name`` with its namespace in Clark's notation: ``{namespace}name``."""
    return f"{{{namespace}}}{name}"


def split(tag: str) -> tuple[str, str]:
    """Return (namespace, local name) of a tag that :func:`qualified` made.

    The namespace is empty if the tag has none.
    """
    namespace, brace, name = tag.rpartition("}")
    return (namespace[1:], name) if brace else ("", tag)
