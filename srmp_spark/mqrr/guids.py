"""Conversion of GUIDs between their 16 bytes on the wire and the one text form of the package.

The fields of the 16 bytes are little-endian ([MS-DTYP] 2.3.4).
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct

from srmp_spark.errors import LocalProtocolError, RemoteProtocolError
from srmp_spark.names import parse_guid

GUID_SIZE = 16
NULL_GUID_BYTES = bytes(GUID_SIZE)

GUID_CACHE_MAX = 1_024
"""Number of GUIDs that are cached in both forms.

The messages of a queue come from few queue managers, and each message names its queue manager. At
the limit the least recently used GUID is evicted.
"""

_GUID = Struct("<IHH2s6s")


@lru_cache(maxsize=GUID_CACHE_MAX)
def guid_text(data: bytes) -> str:
    """Return the text of 16 bytes, such as ``01234567-89ab-cdef-0123-456789abcdef``."""
    first, second, third, fourth, node = _GUID.unpack(data)
    return f"{first:08x}-{second:04x}-{third:04x}-{fourth.hex()}-{node.hex()}"


@lru_cache(maxsize=GUID_CACHE_MAX)
def guid_bytes(text: str) -> bytes:
    """Return the 16 bytes of a GUID, given its text in any case and without braces.

    Raises :class:`LocalProtocolError` if ``text`` is no GUID.
    """
    try:
        first, second, third, fourth, node = parse_guid(text).split("-")
    except RemoteProtocolError as error:
        raise LocalProtocolError(str(error)) from None
    return _GUID.pack(
        int(first, 16), int(second, 16), int(third, 16), bytes.fromhex(fourth), bytes.fromhex(node)
    )
