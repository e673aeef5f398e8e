"""Reads strings as .NET's XmlMessageFormatter does: the other side of ``bodyFormat=xml``.

An XML parser cannot replace this reader, because the formatter writes and accepts references to
characters that XML 1.0 forbids.
"""

from __future__ import annotations

import re

_STRING = re.compile(r"\s*(?:<\?xml[^>]{0,100}\?>\s*)?<string(?:\s*/>|>([^<]*)</string>)\s*")


def xml_string(text: str) -> str | None:
    """Return the value of a string that XmlMessageFormatter wrote.

    The text has the form ``<?xml version="1.0"?><string>value</string>``; the declaration may be
    missing. Return ``None`` for any other text.
    """
    match = _STRING.fullmatch(text)
    if match is None:
        return None
    value = (
        (match[1] or "")
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", '"')
        .replace("&apos;", "'")
    )
    value = re.sub(r"&#(x?)([0-9a-fA-F]{1,6});", _character, value)
    return value.replace("&amp;", "&")


def _character(match: re.Match[str]) -> str:
    code = int(match[2], 16 if match[1] else 10)
    return chr(code) if code <= 0x10FFFF else match[0]
