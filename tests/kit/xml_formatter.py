"""What .NET's XmlMessageFormatter makes of the string that it reads: the other side of ``bodyFormat=xml``.

An XML parser is no such reader: the formatter writes, and takes, references to characters that XML 1.0 has not.
"""

from __future__ import annotations

import re

_STRING = re.compile(r"\s*(?:<\?xml[^>]{0,100}\?>\s*)?<string(?:\s*/>|>([^<]*)</string>)\s*")


def xml_string(text: str) -> str | None:
    """The value of a string that XmlMessageFormatter wrote (``<?xml version="1.0"?><string>value</string>``), else ``None``."""
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
