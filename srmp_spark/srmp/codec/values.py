"""The data types of [MC-MQSRM] 2.2.1 and their texts: dates, numbers, identifiers, names.

Each type has a parser, which raises only :class:`RemoteProtocolError`, and a writer if this package
sends it. This module computes the calendar itself (Howard Hinnant's ``days_from_civil``) for three
reasons. The layout ``YYYYMMDDThhmmss`` is fixed. ``strptime`` takes twenty times as long. The
errors of ``datetime`` do not distinguish a leap second or a 31 February from a misprint.
"""

from __future__ import annotations

import re
from binascii import a2b_base64, b2a_base64
from functools import lru_cache

from srmp_spark.errors import LocalProtocolError, RemoteProtocolError
from srmp_spark.message import StreamId
from srmp_spark.names import parse_guid
from srmp_spark.srmp.limits import DATE_CACHE_MAX, UNSIGNED_LONG_MAX

XML_SPACE = " \t\r\n"
"""White space of XML 1.0. ``str.strip()`` without this argument would strip more."""

NEVER_AT = 2_147_483_647_000_000
"""``20380119T031407``, with which Windows writes "does not expire", in microseconds: 2**31 - 1
seconds.
"""

SECOND = 1_000_000
"""Microseconds in a second. A date in an envelope has whole seconds."""

_SECONDS_A_DAY = 86_400
_DAYS_A_MONTH = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_DATE = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})T([0-9]{2})([0-9]{2})([0-9]{2})")
_NUMBER = re.compile(r"[0-9]{1,20}")
_STRICT_NUMBER = re.compile(r"0|[1-9][0-9]{0,19}")
_MESSAGE_ID = re.compile(r"uuid:([0-9]{1,20})@(.*)", re.DOTALL)
_STREAM_ID = re.compile(r"uid:([^\\]*)\\([0-9]{1,20})")
_CORRELATION = re.compile(r"[A-Za-z0-9+/]{27}=")
_URL = re.compile(r"https?://", re.IGNORECASE)

CORRELATION_LENGTH = 20
"""Bytes of an OBJECTID: a GUID of 16 bytes and a 32-bit number ([MS-MQMQ] 2.2.8)."""


def _quoted(text: str) -> str:
    """Return the beginning of the peer's text on one line, to quote it in an error message."""
    return ascii(text[:50])


