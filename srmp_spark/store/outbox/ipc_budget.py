"""Judge the sizes that an Arrow IPC stream declares before Arrow acts on them.

A compressed buffer begins with the length that it will have (Arrow columnar format, "Compression"), and Arrow allocates that
much before it decompresses one byte: 19 KB of zeros that were compressed with ZSTD cost 691 MB. The lengths stand in the
FlatBuffers metadata of each message and in the first eight bytes of each buffer, so they are read here, without Arrow.

The metadata is a client's. Every offset is checked against the end of the message; nothing is followed twice.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import pyarrow as pa

from srmp_spark.store.outbox.errors import BAD_STAGE, BatchError
from srmp_spark.store.outbox.limits import RECORD_BATCH_BYTES_MAX, RECORD_BATCH_ROWS_MAX

_HEADER = 2
"""Field of ``Message``: the table that ``_HEADER_TYPE`` names (format/Message.fbs)."""
_LENGTH, _BUFFERS, _COMPRESSION = 0, 2, 3
"""Fields of ``RecordBatch``."""
_ID, _DATA, _IS_DELTA = 0, 1, 2
"""Fields of ``DictionaryBatch``."""
_NOT_COMPRESSED = -1
"""In place of a length: the buffer is stored as it is, although the message is compressed."""


def check_sizes(open_messages: Callable[[], pa.ipc.MessageReader]) -> None:
    """Raise :class:`BatchError` unless each record batch, and all dictionaries together, fit into their limit unpacked."""
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
                # A default
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
    """Return the bytes that the buffers of a record batch have when they are unpacked."""
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
            length = length - 8 if unpacked == _NOT_COMPRESSED else unpacked  # what it becomes
            if length < 0:
                raise IndexError(f"a buffer says that it has {unpacked} bytes")
        total += length
    return total


class _Table:
    """A table of FlatBuffers: fields by number, each where the table's vtable says."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data, self._at = data, at
        self._fields = at - self._read("<i", at)
        self._fields_bytes = self._read("<H", self._fields)

    @classmethod
    def root(cls, data: memoryview) -> _Table:
        """Return the table that the message consists of."""
        return cls(data, struct.unpack_from("<I", data, 0)[0])

    def _read(self, kind: str, at: int) -> int:
        if at < 0:  # Python would count from the end
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
        """Return whether the field is there."""
        return self._place(field) is not None

    def scalar(self, field: int, kind: str, default: int) -> int:
        """Return a number."""
        place = self._place(field)
        return default if place is None else self._read(kind, place)

    def table(self, field: int) -> _Table:
        """Return the table that the field refers to. Raises :class:`IndexError` if there is none."""
        place = self._place(field)
        if place is None:
            raise IndexError(f"field {field} is missing")
        return _Table(self._data, place + self._read("<I", place))

    def pairs(self, field: int) -> list[tuple[int, int]]:
        """Return a vector of structs of two 64-bit numbers."""
        place = self._place(field)
        if place is None:
            return []
        begin = place + self._read("<I", place)
        count = self._read("<I", begin)
        if begin + 4 + 16 * count > len(self._data):
            raise IndexError(f"a vector of {count} is longer than its message")
        return list(struct.iter_unpack("<qq", self._data[begin + 4 : begin + 4 + 16 * count]))
