"""Turns hostile bytes into a tree of elements: well-formed XML 1.0 in UTF-8, within limits.

Theory of operation. The dangerous parts of XML are refused before a parser sees them. A document
type (entities, external subsets) can occur only before the root element, a processing instruction
only outside of text, another encoding only in the declaration. Each is searched for exactly there.
Cheap counts over the bytes prove for an ordinary envelope that no limit on elements or attributes
can be exceeded. The tree is walked only if the counts prove nothing. The reader
(:mod:`.envelope_reader`) checks the depth of each element that it skips.

The parser is expat with ElementTree's builder in C. lxml parses in two thirds of the time. However,
libxml2 keeps every name that it ever met in a dictionary that lives as long as its thread. Measured
with lxml 6.1, a hostile sender brings it to 570 MB after 11.7 million names, and from then on
correct documents with a new name fail. Expat keeps no names. :mod:`learned_layouts` saves the
additional time: a layout is parsed once and not once for each message.

Expat before 2.6.0 examines an unfinished token again with each piece that it is fed: an attribute
of 8 MB in pieces of 4 KiB takes 15 s. In this module an envelope is complete, at most ENVELOPE_MAX
long, and fed once. No version is therefore refused, also because distributions fix old versions
without a new number; ``serve`` logs an older version. tests/fuzz/test_xml_bombs.py measures with
the version in use.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree
from xml.etree.ElementTree import Element
from xml.parsers import expat

from srmp_spark.errors import LimitExceededError, RemoteProtocolError
from srmp_spark.srmp.limits import ATTRIBUTE_LENGTH_MAX, ATTRIBUTES_MAX, DEPTH_MAX, ELEMENTS_MAX

_DECLARATION = re.compile(
    rb"<\?xml[ \t\r\n]+version[ \t\r\n]*=[ \t\r\n]*(?:'1\.0'|\"1\.0\")"
    rb"(?:[ \t\r\n]+encoding[ \t\r\n]*=[ \t\r\n]*['\"]([A-Za-z0-9._\-]{1,40})['\"])?"
    rb"(?:[ \t\r\n]+standalone[ \t\r\n]*=[ \t\r\n]*['\"](?:yes|no)['\"])?[ \t\r\n]*\?>"
)
_BEFORE_ROOT = re.compile(rb"(?:[ \t\r\n]+|<!--(?:[^-]|-(?!-))*-->)*")
_ROOT = re.compile(rb"<[A-Za-z_:\x80-\xff]")
# An unterminated comment or section matches up to the end of the envelope. It is malformed in any
# case, and searching for its end again and again would take quadratic time.
_COMMENT_OR_CDATA = re.compile(rb"<!--.*?(?:-->|\Z)|<!\[CDATA\[.*?(?:\]\]>|\Z)", re.DOTALL)
_LONG_ATTRIBUTE = re.compile(
    rb"=[ \t\r\n]*(?:\"[^\"<]{%d}|'[^'<]{%d})"
    % (ATTRIBUTE_LENGTH_MAX + 1, ATTRIBUTE_LENGTH_MAX + 1)
)
_TAG = re.compile(rb"<[^<>\"']*(?:\"[^\"]*\"[^<>\"']*|'[^']*'[^<>\"']*)*>")
_BOM = b"\xef\xbb\xbf"


def parse_tree(envelope: bytes) -> Element:
    """Return the root of ``envelope``. Comments are dropped, and the texts around them are joined.

    Raises :class:`RemoteProtocolError` (400) if the envelope is not well-formed, is forbidden by
    SOAP, or exceeds a limit.
    """
    start = _check_prolog(envelope)
    try:
        envelope.decode()
    except UnicodeDecodeError:
        raise RemoteProtocolError("the envelope is not UTF-8", section="[MC-MQSRM] 2.2.2") from None
    if envelope.find(b"<?", start) >= 0 and b"<?" in _COMMENT_OR_CDATA.sub(b"", envelope[start:]):
        raise RemoteProtocolError(
            "a SOAP message holds no processing instruction", section="SOAP 1.1 section 3"
        )
    # An element has at most two tags, so more tags exceed the limit before parsing.
    if envelope.count(b"<") > 2 * ELEMENTS_MAX:
        tags = _COMMENT_OR_CDATA.sub(b"", envelope).count(b"<")
        if tags > 2 * ELEMENTS_MAX:
            raise LimitExceededError("ELEMENTS_MAX", ELEMENTS_MAX, (tags + 1) // 2)
    # The checks above have refused everything that makes this parser unsafe.
    parser = ElementTree.XMLParser()  # noqa: S314
    try:
        parser.feed(envelope)
        root = parser.close()
    except (ElementTree.ParseError, ValueError) as error:
        raise RemoteProtocolError(f"not well-formed: {ascii(str(error))[1:-1][:200]}") from None
    if (
        envelope.count(b"<") > ELEMENTS_MAX
        or envelope.count(b"=") > ATTRIBUTES_MAX
        or (len(envelope) > ATTRIBUTE_LENGTH_MAX and _LONG_ATTRIBUTE.search(envelope))
    ):
        _check_limits(root)
    return root


def _check_prolog(envelope: bytes) -> int:
    """Check everything before the root element, and return the end of the XML declaration.

    The result is an offset. Without a declaration it is the offset after the byte order mark, or 0.
    Raises :class:`RemoteProtocolError` for another encoding than UTF-8, for a document type, and if
    no element follows.
    """
    start = 3 if envelope.startswith(_BOM) else 0
    declaration = _DECLARATION.match(envelope, start)
    if declaration is not None:
        if declaration[1] is not None and declaration[1].lower() != b"utf-8":
            raise RemoteProtocolError(
                f"the envelope is UTF-8, not {declaration[1].decode()}", section="[MC-MQSRM] 2.2.2"
            )
        start = declaration.end()
    blank = _BEFORE_ROOT.match(envelope, start)
    root = blank.end() if blank is not None else start
    if envelope.startswith(b"<!DOCTYPE", root):
        raise RemoteProtocolError(
            "a SOAP message holds no document type", section="SOAP 1.1 section 3"
        )
    if not _ROOT.match(envelope, root):
        raise RemoteProtocolError(
            "the envelope does not begin with an element, or is not UTF-8",
            section="[MC-MQSRM] 2.2.2",
        )
    return start


def check_depth(element: Element, depth: int) -> None:
    """Raise :class:`LimitExceededError` if ``element`` has elements deeper than ``DEPTH_MAX``.

    ``depth`` is the depth of ``element``; the root has depth 1.
    """
    level = list(element)
    while level:
        depth += 1
        if depth > DEPTH_MAX:
            raise LimitExceededError("DEPTH_MAX", DEPTH_MAX, depth)
        level = [child for parent in level for child in parent]


def _check_limits(root: Element) -> None:
    """Raise :class:`LimitExceededError` if the tree exceeds a limit.

    The limits are those of elements, of attributes and of the length of an attribute. Call this
    only if the counts over the bytes do not show that the tree is within them.
    """
    for count, element in enumerate(root.iter(), start=1):
        if count > ELEMENTS_MAX:
            raise LimitExceededError("ELEMENTS_MAX", ELEMENTS_MAX, count)
        if len(element.attrib) > ATTRIBUTES_MAX:
            raise LimitExceededError("ATTRIBUTES_MAX", ATTRIBUTES_MAX, len(element.attrib))
        for name, value in element.attrib.items():
            longest = max(len(name), len(value))
            if longest > ATTRIBUTE_LENGTH_MAX:
                raise LimitExceededError("ATTRIBUTE_LENGTH_MAX", ATTRIBUTE_LENGTH_MAX, longest)


def inner_xml_of_body(envelope: bytes) -> str:
    """Return the text between the tags of ``<se:Body>`` unchanged, except for XML's line ends.

    Its prefixes may be declared further outside. ``envelope`` was parsed before, and the Body is
    the root's second child.
    """
    parser = expat.ParserCreate()
    depth = children = start_at = end_at = 0

    def start(_name: str, _attributes: dict[str, str]) -> None:
        nonlocal depth, children, start_at
        depth += 1
        if depth == 2:
            children += 1
            if children == 2:
                tag = _TAG.match(envelope, parser.CurrentByteIndex)
                assert tag is not None, "expat has read this tag"
                start_at = tag.end()

    def end(_name: str) -> None:
        nonlocal depth, end_at
        if depth == 2 and children == 2:
            end_at = parser.CurrentByteIndex
        depth -= 1

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.Parse(envelope, True)
    return envelope[start_at:end_at].decode().replace("\r\n", "\n").replace("\r", "\n")
