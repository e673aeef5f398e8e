"""Encode strings of a DataFrame as message bodies (option ``bodyFormat`` of the sink).

The reverse is :mod:`srmp_spark.rows.body_text`.

| format | body | body type | who reads it |
|---|---|---|---|
| ``raw`` | the bytes; a string as UTF-8 | 0 VT_EMPTY | NServiceBus, Rebus, C programs |
| ``activex`` | UTF-16LE, no NUL at the end | 8 VT_BSTR | COM, .NET's ActiveXMessageFormatter |
| ``xml`` | XML declaration, CR LF, ``<string>…</string>``, UTF-8 | 0 VT_EMPTY | .NET programs |

``xml`` writes byte for byte what .NET's XmlMessageFormatter writes for a string. Its XmlTextWriter
escapes ``&``, ``<`` and ``>`` in text and leaves quotes, tabs and line ends unchanged. A character
that XML does not allow becomes ``&#x1;``. The empty string becomes ``<string />``.

The functions convert a whole Arrow column at a time. The functions handle texts one by one in two
cases only: UTF-16 outside ASCII, and XML with characters that XML forbids.
"""

from __future__ import annotations

import re
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

BodyFormat = Literal["raw", "activex", "xml"]

COLUMN_BYTES_MAX = 2**31 - 1
"""Largest number of bytes in one Arrow column with 32-bit offsets.

:func:`as_bodies` raises :class:`pyarrow.ArrowInvalid` beyond this limit.
"""

_XML_START = '<?xml version="1.0"?>\r\n<string>'
_XML_END = "</string>"
_XML_EMPTY = '<?xml version="1.0"?>\r\n<string />'
_XML_ESCAPES = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"))
_XML_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_XML_FORBIDDEN_RE2 = r"[\x{0}-\x{8}\x{b}\x{c}\x{e}-\x{1f}\x{fffe}\x{ffff}]"


def as_bodies(texts: pa.StringArray, body_format: BodyFormat) -> pa.BinaryArray:
    """Return the message bodies in ``body_format`` for a column of strings without nulls.

    The result has one body for each string, in the same order. Raises :class:`pyarrow.ArrowInvalid`
    if the bodies take more than :data:`COLUMN_BYTES_MAX` bytes.
    """
    if body_format == "activex":
        return _utf16(texts)
    return (_xml(texts) if body_format == "xml" else texts).cast(pa.binary())


def xml_document(text: str) -> str:
    """Return the XML document that XmlMessageFormatter writes for one string.

    Characters that XML does not allow are written as references (``&#x1;``), as .NET writes them.
    """
    if not text:
        return _XML_EMPTY
    for plain, escaped in _XML_ESCAPES:
        text = text.replace(plain, escaped)
    return _XML_START + _XML_FORBIDDEN.sub(lambda match: f"&#x{ord(match[0]):X};", text) + _XML_END


def _xml(texts: pa.StringArray) -> pa.StringArray:
    if pc.any(pc.match_substring_regex(texts, _XML_FORBIDDEN_RE2)).as_py():
        return pa.array([xml_document(text) for text in texts.to_pylist()], pa.string())
    escaped = texts
    for plain, entity in _XML_ESCAPES:
        escaped = pc.replace_substring(escaped, plain, entity)
    documents = pc.binary_join_element_wise(_XML_START, escaped, _XML_END, "")
    return pc.if_else(pc.equal(pc.binary_length(texts), 0), _XML_EMPTY, documents)


def _utf16(texts: pa.StringArray) -> pa.BinaryArray:
    _, offsets_buffer, data_buffer = texts.buffers()
    if len(texts) == 0 or data_buffer is None:
        return texts.cast(pa.binary())
    offsets = np.frombuffer(offsets_buffer, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(data_buffer, np.uint8)[offsets[0] : offsets[-1]]
    if data.size and int(data.max()) >= 0x80:
        return pa.array([text.encode("utf-16-le") for text in texts.to_pylist()], pa.binary())
    if 2 * data.size > COLUMN_BYTES_MAX:
        raise pa.ArrowInvalid(f"{2 * data.size} bytes of UTF-16 in one batch of rows")
    wide = np.zeros(2 * data.size, np.uint8)
    wide[::2] = data
    return pa.Array.from_buffers(
        pa.binary(),
        len(texts),
        [None, pa.py_buffer((offsets - offsets[0]) * np.int32(2)), pa.py_buffer(wide)],
    )
