"""Check the sizes that an Arrow IPC stream declares before Arrow acts on them.

A compressed buffer begins with its uncompressed length (Arrow columnar format, "Compression"), and
Arrow allocates that length before it decompresses one byte: 19 KB of zeros that were compressed
with ZSTD cost 691 MB. The lengths are in the FlatBuffers metadata of each message and in the first
eight bytes of each buffer, so this module reads them without Arrow.

A client wrote the metadata. Every offset is checked against the end of the message, and no offset
is followed twice.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import pyarrow as pa

from srmp_spark.store.outbox.errors import BAD_STAGE, BatchError
from srmp_spark.store.outbox.limits import RECORD_BATCH_BYTES_MAX, RECORD_BATCH_ROWS_MAX

_HEADER = 2
"""Number of the field of ``Message`` that refers to the header (format/Message.fbs).

``_HEADER_TYPE`` names the type of that table.
"""
_LENGTH, _BUFFERS, _COMPRESSION = 0, 2, 3
"""Numbers of the fields of ``RecordBatch``."""
_ID, _DATA, _IS_DELTA = 0, 1, 2
"""Numbers of the fields of ``DictionaryBatch``."""
_NOT_COMPRESSED = -1
"""Value in place of a length: this buffer is not compressed, although the message is."""


def check_sizes(open_messages: Callable[[], pa.ipc.MessageReader]) -> None:
    """Raise :class:`BatchError` (400) if a stream declares too much memory.

    A record batch, and all dictionaries together, may have ``RECORD_BATCH_BYTES_MAX`` uncompressed
    bytes each. A stream that cannot be parsed, or a record batch of more than RECORD_BATCH_ROWS_MAX
    rows, is refused too. ``open_messages`` opens the stream; its Arrow errors reach the caller.
    """
    dictionaries: dict[int, int] = {}
    try:
        for message in open_messages():
            if message.type == "schema":
                continue
            header = _Table.root(memoryview(message.metadata)).table(_HEADER)
            if message.type == "record batch":
                _check("a record batch has", _unpacked(header, message.body))
            elif message.type == "dictionary":
                number = header.scalar(_ID, "<q", 0)
                # A missing field has the default False.
                before = dictionaries.get(number, 0) if header.scalar(_IS_DELTA, "<?", False) else 0
                dictionaries[number] = before + _unpacked(header.table(_DATA), message.body)
                _check("the dictionaries have", sum(dictionaries.values()))
    except (struct.error, IndexError) as error:
        raise BatchError(
            400, BAD_STAGE, f"not an Arrow IPC stream: {error}", "stage again"
        ) from error


def _check(what: str, size: int) -> None:
    if size > RECORD_BATCH_BYTES_MAX:
        message = (
            f"{what} {size} bytes unpacked, RECORD_BATCH_BYTES_MAX is {RECORD_BATCH_BYTES_MAX}"
        )
        raise BatchError(400, BAD_STAGE, message, "write smaller record batches")


def _unpacked(batch: _Table, body: pa.Buffer | None) -> int:
    """Return how many bytes the buffers of a record batch have without compression.

    The number is what the metadata and the buffers declare. Raises :class:`BatchError` for too many
    rows, and :class:`IndexError` or :class:`struct.error` if the metadata are invalid.
    """
    rows = batch.scalar(_LENGTH, "<q", 0)
    if not 0 <= rows <= RECORD_BATCH_ROWS_MAX:
        message = (
            f"a record batch has {rows} rows, RECORD_BATCH_ROWS_MAX is {RECORD_BATCH_ROWS_MAX}"
        )
        raise BatchError(400, BAD_STAGE, message, "write smaller record batches")
    data = memoryview(b"" if body is None else body)
    is_compressed = batch.has(_COMPRESSION)
    total = 0
    for offset, length in batch.pairs(_BUFFERS):
        if offset < 0 or length < 0 or offset + length > len(data):
            raise IndexError(
                f"a buffer is at {offset} and has {length} bytes, the message has {len(data)}"
            )
        if is_compressed and length:
            (unpacked,) = struct.unpack_from("<q", data, offset)
            # The length without compression.
            length = length - 8 if unpacked == _NOT_COMPRESSED else unpacked
            if length < 0:
                raise IndexError(f"a buffer says that it has {unpacked} bytes")
        total += length
    return total


class _Table:
    """Reads a table of FlatBuffers, whose vtable says where each field, by number, is stored.

    Every read raises :class:`struct.error` or :class:`IndexError` if it leads out of the message.
    """

    def __init__(self, data: memoryview, at: int) -> None:
        self._data, self._at = data, at
        self._fields = at - self._read("<i", at)
        self._fields_bytes = self._read("<H", self._fields)

    @classmethod
    def root(cls, data: memoryview) -> _Table:
        """Return the root table of the message."""
        return cls(data, struct.unpack_from("<I", data, 0)[0])

    def _read(self, kind: str, at: int) -> int:
        # Python would count a negative offset from the end.
        if at < 0:
            raise IndexError(f"an offset leads to {at}")
        found: int = struct.unpack_from(kind, self._data, at)[0]
        return found

    def _place(self, field: int) -> int | None:
        slot = 4 + 2 * field
        if slot + 2 > self._fields_bytes:
            return None
        offset = self._read("<H", self._fields + slot)
        return self._at + offset if offset else None

    def has(self, field: int) -> bool:
        """Return whether the table has the field."""
        return self._place(field) is not None

    def scalar(self, field: int, kind: str, default: int) -> int:
        """Return the number in a field, or ``default`` if the table does not have the field.

        ``kind`` is the format of the number for :mod:`struct`.
        """
        place = self._place(field)
        return default if place is None else self._read(kind, place)

    def table(self, field: int) -> _Table:
        """Return the table that a field refers to.

        Raises :class:`IndexError` if the field is missing.
        """
        place = self._place(field)
        if place is None:
            raise IndexError(f"field {field} is missing")
        return _Table(self._data, place + self._read("<I", place))

    def pairs(self, field: int) -> list[tuple[int, int]]:
        """Return a field that is a vector of pairs of 64-bit numbers; empty if it is missing.

        Raises :class:`IndexError` if the vector is longer than its message.
        """
        place = self._place(field)
        if place is None:
            return []
        begin = place + self._read("<I", place)
        count = self._read("<I", begin)
        if begin + 4 + 16 * count > len(self._data):
            raise IndexError(f"a vector of {count} is longer than its message")
        return list(struct.iter_unpack("<qq", self._data[begin + 4 : begin + 4 + 16 * count]))
