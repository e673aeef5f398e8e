"""Hostile bytes into a tree of elements: well-formed XML 1.0 in UTF-8, within limits, and nothing that SOAP forbids.

Theory of operation. What makes XML dangerous is refused before a parser sees it: a document type (entities, external
subsets) can stand only before the root element, a processing instruction only outside of text, another encoding only in
the declaration; each is looked for exactly there. Cheap counts over the bytes prove for an ordinary envelope that no limit
on elements or attributes can be passed; only where they prove nothing is the tree walked. Depth is checked where a reader
passes over an element that it does not read itself.

**Two parsers.** lxml is the faster one, but libxml2 keeps every name it ever met in a dictionary that lives as long as its
thread (measured with lxml 6.1: 570 MB after 11.7 million names, then parse errors in good documents). So envelopes with
names, attributes or white space that SRMP does not have are counted, and when ``STRANGE_BYTES_MAX`` bytes of them have
passed, expat reads the rest: up to twice as slow, with the same result, and it forgets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Protocol
from xml.etree import ElementTree
from xml.parsers import expat

from lxml import etree

from srmp_spark.errors import LimitExceededError, RemoteProtocolError
from srmp_spark.srmp import namespaces as ns
from srmp_spark.srmp.limits import ATTRIBUTE_LENGTH_MAX, ATTRIBUTES_MAX, DEPTH_MAX, ELEMENTS_MAX, STRANGE_BYTES_MAX


class Element(Protocol):
    """What lxml's and ElementTree's elements have in common, and all that is used of them."""

    tag: str
    text: str | None
    tail: str | None

    def __iter__(self) -> Iterator[Element]: ...
    def __len__(self) -> int: ...
    def get(self, key: str) -> str | None:
        """The value of an attribute."""

    def items(self) -> Iterable[tuple[str, str]]:
        """All attributes."""


_DECLARATION = re.compile(
    rb"<\?xml[ \t\r\n]+version[ \t\r\n]*=[ \t\r\n]*(?:'1\.[0-9]'|\"1\.[0-9]\")"
    rb"(?:[ \t\r\n]+encoding[ \t\r\n]*=[ \t\r\n]*['\"]([A-Za-z0-9._\-]{1,40})['\"])?"
    rb"(?:[ \t\r\n]+standalone[ \t\r\n]*=[ \t\r\n]*['\"](?:yes|no)['\"])?[ \t\r\n]*\?>"
)
_BEFORE_ROOT = re.compile(rb"(?:[ \t\r\n]+|<!--(?:[^-]|-(?!-))*-->)*")
_ROOT = re.compile(rb"<[A-Za-z_:\x80-\xff]")
_COMMENT_OR_CDATA = re.compile(rb"<!--.*?-->|<!\[CDATA\[.*?\]\]>", re.DOTALL)
_LONG_ATTRIBUTE = re.compile(rb"=[ \t\r\n]*(?:\"[^\"<]{%d}|'[^'<]{%d})" % (ATTRIBUTE_LENGTH_MAX + 1, ATTRIBUTE_LENGTH_MAX + 1))
_TAG = re.compile(rb"<[^<>\"']*(?:\"[^\"]*\"[^<>\"']*|'[^']*'[^<>\"']*)*>")
_BOM = b"\xef\xbb\xbf"

_ORDINARY_ATTRIBUTES = tuple(
    f'{name}="{value}"'.encode()
    for name, value in (
        ("xmlns:se", ns.SOAP),
        ("xmlns", ns.SRMP),
        ("xmlns", ns.ROUTING),
        ("xmlns:rp", ns.ROUTING),
        ("xmlns", ns.MSMQ),
        ("se:mustUnderstand", "1"),
    )
)

# remove_blank_text: white space between elements is dropped, which is faster; inside an element without children it stays.
# remove_comments joins the text around a comment, so that <to>http://a<!-- -->b</to> cannot be read as http://a.
_LXML = etree.XMLParser(
    resolve_entities=False,
    no_network=True,
    load_dtd=False,
    huge_tree=False,
    remove_comments=True,
    remove_blank_text=True,
    collect_ids=False,
)


class _Strangers:
    """How many bytes of strange envelopes lxml may still read in this process."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def spend(self, size: int) -> None:
        self.left -= size


strangers = _Strangers(STRANGE_BYTES_MAX)


