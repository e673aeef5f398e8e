"""An endpoint reference as one text, for a store: its address, or XML where something must go back with each message."""

from __future__ import annotations

from srmp_spark.errors import LocalProtocolError, RemoteProtocolError
from srmp_spark.wsrm.decoder import decode
from srmp_spark.wsrm.elements import CreateSequence, EndpointReference, SoapMessage
from srmp_spark.wsrm.encoder import encode
from srmp_spark.wsrm.namespaces import AddressingVersion, RmVersion, SoapVersion


def text_of(endpoint: EndpointReference, addressing: AddressingVersion) -> str:
    """The inverse of :func:`endpoint_of`."""
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
    """Return whether :func:`endpoint_of` reads back what :func:`text_of` writes of ``endpoint``.

    An endpoint is looked at before its sequence is acknowledged: what a later start could not read must not be stored.
    """
    try:
        text = text_of(endpoint, addressing)
        return text_of(endpoint_of(text), addressing) == text
    except (LocalProtocolError, RemoteProtocolError):
        return False


def endpoint_of(text: str) -> EndpointReference:
    """What :func:`text_of` wrote. Raises :class:`LocalProtocolError` for anything else."""
    if not text.startswith("<"):
        return EndpointReference(text)
    content = decode(text.encode()).content
    if not isinstance(content, CreateSequence):
        raise LocalProtocolError("no endpoint was stored there")
    return content.acks_to
