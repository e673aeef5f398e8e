"""Parse the data types of the protocol: numbers, URIs, durations, flags.

Each type has a parser, which raises only :class:`RemoteProtocolError`. ``name`` and ``section`` are
the names of the element and of the specification's section for the error.
"""

from __future__ import annotations

import re

from srmp_spark.errors import LimitExceededError, RemoteProtocolError
from srmp_spark.wsrm.codec.xml_tree import XML_SPACE
from srmp_spark.wsrm.limits import BUFFER_REMAINING_MAX, EXPIRES_MAX, IDENTIFIER_MAX, NUMBER_MAX

_NUMBER = re.compile(r"\+?[0-9]{1,20}")
_DURATION = re.compile(
    r"P(?=[0-9T])(?:([0-9]{1,6})Y)?(?:([0-9]{1,6})M)?(?:([0-9]{1,6})D)?"
    r"(?:T(?=[0-9])(?:([0-9]{1,9})H)?(?:([0-9]{1,9})M)?(?:([0-9]{1,9})(?:\.([0-9]{1,9}))?S)?)?"
)
_MILLISECONDS = (365 * 86_400_000, 30 * 86_400_000, 86_400_000, 3_600_000, 60_000, 1_000)
"""Milliseconds of a year, a month, a day, an hour, a minute and a second.

xs:duration leaves the length of year and month open.
"""


def number(
    text: str, name: str, section: str, *, minimum: int = 0, maximum: int = NUMBER_MAX
) -> int:
    """Return the unsigned number in ``text``, from ``minimum`` to ``maximum``, both included.

    Leading zeros and a plus sign are allowed, because the lexical space of the type has them.
    Raises :class:`RemoteProtocolError` if ``text`` is no such number.
    """
    text = text.strip(XML_SPACE)
    if not _NUMBER.fullmatch(text):
        raise RemoteProtocolError(f"{name} is not a number: {text[:40]!a}", section=section)
    value = int(text)
    if not minimum <= value <= maximum:
        raise RemoteProtocolError(
            f"{name} lies between {minimum} and {maximum}, got {value}", section=section
        )
    return value


def buffer_remaining(text: str) -> int:
    """Return the BufferRemaining in ``text``: an xs:int from 0 to 2147483647, both included.

    See [MS-WSRVCRM] 2.2.3. Raises :class:`RemoteProtocolError` if ``text`` is no such number.
    """
    return number(text, "BufferRemaining", "[MS-WSRVCRM] 2.2.3", maximum=BUFFER_REMAINING_MAX)


def uri(text: str, name: str, section: str) -> str:
    """Return the URI in ``text`` without white space around it.

    The URI is not normalized, because URIs are compared letter for letter. Raises
    :class:`RemoteProtocolError` if the URI is empty, longer than ``IDENTIFIER_MAX`` characters or
    has white space or unprintable characters.
    """
    text = text.strip(XML_SPACE)
    if not text:
        raise RemoteProtocolError(f"{name} is empty", section=section)
    if len(text) > IDENTIFIER_MAX:
        raise LimitExceededError("IDENTIFIER_MAX", IDENTIFIER_MAX, len(text), section=section)
    if any(character in text for character in XML_SPACE) or not text.isprintable():
        raise RemoteProtocolError(f"{name} is no URI: {text[:40]!a}", section=section)
    return text


def duration(text: str, section: str) -> int:
    """Return the xs:duration in ``text`` in milliseconds, at most ``EXPIRES_MAX``.

    A longer one counts as EXPIRES_MAX. 0 means "never" in ``Expires``, so a duration above 0 is at
    least one millisecond. Raises :class:`RemoteProtocolError` if ``text`` is no duration.
    """
    match = _DURATION.fullmatch(text.strip(XML_SPACE))
    if match is None:
        raise RemoteProtocolError(f"not a duration: {text[:40]!a}", section=section)
    whole = sum(
        int(part or 0) * each for part, each in zip(match.groups()[:6], _MILLISECONDS, strict=True)
    )
    fraction = match[7] or ""
    milliseconds = int(fraction.ljust(3, "0")[:3]) if fraction else 0
    if fraction and not whole + milliseconds and int(fraction):
        # 0 would mean "never".
        milliseconds = 1
    return min(whole + milliseconds, EXPIRES_MAX)


def format_duration(milliseconds: int) -> str:
    """Return ``milliseconds`` as the text of an xs:duration in seconds."""
    seconds, rest = divmod(milliseconds, 1_000)
    return f"PT{seconds}.{rest:03d}S" if rest else f"PT{seconds}S"


def flag(text: str, name: str, section: str) -> bool:
    """Return the value of the xs:boolean in ``text``.

    WCF and CXF's SOAP 1.1 write ``1``, CXF's SOAP 1.2 and Metro write ``true``. Raises
    :class:`RemoteProtocolError` if ``text`` is no xs:boolean.
    """
    text = text.strip(XML_SPACE)
    if text in ("1", "true"):
        return True
    if text in ("0", "false"):
        return False
    raise RemoteProtocolError(f"{name} is 0, 1, true or false, got {text[:20]!a}", section=section)