class Tree:
    """A parsed envelope."""

    __slots__ = ("_counted", "_envelope", "root")

    def __init__(self, root: Element, envelope: bytes) -> None:
        self.root = root
        self._envelope = envelope
        self._counted = False

    def strange(self) -> None:
        """The envelope has something in it that SRMP has no name for: count it, once."""
        if not self._counted:
            self._counted = True
            strangers.spend(len(self._envelope))

    def pass_over(self, element: Element, *, depth: int) -> None:
        """Ignore ``element``, which stands at ``depth`` (the root is 1), but not the depth of what it holds."""
        self.strange()
        level = list(element)
        while level:
            depth += 1
            if depth > DEPTH_MAX:
                raise LimitExceededError("DEPTH_MAX", DEPTH_MAX, depth)
            level = [child for parent in level for child in parent]

    def inner_xml_of_body(self) -> str:
        """What stands between the tags of ``<se:Body>``, letter for letter; prefixes may be declared further out."""
        parser = expat.ParserCreate()
        depth = second_level = 0
        span = [0, 0]

        def start(_name: str, _attributes: dict[str, str]) -> None:
            nonlocal depth, second_level
            depth += 1
            second_level += depth == 2
            if depth == 2 and second_level == 2:
                tag = _TAG.match(self._envelope, parser.CurrentByteIndex)
                assert tag is not None, "expat has read this tag"
                span[0] = tag.end()

        def end(_name: str) -> None:
            nonlocal depth
            if depth == 2 and second_level == 2:
                span[1] = parser.CurrentByteIndex
            depth -= 1

        parser.StartElementHandler = start
        parser.EndElementHandler = end
        parser.Parse(self._envelope, True)
        return self._envelope[span[0] : span[1]].decode()


def parse_tree(envelope: bytes) -> Tree:
    """The tree of ``envelope``.

    Raises :class:`RemoteProtocolError` (400) when it is not well-formed, forbidden by SOAP, or passes a limit.
    """
    start = _check_prolog(envelope)
    try:
        envelope.decode()
    except UnicodeDecodeError:
        raise RemoteProtocolError("the envelope is not UTF-8", section="[MC-MQSRM] 2.2.2") from None
    if envelope.find(b"<?", start) >= 0 and b"<?" in _COMMENT_OR_CDATA.sub(b"", envelope[start:]):
        raise RemoteProtocolError("a SOAP message holds no processing instruction", section="SOAP 1.1 section 3")
    if strangers.left > 0:
        tree = Tree(_parse_with_lxml(envelope), envelope)
        quotes = envelope.count(b'"', start) + envelope.count(b"'", start)
        if quotes != 2 * sum(map(envelope.count, _ORDINARY_ATTRIBUTES)):
            tree.strange()
    else:
        tree = Tree(_parse_with_expat(envelope), envelope)
    if (
        envelope.count(b"<") > ELEMENTS_MAX
        or envelope.count(b"=") > ATTRIBUTES_MAX
        or (len(envelope) > ATTRIBUTE_LENGTH_MAX and _LONG_ATTRIBUTE.search(envelope))
    ):
        _check_limits(tree.root)
    return tree


def _check_prolog(envelope: bytes) -> int:
    """Where the XML declaration ends, if there is one."""
    start = 3 if envelope.startswith(_BOM) else 0
    declaration = _DECLARATION.match(envelope, start)
    if declaration is not None:
        if declaration[1] is not None and declaration[1].lower() != b"utf-8":
            raise RemoteProtocolError(f"the envelope is UTF-8, not {declaration[1].decode()}", section="[MC-MQSRM] 2.2.2")
        start = declaration.end()
    blank = _BEFORE_ROOT.match(envelope, start)
    root = blank.end() if blank is not None else start
    if envelope.startswith(b"<!DOCTYPE", root):
        raise RemoteProtocolError("a SOAP message holds no document type", section="SOAP 1.1 section 3")
    if not _ROOT.match(envelope, root):
        raise RemoteProtocolError("the envelope does not begin with an element, or is not UTF-8", section="[MC-MQSRM] 2.2.2")
    return start


def _parse_with_lxml(envelope: bytes) -> Element:
    try:
        return etree.fromstring(envelope, _LXML)  # type: ignore[return-value]  # lxml's element, seen through Element
    except (etree.XMLSyntaxError, ValueError) as error:
        strangers.spend(len(envelope))
        raise RemoteProtocolError(f"not well-formed: {ascii(str(error))[1:-1][:200]}") from None


def _parse_with_expat(envelope: bytes) -> Element:
    parser = ElementTree.XMLParser()  # noqa: S314  # document types have been refused before
    try:
        parser.feed(envelope)
        return parser.close()
    except (ElementTree.ParseError, ValueError) as error:
        raise RemoteProtocolError(f"not well-formed: {ascii(str(error))[1:-1][:200]}") from None


def _check_limits(root: Element) -> None:
    """Count what the cheap counts could not rule out."""
    count = 0
    level = [root]
    while level:
        count += len(level)
        if count > ELEMENTS_MAX:
            raise LimitExceededError("ELEMENTS_MAX", ELEMENTS_MAX, count)
        for element in level:
            attributes = list(element.items())
            if len(attributes) > ATTRIBUTES_MAX:
                raise LimitExceededError("ATTRIBUTES_MAX", ATTRIBUTES_MAX, len(attributes))
            for name, value in attributes:
                longest = max(len(name), len(value))
                if longest > ATTRIBUTE_LENGTH_MAX:
                    raise LimitExceededError("ATTRIBUTE_LENGTH_MAX", ATTRIBUTE_LENGTH_MAX, longest)
        level = [child for parent in level for child in parent]
