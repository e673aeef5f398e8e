"""The namespaces of [MC-MQSRM] 2.2.3 and 2.2.7. An element counts only in its own namespace."""

from __future__ import annotations

SOAP = "http://schemas.xmlsoap.org/soap/envelope/"
"""Namespace ``se`` of SOAP 1.1."""
ROUTING = "http://schemas.xmlsoap.org/rp/"
"""Namespace ``rp``: WS-Routing, from which SRMP uses ``path``."""
SRMP = "http://schemas.xmlsoap.org/srmp/"
"""Namespace ``srmp`` of SRMP's own elements."""
MSMQ = "msmq.namespace.xml"
"""Namespace ``msmq``. The name has no URI scheme, but Windows writes it in this form."""
SIGNATURE = "http://www.w3.org/2000/02/xmldsig#"
"""Namespace of signatures: the draft of February 2000 and not the recommendation of 2000/09
([MC-MQSRM] 2.2.7).
"""


def qualified(namespace: str, name: str) -> str:
    """Return ``{namespace}name``, the form in which lxml and ElementTree write a name."""
    return f"{{{namespace}}}{name}"


MUST_UNDERSTAND = qualified(SOAP, "mustUnderstand")
"""Attribute that forbids a reader to ignore a header entry (SOAP 1.1 section 4.2.3)."""
