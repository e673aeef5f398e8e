"""The bytes of ``<SignedInfo>`` that may have been signed: as received, and in canonical form.

In [MC-MQSRM] 3.1.7.2.4 the sender signs the text that it appended to a buffer. :data:`LITERAL`, the
slice of the received envelope, is therefore what Windows signs. A signer with an XML library signs
a canonical form instead, which adds the namespaces in scope: :data:`CANONICAL` (Canonical XML 1.0)
or :data:`EXCLUSIVE` (Exclusive XML Canonicalization 1.0), both without comments. All three forms
state the same about the attachments, so it does not matter which one fits.

The elements come from expat, not from a library with a canonicalizer, for the reason in
:mod:`xml_tree`. A document type, and with it default attributes and entities, was refused before.
One part of Canonical XML is missing: it would repeat ``xml:…`` attributes of the elements around
``<SignedInfo>``. SRMP has no such attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from xml.parsers import expat

from srmp_spark.errors import LimitExceededError, RemoteProtocolError
from srmp_spark.srmp.codec import namespaces as ns
from srmp_spark.srmp.limits import SIGNATURE_ELEMENTS_MAX

LITERAL = "literal"
CANONICAL = "canonical"
EXCLUSIVE = "exclusive-canonical"
"""Names of the forms, for the log and the metric ``srmp_signatures_total``."""

_TEXT = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#xD;"})
_ATTRIBUTE = str.maketrans(
    {"&": "&amp;", "<": "&lt;", '"': "&quot;", "\t": "&#x9;", "\n": "&#xA;", "\r": "&#xD;"}
)
_SEPARATOR = "\f"
"""Separates the parts of a name. No document can contain this character, so no namespace can."""
_XML = "xml"
"""The only prefix that is never declared."""
_ENTRY_DEPTH = 3
"""Depth of a header entry; the root has depth 1."""


class Name(NamedTuple):
    """A name with its namespace and the prefix with which it was written."""

    uri: str
    local: str
    prefix: str

    @classmethod
    def parse(cls, name: str) -> Name:
        """Parse a name in the form of expat.

        The form is namespace, local name and prefix, without the prefix if there is none. A name
        without a namespace is the local name alone.
        """
        if _SEPARATOR not in name:
            return cls("", name, "")
        uri, _, rest = name.partition(_SEPARATOR)
        local, _, prefix = rest.partition(_SEPARATOR)
        return cls(uri, local, prefix)

    @property
    def qualified(self) -> str:
        """Return the name as it was written."""
        return f"{self.prefix}:{self.local}" if self.prefix else self.local


@dataclass(slots=True)
class SignatureElement:
    """An element of a signature, with its place in the envelope."""

    name: Name
    attributes: dict[Name, str]
    in_scope: Mapping[str, str]
    """Namespace of each prefix; the prefix ``""`` is the default namespace."""
    start: int
    """Offset of its start tag in the envelope, in bytes."""
    end: int = -1
    """Offset after its end tag, in bytes.

    This is correct only for an element with an end tag, because expat reports too little about
    ``<a/>``.
    """
    children: list[SignatureElement | str] = field(default_factory=list)

    @property
    def elements(self) -> list[SignatureElement]:
        """Return the children that are elements."""
        return [child for child in self.children if isinstance(child, SignatureElement)]

    @property
    def text(self) -> str:
        """Return the text directly inside the element."""
        return "".join(child for child in self.children if isinstance(child, str))


def signature_element(envelope: bytes) -> SignatureElement:
    """Return the header entry ``<Signature>`` of an envelope that the decoder found to be signed.

    Raises :class:`RemoteProtocolError` if there is none, if there are two, or if it has more than
    ``SIGNATURE_ELEMENTS_MAX`` elements.
    """
    builder = _Builder(envelope)
    parser = expat.ParserCreate(namespace_separator=_SEPARATOR)
    parser.namespace_prefixes = True
    parser.buffer_text = True
    builder.listen(parser)
    try:
        parser.Parse(envelope, True)
    except expat.ExpatError as error:
        raise RemoteProtocolError(f"not well-formed: {error}", section="[MC-MQSRM] 2.2.7") from None
    if builder.found is None:
        raise RemoteProtocolError("the header has no <Signature>", section="[MC-MQSRM] 2.2.7")
    return builder.found


class _Builder:
    """Builds the :class:`SignatureElement` of the signature from the events of expat.

    Everything outside of the signature is ignored.
    """

    def __init__(self, envelope: bytes) -> None:
        self.found: SignatureElement | None = None
        self._envelope = envelope
        self._open: list[SignatureElement] = []
        self._count = 0
        self._depth = 0
        self._soap_children = 0
        self._scopes: list[dict[str, str]] = [{}]
        self._declared: dict[str, str] = {}

    def listen(self, parser: expat.XMLParserType) -> None:
        self._parser = parser
        parser.StartNamespaceDeclHandler = self._declare
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters

    def _declare(self, prefix: str | None, uri: str | None) -> None:
        self._declared[prefix or ""] = uri or ""

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        self._scopes.append(
            {**self._scopes[-1], **self._declared} if self._declared else self._scopes[-1]
        )
        self._declared = {}
        self._soap_children += self._depth == 2
        if not self._open:
            if (
                self._depth != _ENTRY_DEPTH
                or self._soap_children != 1
                or Name.parse(name)[:2] != (ns.SIGNATURE, "Signature")
            ):
                return
            if self.found is not None:
                raise RemoteProtocolError(
                    "<Signature> stands there twice", section="[MC-MQSRM] 2.2.7"
                )
        self._count += 1
        if self._count > SIGNATURE_ELEMENTS_MAX:
            raise LimitExceededError(
                "SIGNATURE_ELEMENTS_MAX",
                SIGNATURE_ELEMENTS_MAX,
                self._count,
                section="[MC-MQSRM] 2.2.7",
            )
        element = SignatureElement(
            Name.parse(name),
            {Name.parse(key): value for key, value in attributes.items()},
            self._scopes[-1],
            self._parser.CurrentByteIndex,
        )
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.found = element
        self._open.append(element)

    def _end(self, _name: str) -> None:
        self._depth -= 1
        self._scopes.pop()
        if self._open:
            self._open.pop().end = self._envelope.find(b">", self._parser.CurrentByteIndex) + 1

    def _characters(self, text: str) -> None:
        if self._open:
            self._open[-1].children.append(text)


def forms_of(envelope: bytes, signed_info: SignatureElement) -> tuple[tuple[str, bytes], ...]:
    """Return (name, bytes) of every form of ``signed_info``, in the order in which they are tried.

    Equal forms are returned once. ``signed_info`` has at least one element.
    """
    forms: list[tuple[str, bytes]] = [(LITERAL, envelope[signed_info.start : signed_info.end])]
    for name, exclusive in ((CANONICAL, False), (EXCLUSIVE, True)):
        form = canonical(signed_info, exclusive=exclusive)
        if all(form != other for _, other in forms):
            forms.append((name, form))
    return tuple(forms)


def canonical(apex: SignatureElement, *, exclusive: bool) -> bytes:
    """Return the element ``apex`` and its content in canonical form, without comments."""
    out: list[str] = []
    _write(apex, {"": ""}, out, exclusive)
    return "".join(out).encode()


def _write(
    element: SignatureElement, written: dict[str, str], out: list[str], exclusive: bool
) -> None:
    """Write an element in canonical form to ``out``.

    ``written`` holds the namespace declarations that the elements around it have in the output.
    """
    scope = element.in_scope
    if exclusive:
        used = {
            element.name.prefix,
            *(name.prefix for name in element.attributes if name.prefix),
        } - {_XML}
        wanted = {prefix: scope.get(prefix, "") for prefix in used}
    else:
        wanted = {prefix: uri for prefix, uri in scope.items() if prefix != _XML}
    new = {prefix: uri for prefix, uri in wanted.items() if written.get(prefix) != uri}
    out.append(f"<{element.name.qualified}")
    out += [
        f' xmlns{":" if prefix else ""}{prefix}="{new[prefix].translate(_ATTRIBUTE)}"'
        for prefix in sorted(new)
    ]
    for name in sorted(element.attributes):
        out.append(f' {name.qualified}="{element.attributes[name].translate(_ATTRIBUTE)}"')
    out.append(">")
    inner = {**written, **new}
    for child in element.children:
        if isinstance(child, str):
            out.append(child.translate(_TEXT))
        else:
            _write(child, inner, out, exclusive)
    out.append(f"</{element.name.qualified}>")
