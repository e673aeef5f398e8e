"""Write an element that was read as text again.

Reference parameters of an endpoint are sent back unchanged with each message in this way. Only the
namespace declarations in use are written: those of the names in the element, and those that a text
or an attribute value may name (``xsi:type="p:Order"``). An element may be in the scope of hundreds
of declarations, more than a reader accepts on one element.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from srmp_spark.errors import LocalProtocolError
from srmp_spark.wsrm.codec.namespaces import XML, AddressingVersion, split
from srmp_spark.wsrm.codec.xml_tree import (
    EMPTY_SCOPE,
    NamespaceScope,
    XmlElement,
    declaration,
    escaped,
)

_PREFIX = re.compile(r"(?<![\w.\-])([\w.\-]+):")
"""Matches a possible prefix in a text. Each run of name characters is examined once."""


def write_element(element: XmlElement) -> str:
    """Return the XML text of ``element``, with all declarations that it may use.

    These are declarations of elements around it too, for prefixes in names or texts. Raises
    :class:`LocalProtocolError` if a name has no prefix in scope.
    """
    return _write(element, EMPTY_SCOPE, "")


def write_parameter(element: XmlElement, addressing: AddressingVersion) -> str:
    """Return the XML text of a reference parameter as a header.

    WS-Addressing 2005/08 requires an attribute that marks such headers (WS-Addressing 1.0 SOAP
    binding 3.2). Raises :class:`LocalProtocolError` if a name has no prefix in scope.
    """
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
    return _write(
        XmlElement(element.tag, unmarked, element.content, element.scope), EMPTY_SCOPE, mark
    )


def _write(element: XmlElement, outer: NamespaceScope, more: str) -> str:
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


def _in_use(element: XmlElement) -> Mapping[str, str]:
    """Return the declarations in scope that ``element`` uses or may name, by prefix.

    A name before a colon in any text or attribute counts.
    """
    scope = element.scope.all()
    names = set(_prefixes(element)) & scope.keys()
    if scope.get(""):
        names.add("")
    return {prefix: scope[prefix] for prefix in names}


def _prefixes(element: XmlElement) -> Iterator[str]:
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


def _name(tag: str, scope: NamespaceScope, *, is_attribute: bool) -> str:
    """Return ``tag`` as it is written in ``scope``: ``prefix:name``, or ``name`` alone.

    Raises :class:`LocalProtocolError` if no prefix in scope means the namespace of ``tag``.
    """
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
