"""Samples, schemas and messages that tests of WS-ReliableMessaging share."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from lxml import etree

from srmp_spark.wsrm.codec.elements import EndpointReference, SoapMessage
from srmp_spark.wsrm.codec.namespaces import (
    MAKE_CONNECTION,
    AddressingVersion,
    RmVersion,
    SoapVersion,
)

DATA = Path(__file__).resolve().parents[1] / "data" / "wsrm"
XSD = DATA / "xsd"
TEXT_OF = {RmVersion.V1_0: "1.0", RmVersion.V1_1: "1.1"}
VERSIONS = [
    (SoapVersion.V1_1, AddressingVersion.V2004_08, RmVersion.V1_0),
    (SoapVersion.V1_2, AddressingVersion.V2004_08, RmVersion.V1_0),
    (SoapVersion.V1_1, AddressingVersion.V2005_08, RmVersion.V1_0),
    (SoapVersion.V1_2, AddressingVersion.V2005_08, RmVersion.V1_0),
    (SoapVersion.V1_1, AddressingVersion.V2005_08, RmVersion.V1_1),
    (SoapVersion.V1_2, AddressingVersion.V2005_08, RmVersion.V1_1),
]
"""Every combination there is; 1.2 is 1.1 on the wire."""
IDS = [f"{soap.name}-{addressing.name}-{rm.name}" for soap, addressing, rm in VERSIONS]


def sample(name: str) -> bytes:
    return (DATA / name).read_bytes()


def wire() -> dict[str, bytes]:
    """What CXF and Metro sent."""
    return {path.name: path.read_bytes() for path in sorted(DATA.glob("*_wire_*.xml"))}


def wcf_trace() -> list[bytes]:
    """The six messages of 2007."""
    return re.findall(
        rb"<m n=.*?>(<s:Envelope.*?</s:Envelope>)</m>",
        sample("wcf_trace_2007_feb2005_nettcp.xml"),
        re.DOTALL,
    )


def document_examples() -> list[bytes]:
    """[MS-WSRVCRM] 4.1.1 to 4.1.7 with the quotation marks that the document forgets."""
    text = sample("mswsrvcrm_4.1_as_printed.txt").decode()
    mended = re.sub(
        r"xmlns:netrm=(http://schemas.microsoft.com/ws/2006/05/rm)", r'xmlns:netrm="\1"', text
    )
    return [line.encode() for line in mended.splitlines()]


class _Local(etree.Resolver):
    def resolve(self, url, _public_id, context):  # type: ignore[no-untyped-def]
        if "2004/08/addressing" in url:
            return self.resolve_filename(str(XSD / "addressing-200408.xsd"), context)
        if "ws-addr" in url or "2005/08/addressing" in url:
            return self.resolve_filename(str(XSD / "ws-addr-200508.xsd"), context)
        return None


@cache
def _schema(name: str) -> etree.XMLSchema:
    parser = etree.XMLParser(no_network=True)
    parser.resolvers.add(_Local())
    return etree.XMLSchema(etree.parse(XSD / name, parser))


def schema_faults(envelope: bytes) -> list[str]:
    """What the published schemas say against each element of WS-ReliableMessaging, WS-MakeConnection and WS-Addressing."""
    root = etree.fromstring(envelope)
    is_old = AddressingVersion.V2004_08.value.encode() in envelope
    by_namespace = {
        RmVersion.V1_0.value: "wsrm-1.0.xsd" if is_old else "wsrm-1.0-wsa15.xsd",
        RmVersion.V1_1.value: "wsrm-1.1.xsd",
        MAKE_CONNECTION: "wsmc-1.1.xsd",
        AddressingVersion.V2004_08.value: "addressing-200408.xsd",
        AddressingVersion.V2005_08.value: "ws-addr-200508.xsd",
    }
    faults = []
    for part in root:
        for element in part:
            namespace = etree.QName(element).namespace
            if namespace in by_namespace:
                alone = etree.fromstring(etree.tostring(element, with_tail=False))
                schema = _schema(by_namespace[namespace])
                if not schema.validate(alone):
                    faults.append(
                        f"{etree.QName(element).localname}: {schema.error_log.last_error.message}"
                    )
    return faults


def message(
    versions: tuple[SoapVersion, AddressingVersion, RmVersion] = VERSIONS[5],
    action: str = "urn:a",
    **more: object,
) -> SoapMessage:
    soap, addressing, rm = versions
    return SoapMessage(soap=soap, addressing=addressing, rm=rm, action=action, **more)  # type: ignore[arg-type]


def anonymous(addressing: AddressingVersion) -> EndpointReference:
    return EndpointReference(addressing.anonymous)