@lru_cache(maxsize=DATE_CACHE_MAX)
def parse_date(text: str) -> int:
    """Return ``YYYYMMDDThhmmss``, UTC, as microseconds since 1970 ([MC-MQSRM] 2.2.1.2).

    Raises :class:`RemoteProtocolError` for any other form, and for a date that no calendar has:
    month 13, 31 February, second 60.
    """
    match = _DATE.fullmatch(text)
    if match is None:
        raise RemoteProtocolError(
            f"not a date YYYYMMDDThhmmss: {_quoted(text)}", section="[MC-MQSRM] 2.2.1.2"
        )
    year, month, day, hour, minute, second = map(int, match.groups())
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not (
        year >= 1
        and 1 <= month <= 12
        and 1 <= day <= _DAYS_A_MONTH[month] + leap
        and hour <= 23
        and minute <= 59
        and second <= 59
    ):
        raise RemoteProtocolError(
            f"no calendar has this date: {_quoted(text)}", section="[MC-MQSRM] 2.2.1.2"
        )
    # These years begin in March, so that the leap day is their last day.
    shifted = year - (month <= 2)
    era, year_of_era = divmod(shifted, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    days = era * 146_097 + day_of_era - 719_468
    return (days * _SECONDS_A_DAY + hour * 3600 + minute * 60 + second) * SECOND


@lru_cache(maxsize=DATE_CACHE_MAX)
def format_date(at: int) -> str:
    """Return microseconds since 1970 as ``YYYYMMDDThhmmss``. A fraction of a second is cut off.

    Raises :class:`LocalProtocolError` outside the years 1 to 9999, which this form cannot express.
    """
    days, second = divmod(at // SECOND, _SECONDS_A_DAY)
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (
        day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096
    ) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted_month + 2) // 5 + 1
    month = shifted_month + 3 if shifted_month < 10 else shifted_month - 9
    year = year_of_era + era * 400 + (month <= 2)
    if not 1 <= year <= 9999:
        raise LocalProtocolError(f"a date of SRMP lies in the years 1 to 9999, this one in {year}")
    hour, rest = divmod(second, 3600)
    return f"{year:04d}{month:02d}{day:02d}T{hour:02d}{rest // 60:02d}{rest % 60:02d}"


def unsigned_long(
    text: str, name: str, *, maximum: int = UNSIGNED_LONG_MAX, section: str = "[MC-MQSRM] 2.2.1.3"
) -> int:
    """Parse an xs:unsignedLong in decimal digits. The type allows leading zeros.

    Raises :class:`RemoteProtocolError` for any other text, and for a number above ``maximum``.
    """
    if not _NUMBER.fullmatch(text):
        raise RemoteProtocolError(f"<{name}> is not a number: {_quoted(text)}", section=section)
    return _bounded(int(text), name, 0, maximum, section)


def sequence_number(text: str, name: str, *, minimum: int, maximum: int, section: str) -> int:
    """Parse a position in a stream: digits only, without leading zeros.

    Two texts must not name one position. Raises :class:`RemoteProtocolError` for any other text,
    and for a number outside ``minimum`` to ``maximum``.
    """
    if not _STRICT_NUMBER.fullmatch(text):
        raise RemoteProtocolError(f"<{name}> is not a position: {_quoted(text)}", section=section)
    return _bounded(int(text), name, minimum, maximum, section)


def _bounded(number: int, name: str, minimum: int, maximum: int, section: str) -> int:
    if not minimum <= number <= maximum:
        raise RemoteProtocolError(
            f"<{name}> lies between {minimum} and {maximum}, got {number}", section=section
        )
    return number


def parse_message_id(text: str, *, section: str = "[MC-MQSRM] 2.2.4.3") -> tuple[int, str]:
    """Parse ``uuid:N@GUID`` and return (uniquifier, lineage).

    Raises :class:`RemoteProtocolError` for any other text.
    """
    match = _MESSAGE_ID.fullmatch(text)
    if match is None:
        raise RemoteProtocolError(
            f"not an identifier uuid:N@GUID: {_quoted(text)}", section=section
        )
    return unsigned_long(match[1], "id", section=section), parse_guid(match[2])


def parse_stream_id(text: str) -> StreamId:
    r"""Parse a stream identifier ``uid:GUID\N`` ([MC-MQSRM] 2.2.5.3.1).

    Raises :class:`RemoteProtocolError` for any other text.
    """
    match = _STREAM_ID.fullmatch(text)
    if match is None:
        raise RemoteProtocolError(
            f"not a stream identifier uid:GUID\\N: {_quoted(text)}", section="[MC-MQSRM] 2.2.5.3.1"
        )
    return StreamId(
        parse_guid(match[1]), unsigned_long(match[2], "streamId", section="[MC-MQSRM] 2.2.5.3.1")
    )


def parse_correlation(text: str) -> bytes:
    """Return the 20 bytes of a ``<Correlation>`` ([MC-MQSRM] 2.2.6.5).

    The bytes are an OBJECTID. Raises :class:`RemoteProtocolError` if there are more or fewer, or if
    the text is not base64.
    """
    if not _CORRELATION.fullmatch(text):
        raise RemoteProtocolError(
            f"<Correlation> is not 20 bytes in base64: {_quoted(text)}",
            section="[MC-MQSRM] 2.2.6.5",
        )
    return a2b_base64(text)


def format_correlation(correlation: bytes) -> str:
    """Return a correlation of 20 bytes in base64, on one line.

    Raises :class:`LocalProtocolError` for any other length.
    """
    if len(correlation) != CORRELATION_LENGTH:
        raise LocalProtocolError(
            f"a correlation identifier has {CORRELATION_LENGTH} bytes, this one {len(correlation)}"
        )
    return b2a_base64(correlation, newline=False).decode()


def parse_destination(text: str) -> str:
    """Return the address in ``<to>``: a bare URL or ``MSMQ:MULTICAST=…``.

    A ``DIRECT=``, which the receiver adds (3.1.5.1.1), is removed if it was sent. The codec decides
    neither what kind of address it is nor to which host it belongs. Raises
    :class:`RemoteProtocolError` if the text is empty.
    """
    address = text[7:] if text[:7].upper() == "DIRECT=" else text
    if not address:
        raise RemoteProtocolError("<to> is empty", section="[MC-MQSRM] 2.2.4.2")
    return address


def parse_response_queue(text: str) -> str | None:
    """Return the queue in ``<via>``: a URL, or the name after ``MSMQ:``.

    Return ``None`` for any other text, which names no queue (3.1.5.1.1).
    """
    if _URL.match(text):
        return text
    return text[5:] or None if text.startswith("MSMQ:") else None


def format_response_queue(name: str) -> str:
    """Return the text of ``<via>`` for a queue, the inverse of :func:`parse_response_queue`."""
    return name if _URL.match(name) else f"MSMQ:{name}"
