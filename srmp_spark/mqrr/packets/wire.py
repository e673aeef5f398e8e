"""What all headers share: the check before each read, padding, WCHAR texts ([MS-MQMQ] 2.2.18)."""

from __future__ import annotations

from srmp_spark.errors import LocalProtocolError, RemoteProtocolError


def require(at: int, size: int, end: int, what: str, section: str) -> None:
    """``size`` bytes must lie between ``at`` and ``end``. Raises :class:`RemoteProtocolError` with the name of the field."""
    if size > end - at:
        raise RemoteProtocolError(
            f"{what} needs {size} bytes and {max(0, end - at)} are left in the packet",
            section=section,
        )


def padded(size: int) -> int:
    """``size`` rounded up to four bytes: where the next header begins, from the start of this one."""
    return size + 3 & ~3


def pad(data: bytes) -> bytes:
    """``data`` with zeros up to the next four bytes."""
    return data + bytes(-len(data) % 4)


def read_wchars(data: bytes, at: int, count: int) -> str:
    """A text of at most ``count`` WCHARs, up to its first NUL. The caller has made sure that ``2 × count`` bytes are there."""
    if not count or not (data[at] or data[at + 1]):
        return ""  # most fields of a packet that may hold a text hold none
    text = data[at : at + 2 * count].decode("utf-16-le", "surrogatepass")
    return text.partition("\0")[0]


def write_wchars(text: str) -> bytes:
    """``text`` and its NUL, UTF-16LE. Raises :class:`LocalProtocolError` for a NUL inside: no reader would see what follows."""
    if "\0" in text:
        raise LocalProtocolError(
            f"a text on the wire ends with its first NUL, and one stands inside: {text[:50]!r}"
        )
    return f"{text}\0".encode("utf-16-le", "surrogatepass")


def fits(value: int, high: int, what: str) -> int:
    """``value``, if it lies in [0, ``high``]. Raises :class:`LocalProtocolError`: the caller made a header that nobody can
    send."""
    if not 0 <= value <= high:
        raise LocalProtocolError(f"{what} is a number from 0 to {high}, not {value}")
    return value
