"""Parse untrusted bytes into the header blocks of a SOAP message and the bytes of its Body.

Theory of operation. Expat makes one pass. SOAP forbids a document type and a processing
instruction, and only UTF-8 is supported. The handler that meets one of these, or a limit, refuses
the message before it keeps anything. Header blocks become trees of :class:`XmlElement`. The Body of
an application does not become a tree, because a row holds its bytes. So only its depth and its
elements are checked. A Body with an element of the protocol (``wanted`` has the namespaces) becomes
a tree as well.

A Body must be readable alone when it is in a column. So namespace declarations that its elements
use from elements around the Body are written into their start tags, if there are any. All other
bytes are those of the sender.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from xml.parsers import expat

from srmp_spark.errors import LimitExceededError, RemoteProtocolError
from srmp_spark.wsrm.codec.namespaces import SOAP_OF, SoapVersion, qualified, split
from srmp_spark.wsrm.limits import (
    ATTRIBUTES_MAX,
    BODY_ELEMENTS_MAX,
    DECLARATIONS_ADDED_MAX,
    DEPTH_MAX,
    ENVELOPE_MAX,
    HEADER_ELEMENTS_MAX,
    HEADER_MAX,
    IDENTIFIER_MAX,
)

XML_SPACE = " \t\r\n"
"""White space of XML 1.0, for ``str.strip()``.

Without this argument ``str.strip()`` would remove more characters.
"""
SECTION = "SOAP 1.2 part 1 section 5"
_TAG = re.compile(rb"<[^<>\"']*(?:\"[^\"]*\"[^<>\"']*|'[^']*'[^<>\"']*)*>")
_TAG_NAME = re.compile(rb"<[^\s/>]+")
_PREFIX = re.compile(rb"(?<![\w.\-\x80-\xff])([\w.\-\x80-\xff]+):")
"""Matches a name before a colon, in a tag or in a text.

Each run of name characters is examined once, so the search is linear.
"""


class NamespaceScope(NamedTuple):
    """The namespace prefixes that are valid at an element.

    The scope holds the declarations of the element, and the scope of the element around it.
    """

    declared: Mapping[str, str]
    outer: NamespaceScope | None = None

    def find(self, prefix: str) -> str | None:
        """Return the namespace of ``prefix``, or ``None`` if it is not declared.

        The prefix ``""`` is that of names without a prefix.
        """
        scope: NamespaceScope | None = self
        while scope is not None:
            if prefix in scope.declared:
                return scope.declared[prefix]
            scope = scope.outer
        return None

    def all(self) -> dict[str, str]:
        """Return a dictionary of every prefix that can be used at the element, to its namespace."""
        found = {} if self.outer is None else self.outer.all()
        return found | dict(self.declared)


EMPTY_SCOPE = NamespaceScope({})


@dataclass(frozen=True, slots=True)
class XmlElement:
    """One XML element with its texts and child elements in order, without comments.

    Iterating over an element yields its child elements.
    """

    tag: str
    """Name in Clark's notation: ``{namespace}name``."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    content: tuple[XmlElement | str, ...] = ()
    scope: NamespaceScope = field(default=EMPTY_SCOPE, compare=False, repr=False)

    @property
    def text(self) -> str:
        """Return the text directly in the element, without that of its children.

        White space around the text is removed.
        """
        return "".join(part for part in self.content if isinstance(part, str)).strip(XML_SPACE)

    def __iter__(self) -> Iterator[XmlElement]:
        return (part for part in self.content if isinstance(part, XmlElement))


class Tree(NamedTuple):
    """A parsed SOAP message: its header blocks and its Body."""

    soap: SoapVersion
    headers: tuple[XmlElement, ...]
    body: bytes
    """Bytes between the tags of the Body.

    Namespace declarations that its children need from elements around the Body are added to their
    tags.
    """
    protocol: XmlElement | None
    """First element of the Body, or ``None`` unless its namespace is a wanted one."""


class _Open:
    """An element that is being read: its end tag has not been read yet."""

    __slots__ = ("attributes", "content", "scope", "tag")

    def __init__(self, tag: str, attributes: Mapping[str, str], scope: NamespaceScope) -> None:
        self.tag = tag
        self.attributes = attributes
        self.scope = scope
        self.content: list[XmlElement | str] = []

    def closed(self) -> XmlElement:
        return XmlElement(self.tag, self.attributes, tuple(self.content), self.scope)


def parse_tree(envelope: bytes, wanted: Container[str]) -> Tree:
    """Parse the SOAP message in ``envelope`` into a tree.

    The first element of the Body becomes :attr:`Tree.protocol` only if its namespace is in
    ``wanted``; otherwise the Body is checked and kept as bytes. Raises :class:`RemoteProtocolError`
    if the message is not well-formed, is forbidden by SOAP, or exceeds a limit.
    """
    if len(envelope) > ENVELOPE_MAX:
        raise LimitExceededError(
            "ENVELOPE_MAX", ENVELOPE_MAX, len(envelope), status_hint=413, section=SECTION
        )
    return _Reader(envelope, wanted).read()


