"""What the tests of WS-ReliableMessaging share: the messages of others, and the schemas as judges of ours."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from lxml import etree

from srmp_spark.wsrm.elements import SoapMessage
from srmp_spark.wsrm.namespaces import AddressingVersion, RmVersion, SoapVersion

DATA = Path(__file__).resolve().parents[1] / "data" / "wsrm"
SCHEMAS = DATA / "xsd"
SEQUENCE = "urn:uuid:0b162747-99cf-479c-972f-95b776e141c3"
"""The sequence of [MS-WSRVCRM] 4.1."""
VERSIONS = (
    (SoapVersion.V1_1, AddressingVersion.V2004_08, RmVersion.V1_0),
    (SoapVersion.V1_1, AddressingVersion.V2005_08, RmVersion.V1_0),
    (SoapVersion.V1_2, AddressingVersion.V2004_08, RmVersion.V1_0),
    (SoapVersion.V1_2, AddressingVersion.V2005_08, RmVersion.V1_0),
    (SoapVersion.V1_1, AddressingVersion.V2005_08, RmVersion.V1_1),
    (SoapVersion.V1_2, AddressingVersion.V2005_08, RmVersion.V1_1),
)
"""1.0 goes with both versions of WS-Addressing, 1.1 with 2005/08."""

_FILES = {
    (RmVersion.V1_0, AddressingVersion.V2004_08): "wsrm-1.0.xsd",
    (RmVersion.V1_0, AddressingVersion.V2005_08): "wsrm-1.0-wsa15.xsd",
    (RmVersion.V1_1, AddressingVersion.V2005_08): "wsrm-1.1.xsd",
}


def wire(name: str) -> bytes:
    """A captured message."""
    return (DATA / f"{name}.xml").read_bytes()


def wire_names() -> list[str]:
    """All that CXF and Metro sent."""
    return sorted(path.stem for path in DATA.glob("*_wire_*.xml"))


def wcf_trace() -> dict[int, bytes]:
    """The messages of the trace by their number."""
    text = wire("wcf_trace_2007_feb2005_nettcp")
    return {int(number): message for number, message in re.findall(rb'<m n="(\d+)"[^>]*>(.*?)</m>', text, re.DOTALL)}


class _Local(etree.Resolver):
    """Schemas name each other by addresses in the network; here they are files."""

    def resolve(self, system_url: str, public_id: str, context: object) -> object:  # type: ignore[override]
        if "2004/08/addressing" in system_url:
            return self.resolve_filename(str(SCHEMAS / "addressing-200408.xsd"), context)  # type: ignore[attr-defined]
        if "ws-addr" in system_url:
            return self.resolve_filename(str(SCHEMAS / "ws-addr-200508.xsd"), context)  # type: ignore[attr-defined]
        return None


@cache
def schema(name: str) -> etree.XMLSchema:
    """A schema, without the network."""
    parser = etree.XMLParser(no_network=True)
    parser.resolvers.add(_Local())
    return etree.XMLSchema(etree.parse(str(SCHEMAS / name), parser))


def schema_faults(envelope: bytes, rm: RmVersion, addressing: AddressingVersion) -> list[str]:
    """What the schema has against the elements of WS-ReliableMessaging in ``envelope``; there must be one."""
    judge, judged, faults = schema(_FILES[rm, addressing]), 0, []
    for block in _outermost(etree.fromstring(envelope), rm.value):
        judged += 1
        alone = etree.fromstring(etree.tostring(block, with_tail=False))
        if not judge.validate(alone):
            faults += [str(error.message) for error in judge.error_log]
    assert judged, "nothing of WS-ReliableMessaging is in there"
    return faults


def _outermost(root: etree._Element, namespace: str) -> list[etree._Element]:
    return [
        element
        for element in root.iter(f"{{{namespace}}}*")
        if (parent := element.getparent()) is not None
        and etree.QName(parent).namespace != namespace
        and etree.QName(parent).localname not in ("Value", "Detail")
    ]


def plain(versions: tuple[SoapVersion, AddressingVersion, RmVersion], **more: object) -> SoapMessage:
    """A message of these versions."""
    soap, addressing, rm = versions
    return SoapMessage(**({"soap": soap, "addressing": addressing, "rm": rm, "action": "urn:do"} | more))  # type: ignore[arg-type]
