"""Read the headers that .NET frameworks keep in a message's ``extension``.

NServiceBus (XML) and Rebus (JSON) store name-value pairs there. The body cannot be understood
without these pairs (message type, correlation, reply address).

* NServiceBus writes ``<ArrayOfHeaderInfo><HeaderInfo><Key>…</Key><Value>…</Value></HeaderInfo>…``
  in UTF-8. Version 3 left NULs after the document. Later versions cut the NULs off, and so does
  this module.
* Rebus writes a JSON object, in .NET's UTF-7 (every ``{``, ``"`` and non-ASCII letter as ``+…-``)
  or, in its newer releases, in UTF-8. JSON begins with ``{``, which .NET's UTF-7 never does, so
  the encoding needs no guess.

A broken extension raises an error. The caller that reads many rows decides what happens with bad
extensions, whose bytes stay in the column.
"""

from __future__ import annotations

import json

from lxml import etree

HEADERS_BYTES_MAX = 1024 * 1024
"""Longest extension that is read, in bytes.

Real headers are far smaller (a stack trace in an error header has some KB). A longer extension
raises :class:`ValueError`.
"""
HEADERS_MAX = 10_000
"""Largest number of headers in one message. More headers raise :class:`ValueError`."""


def nservicebus_headers(extension: bytes) -> dict[str, str]:
    """Return the headers of an NServiceBus message, by name.

    An empty extension has no headers. Raises :class:`ValueError` if the extension does not hold
    NServiceBus headers or exceeds a limit of this module.
    """
    data = _limited(extension).rstrip(b"\0")
    if not data:
        return {}
    parser = etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        remove_comments=True,
        remove_pis=True,
    )
    try:
        root = etree.fromstring(data, parser)
    except etree.XMLSyntaxError as error:
        raise ValueError(f"the extension is no XML: {error}") from None
    if root.getroottree().docinfo.internalDTD is not None:
        raise ValueError("the extension has a DOCTYPE, which NServiceBus never writes")
    if etree.QName(root).localname != "ArrayOfHeaderInfo":
        raise ValueError(
            f"the extension holds <{etree.QName(root).localname[:50]}>, not NServiceBus' "
            "<ArrayOfHeaderInfo>"
        )
    headers: dict[str, str] = {}
    for info in root:
        key, value = (
            next((child.text or "" for child in info if etree.QName(child).localname == name), "")
            for name in _NAMES
        )
        if key:
            headers[key] = value
    return _counted(headers)


def rebus_headers(extension: bytes) -> dict[str, str]:
    """Return the headers of a Rebus message, by name.

    An empty extension has no headers. Raises :class:`ValueError` if the extension does not hold
    Rebus headers or exceeds a limit of this module. A header that is null is left out, and a value
    that is no string is returned as JSON.
    """
    data = _limited(extension).strip(b"\0 \t\r\n").removeprefix(b"\xef\xbb\xbf")
    if not data:
        return {}
    try:
        found = json.loads(data.decode("utf-8" if data.startswith(b"{") else "utf-7"))
    except (UnicodeDecodeError, RecursionError, json.JSONDecodeError) as error:
        raise ValueError(
            f"the extension is no JSON, neither in UTF-8 nor in UTF-7: {error}"
        ) from None
    if not isinstance(found, dict):
        message = f"the extension holds a JSON {type(found).__name__}, not Rebus' object of headers"
        # The data of the sender is wrong, not the type of an argument.
        raise ValueError(message)  # noqa: TRY004
    present = ((name, value) for name, value in found.items() if value is not None)
    return _counted(
        {name: value if isinstance(value, str) else json.dumps(value) for name, value in present}
    )


_NAMES = ("Key", "Value")


def _limited(extension: bytes) -> bytes:
    if len(extension) > HEADERS_BYTES_MAX:
        raise ValueError(
            f"HEADERS_BYTES_MAX is {HEADERS_BYTES_MAX}, the extension has {len(extension)} bytes"
        )
    return extension


def _counted(headers: dict[str, str]) -> dict[str, str]:
    if len(headers) > HEADERS_MAX:
        raise ValueError(f"HEADERS_MAX is {HEADERS_MAX}, the extension has {len(headers)}")
    return headers
