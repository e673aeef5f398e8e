"""Decode the text of a message body by its body type.

The sender states the body type (``body_type``, PROPID_M_BODY_TYPE, a VARIANT type of [MS-MQMQ]
2.2.12).

| body type | who writes it | text |
|---|---|---|
| 8 VT_BSTR, 31 VT_LPWSTR | COM, .NET's ActiveXMessageFormatter | UTF-16LE |
| 30 VT_LPSTR | C programs | valid UTF-8, else Windows-1252 (the code page is not sent) |
| 0 VT_EMPTY | .NET's XmlMessageFormatter, NServiceBus, Rebus, WCF, C | the body, if it is text |
| 768 | .NET's BinaryMessageFormatter | none: reading it would run code that the sender chose |
| others | numbers, dates, arrays, streams of ActiveX | none |

This module guesses from the content only with VT_EMPTY, because there the sender stated no type. A
body with a byte order mark is decoded as the mark says. Any other body is text if it holds no
control characters, except tab, CR and LF, and decodes without error. Its encoding is that of an XML
declaration if :data:`_ENCODINGS` has it, else UTF-8.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

VT_EMPTY = 0
VT_BSTR = 8
VT_LPSTR = 30
VT_LPWSTR = 31

_ENCODINGS = re.compile(
    r"us-ascii|ascii|iso-8859-(?:[1-9]|1[013456])|windows-125[0-8]|koi8-[ru]|shift_jis|euc-jp|euc-kr|gb2312|gbk|gb18030|big5",
    re.IGNORECASE,
)
"""Encodings that an XML declaration may name. A body that declares another one is read as UTF-8.

Python knows dangerous encodings (``idna`` takes quadratic time), so only these are used.
"""
_DECLARATION = re.compile(rb"""<\?xml\s[^>]{0,100}?encoding\s*=\s*["']([A-Za-z0-9_\-]{1,40})["']""")
_MARKS = (b"<?xml", b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
"""Beginnings of a body that declares its own encoding."""
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r"))
_FIRST_LOOK = 64
"""Number of bytes to check first.

Binary data mostly shows a control character within these bytes, so that the rest need not be
scanned.
"""


def body_text(body_type: int, body: bytes) -> str | None:
    """Return the text of a body, or ``None`` if the body is not text.

    The table of the module states the encoding for each ``body_type``. One NUL at the end of a text
    of type VT_BSTR, VT_LPWSTR or VT_LPSTR is left out, and so is the byte order mark of a text of
    type VT_EMPTY. The result is ``None`` for other body types, and for bytes that do not decode.
    """
    if body_type == VT_EMPTY:
        return _undeclared(body)
    if body_type in (VT_BSTR, VT_LPWSTR):
        return _strict(
            body[:-2] if body[-2:] == b"\0\0" and len(body) % 2 == 0 else body, "utf-16-le"
        )
    if body_type == VT_LPSTR:
        body = body.removesuffix(b"\0")
        text = _strict(body, "utf-8")
        return text if text is not None else _strict(body, "cp1252")
    return None


def body_of(body_type: int, text: str) -> bytes:
    """Return the bytes that a sender writes for ``text``, as :func:`body_text` reads them back.

    The encoding is UTF-16LE for VT_BSTR and VT_LPWSTR, else UTF-8. No NUL is added at the end,
    because the length is sent. Raises :class:`UnicodeEncodeError` for half of a surrogate pair.
    """
    return text.encode("utf-16-le" if body_type in (VT_BSTR, VT_LPWSTR) else "utf-8")


def is_plain_text(bodies: Sequence[bytes]) -> bool:
    """Return whether all ``bodies``, which are of type VT_EMPTY, seem to be plain UTF-8 text.

    The function looks for control characters, byte order marks and XML declarations only. The
    result can be ``True`` although a body is not valid UTF-8: the caller finds that out when it
    decodes the bodies.
    """
    if bodies and _has_controls(bodies[0][:_FIRST_LOOK]):
        return False
    if _has_controls(b"".join(bodies)):
        return False
    return not any(body.startswith(_MARKS) for body in bodies)


def _undeclared(body: bytes) -> str | None:
    if body.startswith(_MARKS):
        if body[:3] == _MARKS[1]:
            return _strict(body[3:], "utf-8")
        if body[:2] in _MARKS:
            return _strict(body, "utf-16")
    if _has_controls(body[:_FIRST_LOOK]) or _has_controls(body):
        return None
    if body[:5] == b"<?xml":
        match = _DECLARATION.match(body)
        encoding = match[1].decode() if match is not None else "utf-8"
        if _ENCODINGS.fullmatch(encoding):
            return _strict(body, encoding)
    return _strict(body, "utf-8")


def _has_controls(body: bytes) -> bool:
    return len(body.translate(None, _CONTROLS)) != len(body)


def _strict(body: bytes, encoding: str) -> str | None:
    try:
        return body.decode(encoding)
    except (UnicodeDecodeError, LookupError):
        return None