class _Reader:
    """Parses one envelope in one pass of the XML parser expat."""

    def __init__(self, envelope: bytes, wanted: Container[str]) -> None:
        self._envelope = envelope
        self._wanted = wanted
        parser = self._parser = expat.ParserCreate(namespace_separator="}")
        parser.buffer_text = True
        parser.XmlDeclHandler = self._declaration
        parser.StartDoctypeDeclHandler = self._doctype
        parser.ProcessingInstructionHandler = self._instruction
        parser.StartNamespaceDeclHandler = self._namespace
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        self._depth = 0
        self._elements = 0
        self._declared: dict[str, str] = {}
        self._scopes: list[NamespaceScope] = [EMPTY_SCOPE]
        self._open: list[_Open] = []
        """Open elements of the block that is being built, outermost first."""
        self._soap: SoapVersion | None = None
        self._headers: list[XmlElement] = []
        self._seen_header = self._seen_body = self._in_header = self._in_body = False
        self._body_start = self._body_end = 0
        self._body_scope = EMPTY_SCOPE
        self._children: list[tuple[int, frozenset[str]]] = []
        """Offset of each child of the Body, and the prefixes that the child declares itself."""
        self._protocol: XmlElement | None = None

    def read(self) -> Tree:
        # Expat detects UTF-16 by its first bytes, whatever encoding is set. All offsets would be
        # wrong.
        if b"\0" in self._envelope:
            raise RemoteProtocolError(
                "the message is not UTF-8; set the client's encoding to UTF-8", section=SECTION
            )
        try:
            self._envelope.decode()
            self._parser.Parse(self._envelope, True)
        except expat.ExpatError as error:
            raise RemoteProtocolError(f"not well-formed XML: {error}", section=SECTION) from None
        except (ValueError, LookupError):
            raise RemoteProtocolError(
                "the message is not UTF-8; set the client's encoding to UTF-8", section=SECTION
            ) from None
        if self._soap is None or not self._seen_body:
            raise RemoteProtocolError("a SOAP Envelope holds a Body", section=SECTION)
        return Tree(self._soap, tuple(self._headers), self._body(), self._protocol)

    # --- what SOAP does not allow -----------------------------------------------------------------

    def _declaration(self, version: str, encoding: str | None, _standalone: int) -> None:
        if version != "1.0" or (encoding is not None and encoding.lower() != "utf-8"):
            raise RemoteProtocolError(
                "the message is XML 1.0 in UTF-8; set the client's encoding to UTF-8",
                section=SECTION,
            )

    def _doctype(self, *_: object) -> None:
        raise RemoteProtocolError("a SOAP message holds no document type", section=SECTION)

    def _instruction(self, _target: str, _data: str) -> None:
        raise RemoteProtocolError("a SOAP message holds no processing instruction", section=SECTION)

    # --- elements ---------------------------------------------------------------------------------

    def _namespace(self, prefix: str | None, uri: str | None) -> None:
        if len(self._declared) >= ATTRIBUTES_MAX:
            raise LimitExceededError(
                "ATTRIBUTES_MAX", ATTRIBUTES_MAX, len(self._declared) + 1, section=SECTION
            )
        # Expat copies the URI for each element of the namespace.
        if len(uri or "") > IDENTIFIER_MAX:
            raise LimitExceededError(
                "IDENTIFIER_MAX", IDENTIFIER_MAX, len(uri or ""), section=SECTION
            )
        self._declared[prefix or ""] = uri or ""

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise LimitExceededError("DEPTH_MAX", DEPTH_MAX, self._depth, section=SECTION)
        if len(attributes) > ATTRIBUTES_MAX:
            raise LimitExceededError(
                "ATTRIBUTES_MAX", ATTRIBUTES_MAX, len(attributes), section=SECTION
            )
        declared = self._declared
        if declared:
            self._declared = {}
        if self._in_body and not self._open and self._depth > 3:
            self._count("BODY_ELEMENTS_MAX", BODY_ELEMENTS_MAX)
            return
        if self._depth <= 2:
            self._scopes.append(
                NamespaceScope(declared, self._scopes[-1]) if declared else self._scopes[-1]
            )
            self._frame(f"{{{name}" if "}" in name else name)
            return
        self._block(f"{{{name}" if "}" in name else name, attributes, declared)

    def _count(self, limit: str, most: int) -> None:
        self._elements += 1
        if self._elements > most:
            raise LimitExceededError(limit, most, self._elements, section=SECTION)

    def _frame(self, tag: str) -> None:
        """Handle the start of Envelope, Header or Body.

        Raises :class:`RemoteProtocolError` if the element is in a wrong place, or HEADER_MAX is
        exceeded.
        """
        namespace, name = split(tag)
        if self._depth == 1:
            self._soap = SOAP_OF.get(namespace)
            if self._soap is None or name != "Envelope":
                raise RemoteProtocolError(
                    "the message is no SOAP 1.1 or 1.2 Envelope", section=SECTION
                )
            return
        assert self._soap is not None, "the Envelope came first"
        if (
            tag == qualified(self._soap.value, "Header")
            and not self._seen_header
            and not self._seen_body
        ):
            self._seen_header = self._in_header = True
        elif tag == qualified(self._soap.value, "Body") and not self._seen_body:
            self._check_header()
            at = self._parser.CurrentByteIndex
            start_tag = _TAG.match(self._envelope, at)
            assert start_tag is not None, "expat has read this tag"
            self._seen_body = self._in_body = True
            self._body_start = self._body_end = start_tag.end()
            self._body_scope = self._scopes[-1]
            self._elements = 0
        else:
            raise RemoteProtocolError(
                "an Envelope holds one Header and, after it, one Body", section=SECTION
            )

    def _check_header(self) -> None:
        at = self._parser.CurrentByteIndex
        if at > HEADER_MAX:
            raise LimitExceededError("HEADER_MAX", HEADER_MAX, at, section=SECTION)

    def _block(self, tag: str, attributes: dict[str, str], declared: dict[str, str]) -> None:
        """Handle the start of a header block, a child of the Body, or an element inside one.

        Raises :class:`LimitExceededError` if there are too many elements, or HEADER_MAX is
        exceeded.
        """
        if self._in_body and self._depth == 3:
            self._children.append((self._parser.CurrentByteIndex, frozenset(declared)))
            if len(self._children) > 1 or split(tag)[0] not in self._wanted:
                self._count("BODY_ELEMENTS_MAX", BODY_ELEMENTS_MAX)
                return
        if self._in_header:
            self._check_header()
        self._count("HEADER_ELEMENTS_MAX", HEADER_ELEMENTS_MAX)
        outer = self._open[-1].scope if self._open else self._scopes[-1]
        clark = {f"{{{key}" if "}" in key else key: value for key, value in attributes.items()}
        self._open.append(_Open(tag, clark, NamespaceScope(declared, outer) if declared else outer))

    def _text(self, text: str) -> None:
        if self._open:
            self._open[-1].content.append(text)

    def _end(self, _name: str) -> None:
        depth = self._depth
        self._depth -= 1
        if self._open and depth > 2:
            element = self._open.pop().closed()
            if self._open:
                self._open[-1].content.append(element)
            elif self._in_header:
                self._headers.append(element)
            else:
                self._protocol = element
        elif depth <= 2:
            self._scopes.pop()
            if depth == 2 and self._in_body:
                self._body_end = self._parser.CurrentByteIndex
            if depth == 2:
                self._in_header = self._in_body = False

    # --- the Body ---------------------------------------------------------------------------------

    def _body(self) -> bytes:
        """Return the bytes between the tags of the Body.

        Namespace declarations that the Body needs from elements around it are written into the tags
        of its children. Raises :class:`LimitExceededError` if they exceed
        ``DECLARATIONS_ADDED_MAX`` bytes.
        """
        body = self._envelope[self._body_start : self._body_end]
        scope = self._body_scope.all()
        used = _prefixes_used(body, scope)
        outer = {
            prefix: uri
            for prefix, uri in sorted(scope.items())
            if (prefix in used if prefix else uri)
        }
        if not outer:
            return body
        added = sum(len(declaration(prefix, uri).encode()) for prefix, uri in outer.items()) * len(
            self._children
        )
        # Each child gets a copy of all declarations.
        if added > DECLARATIONS_ADDED_MAX:
            raise LimitExceededError(
                "DECLARATIONS_ADDED_MAX", DECLARATIONS_ADDED_MAX, added, section=SECTION
            )
        parts, at = [], self._body_start
        for start, declared in self._children:
            name = _TAG_NAME.match(self._envelope, start)
            assert name is not None, "expat has read this tag"
            parts.append(self._envelope[at : name.end()])
            parts += [
                declaration(prefix, uri).encode()
                for prefix, uri in outer.items()
                if prefix not in declared
            ]
            at = name.end()
        return b"".join((*parts, self._envelope[at : self._body_end]))


def _prefixes_used(body: bytes, known: Iterable[str]) -> set[str]:
    """Return the set of the prefixes in ``known`` that are followed by a colon in ``body``.

    Prefixes in texts count too.
    """
    wanted = {prefix.encode(): prefix for prefix in known if prefix}
    used = set()
    for found in _PREFIX.finditer(body) if wanted else ():
        prefix = wanted.pop(found[1], None)
        if prefix is not None:
            used.add(prefix)
            if not wanted:
                break
    return used


def declaration(prefix: str, uri: str) -> str:
    """Return the text of a namespace declaration, such as `` xmlns:prefix="uri"``.

    The text begins with a blank; the URI is escaped.
    """
    return f' xmlns{":" if prefix else ""}{prefix}="{escaped(uri)}"'


def escaped(text: str) -> str:
    """Return ``text`` with XML escapes, for an element or an attribute in double quotes."""
    text = (
        text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
    )
    return text.replace("\r", "&#13;").replace("\n", "&#10;").replace("\t", "&#9;")
