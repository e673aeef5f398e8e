"""Check the Body of a message that a caller wants to send.

The Body must be XML that can be placed in any envelope. It is checked alone, as if it were in an
element without a namespace. So the Body must declare every prefix that it uses. It cannot close the
element ``Body`` and continue after it, and no declaration of the envelope changes its meaning.
"""

from __future__ import annotations

from xml.parsers import expat

from srmp_spark.errors import ConfigurationError
from srmp_spark.wsrm.codec.xml_tree import XML_SPACE
from srmp_spark.wsrm.limits import BODY_ELEMENTS_MAX, DEPTH_MAX

_DEPTH_MAX = DEPTH_MAX - 2
"""Most nested elements of the Body alone. Envelope and Body are two more."""
_SPACE = XML_SPACE.encode()


class _BodyError(Exception):
    """Raised by a handler of expat if the Body is not allowed.

    The text completes the sentence "it has …".
    """


class _Judge:
    """Checks one Body. Its methods are the handlers of one pass of the XML parser expat."""

    def __init__(self) -> None:
        self._depth = -1
        self._elements = -1

    def start(self, name: str, _: object) -> None:
        self._depth += 1
        self._elements += 1
        if self._depth > _DEPTH_MAX:
            raise _BodyError(f"more than {_DEPTH_MAX} nested elements")
        if self._elements > BODY_ELEMENTS_MAX:
            raise _BodyError(f"more than {BODY_ELEMENTS_MAX} elements")
        if self._depth == 1 and name.rpartition("}")[2] == "Envelope":
            raise _BodyError(
                "a whole SOAP envelope: give what stands between <Body> and </Body>, the "
                "envelope is made here"
            )

    def end(self, _: str) -> None:
        self._depth -= 1

    def text(self, text: str) -> None:
        if self._depth == 0 and text.strip(XML_SPACE):
            raise _BodyError(f"text outside of any element: {text.strip()[:40]!r}")

    @staticmethod
    def instruction(target: str, _: str) -> None:
        raise _BodyError(f"a processing instruction, <?{target} …?>, which SOAP forbids")


def check_body(body: bytes) -> None:
    """Raise :class:`ConfigurationError` unless ``body`` may be the content of a SOAP Body.

    The error states what is wrong, in a sentence about the Body that begins with "it".
    """
    judge = _Judge()
    parser = expat.ParserCreate(encoding="UTF-8", namespace_separator="}")
    parser.buffer_text = True
    parser.StartElementHandler = judge.start
    parser.EndElementHandler = judge.end
    parser.CharacterDataHandler = judge.text
    parser.ProcessingInstructionHandler = judge.instruction
    if body.lstrip(_SPACE)[:5] in (b"<?xml", b"\xef\xbb\xbf<?"):
        raise ConfigurationError(
            "it begins with an XML declaration, which cannot stand in a Body: leave it out"
        )
    try:
        parser.Parse(b"<b>", False)
        parser.Parse(body, False)
        parser.Parse(b"</b>", True)
    except _BodyError as error:
        raise ConfigurationError(f"it has {error}") from None
    except expat.ExpatError as error:
        raise ConfigurationError(f"it is not well-formed XML in UTF-8: {error}") from None
