"""Write an endpoint reference as one text for the store, and read it again.

The text is the address alone, or XML if the endpoint has reference parameters.
"""

from __future__ import annotations

from srmp_spark.errors import LocalProtocolError, RemoteProtocolError
from srmp_spark.wsrm.codec.decoder import decode
from srmp_spark.wsrm.codec.elements import CreateSequence, EndpointReference, SoapMessage
from srmp_spark.wsrm.codec.encoder import encode
from srmp_spark.wsrm.codec.namespaces import AddressingVersion, RmVersion, SoapVersion


def text_of(endpoint: EndpointReference, addressing: AddressingVersion) -> str:
    """Return ``endpoint`` as a text that :func:`endpoint_of` reads.

    Raises :class:`LocalProtocolError` if a reference parameter cannot be written as XML.
    """
    if not endpoint.reference_parameters:
        return endpoint.address
    carrier = SoapMessage(
        soap=SoapVersion.V1_2,
        addressing=addressing,
        rm=RmVersion.V1_0,
        action="urn:endpoint",
        content=CreateSequence(endpoint),
    )
    return encode(carrier).decode()


def is_storable(endpoint: EndpointReference, addressing: AddressingVersion) -> bool:
    """Return whether :func:`endpoint_of` reads back the text that :func:`text_of` writes.

    Check an endpoint before its sequence is acknowledged, because a text that the next start cannot
    read must not be stored. No error is raised.
    """
    try:
        text = text_of(endpoint, addressing)
        return text_of(endpoint_of(text), addressing) == text
    except (LocalProtocolError, RemoteProtocolError):
        return False


def endpoint_of(text: str) -> EndpointReference:
    """Return the endpoint that :func:`text_of` wrote as ``text``.

    A text that does not begin with ``<`` is an address. Raises :class:`LocalProtocolError` or
    :class:`RemoteProtocolError` for any other text that :func:`text_of` did not write.
    """
    if not text.startswith("<"):
        return EndpointReference(text)
    content = decode(text.encode()).content
    if not isinstance(content, CreateSequence):
        raise LocalProtocolError("the stored text is no endpoint")
    return content.acks_to
