"""An element that was read, as text again: what an endpoint wants back with each message is sent back as it was.

Only the declarations in use are written: those of the names in the element, and those that a text or an attribute value may
name (``xsi:type="p:Order"``). An element may stand in the scope of hundreds of declarations, more than a reader takes on one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from srmp_spark.errors import LocalProtocolError
from srmp_spark.wsrm.namespaces import XML, AddressingVersion, split
from srmp_spark.wsrm.xml_tree import EMPTY_SCOPE, Element, Scope, declaration, escaped

_PREFIX = re.compile(r"(?<![\w.\-])([\w.\-]+):")
"""What may be a prefix in a text; each run of name characters is looked at once."""


def write_element(element: Element) -> str:
    """Write ``element`` with every declaration from further out that its names or its texts may use."""
    return _write(element, EMPTY_SCOPE, "")


def write_parameter(element: Element, addressing: AddressingVersion) -> str:
    """A reference parameter as a header; 2005/08 marks those (WS-Addressing 1.0 SOAP binding 3.2)."""
    if addressing is AddressingVersion.V2004_08:
        return write_element(element)
    prefix, scope = "rp", element.scope.all()
    while prefix in scope:
        prefix += "_"
    mark = f'{declaration(prefix, addressing.value)} {prefix}:IsReferenceParameter="true"'
    unmarked = {
        key: value
        for key, value in element.attributes.items()
        if key != f"{{{addressing.value}}}IsReferenceParameter"
    }
    return _write(Element(element.tag, unmarked, element.content, element.scope), EMPTY_SCOPE, mark)


def _write(element: Element, outer: Scope, more: str) -> str:
    scope = element.scope
    declared = (
        _in_use(element) if outer is EMPTY_SCOPE else {} if scope is outer else scope.declared
    )
    name = _name(element.tag, scope, is_attribute=False)
    head = [
        f"<{name}",
        *(declaration(prefix, uri) for prefix, uri in sorted(declared.items())),
        more,
    ]
    head += [
        f' {_name(key, scope, is_attribute=True)}="{escaped(value)}"'
        for key, value in element.attributes.items()
    ]
    inside = "".join(
        part.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\r", "&#13;")
        if isinstance(part, str)
        else _write(part, scope, "")
        for part in element.content
    )
    return f"{''.join(head)}>{inside}</{name}>"


def _in_use(element: Element) -> Mapping[str, str]:
    """Return the declarations in scope that something in ``element`` uses or may name."""
    scope = element.scope.all()
    names = set(_prefixes(element)) & scope.keys()
    if scope.get(""):
        names.add("")
    return {prefix: scope[prefix] for prefix in names}


def _prefixes(element: Element) -> Iterator[str]:
    for tag, is_attribute in ((element.tag, False), *((key, True) for key in element.attributes)):
        prefix, colon, _ = _name(tag, element.scope, is_attribute=is_attribute).partition(":")
        if colon:
            yield prefix
    for text in (
        *element.attributes.values(),
        *(part for part in element.content if isinstance(part, str)),
    ):
        yield from _PREFIX.findall(text)
    for child in element:
        yield from _prefixes(child)


def _name(tag: str, scope: Scope, *, is_attribute: bool) -> str:
    """``prefix:name``, by a prefix that means its namespace there."""
    namespace, local = split(tag)
    if namespace == XML:
        return f"xml:{local}"
    if is_attribute and not namespace:
        return local
    for prefix, uri in scope.all().items():
        if uri == namespace and (prefix or not is_attribute):
            return f"{prefix}:{local}" if prefix else local
    if not namespace and not scope.find(""):
        return local
    raise LocalProtocolError(
        f"no prefix means {namespace or 'no namespace'} where <{local}> stands"
    )
