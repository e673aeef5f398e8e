"""The namespaces of [MC-MQSRM] 2.2.3 and 2.2.7. Elements count only in theirs."""

from __future__ import annotations

SOAP = "http://schemas.xmlsoap.org/soap/envelope/"
"""``se``: SOAP 1.1."""
ROUTING = "http://schemas.xmlsoap.org/rp/"
"""``rp``: WS-Routing, of which SRMP uses ``path``."""
SRMP = "http://schemas.xmlsoap.org/srmp/"
"""``srmp``."""
MSMQ = "msmq.namespace.xml"
"""``msmq``: not a URI with a scheme, but that is what Windows writes."""
SIGNATURE = "http://www.w3.org/2000/02/xmldsig#"
"""The draft of February 2000 and not the recommendation of 2000/09 ([MC-MQSRM] 2.2.7)."""


def qualified(namespace: str, name: str) -> str:
    """``{namespace}name``, the way lxml and ElementTree print a name."""
    return f"{{{namespace}}}{name}"


MUST_UNDERSTAND = qualified(SOAP, "mustUnderstand")
"""The attribute that forbids to ignore a header entry (SOAP 1.1 section 4.2.3)."""
