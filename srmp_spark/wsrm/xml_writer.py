"""An element that was read, as text again: what an endpoint wants back with each message goes back as it was."""

from __future__ import annotations

from srmp_spark.errors import LocalProtocolError
from srmp_spark.wsrm.namespaces import XML, AddressingVersion, split
from srmp_spark.wsrm.xml_tree import EMPTY_SCOPE, Element, Scope, declaration, escaped


def write_element(element: Element) -> str:
    """With every prefix that can be used at its place, for a text in it may name one."""
    return _write(element, EMPTY_SCOPE, "")


def write_parameter(element: Element, addressing: AddressingVersion) -> str:
    """A reference parameter as a header; 2005/08 marks those (WS-Addressing 1.0 SOAP binding 3.2)."""
    if addressing is AddressingVersion.V2004_08:
        return write_element(element)
    prefix, scope = "rp", element.scope.all()
    while prefix in scope:
        prefix += "_"
    mark = f'{declaration(prefix, addressing.value)} {prefix}:IsReferenceParameter="true"'
    unmarked = {key: value for key, value in element.attributes.items() if key != f"{{{addressing.value}}}IsReferenceParameter"}
    return _write(Element(element.tag, unmarked, element.content, element.scope), EMPTY_SCOPE, mark)


def _write(element: Element, outer: Scope, more: str) -> str:
    scope = element.scope
    declared = scope.all() if outer is EMPTY_SCOPE else {} if scope is outer else scope.declared
    name = _name(element.tag, scope, is_attribute=False)
    head = [f"<{name}", *(declaration(prefix, uri) for prefix, uri in sorted(declared.items())), more]
    head += [f' {_name(key, scope, is_attribute=True)}="{escaped(value)}"' for key, value in element.attributes.items()]
    inside = "".join(
        part.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\r", "&#13;")
        if isinstance(part, str)
        else _write(part, scope, "")
        for part in element.content
    )
    return f"{''.join(head)}>{inside}</{name}>"


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
    raise LocalProtocolError(f"no prefix means {namespace or 'no namespace'} where <{local}> stands")
