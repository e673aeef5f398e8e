"""Helpers of all headers: the check before each read, padding, WCHAR texts ([MS-MQMQ] 2.2.18)."""

from __future__ import annotations

from srmp_spark.errors import LocalProtocolError, RemoteProtocolError


def require(at: int, size: int, end: int, what: str, section: str) -> None:
    """Check that ``size`` bytes lie between the offsets ``at`` and ``end``.

    Raises :class:`RemoteProtocolError` if fewer bytes are left. It names the field (``what``) and
    the ``section`` of the specification.
    """
    if size > end - at:
        raise RemoteProtocolError(
            f"{what} needs {size} bytes and {max(0, end - at)} are left in the packet",
            section=section,
        )


def padded(size: int) -> int:
    """Return ``size`` (in bytes) rounded up to a multiple of four.

    For the size of a header, the result is the offset of the next header from its start.
    """
    return size + 3 & ~3


def pad(data: bytes) -> bytes:
    """Return ``data`` followed by zeros up to the next multiple of four bytes."""
    return data + bytes(-len(data) % 4)


def read_wchars(data: bytes, at: int, count: int) -> str:
    """Decode at most ``count`` WCHARs at ``at``, and return the text before the first NUL.

    The caller has checked that ``2 × count`` bytes are there.
    """
    if not count or not (data[at] or data[at + 1]):
        # This is quick because most text fields of a packet are empty.
        return ""
    text = data[at : at + 2 * count].decode("utf-16-le", "surrogatepass")
    return text.partition("\0")[0]


def write_wchars(text: str) -> bytes:
    """Encode ``text`` and a closing NUL as UTF-16LE.

    Raises :class:`LocalProtocolError` if ``text`` contains a NUL: no reader would see what follows
    the NUL.
    """
    if "\0" in text:
        raise LocalProtocolError(
            f"a text on the wire ends with its first NUL, and one stands inside: {text[:50]!r}"
        )
    return f"{text}\0".encode("utf-16-le", "surrogatepass")


def fits(value: int, high: int, what: str) -> int:
    """Return ``value`` if it lies in [0, ``high``].

    Raises :class:`LocalProtocolError` otherwise: the caller made a header that cannot be sent.
    ``what`` names the field in the error.
    """
    if not 0 <= value <= high:
        raise LocalProtocolError(f"{what} is a number from 0 to {high}, not {value}")
    return value
