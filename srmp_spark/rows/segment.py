"""A segment: some thousand sealed rows of one queue and one epoch, as two Arrow files.

``….columns.arrow`` holds what Spark reads. A column with one value for all rows is stored once, in
the metadata of the schema (45 of 59 columns with a Windows sender). Columns that follow from others
are not stored at all:

    sequence    from the first one, when there is no hole
    message_id  from lineage and uniquifier
    body_text   the bytes of body, when they are the text
    queue_manager, epoch, queue   from the log

``….posts.arrow`` holds what was received, so that the original POST can be returned byte for byte
(remote read, forwarding, ``envelope``). The file holds each post without its body, compressed, and
the offset of the body. A row that was restored from its columns has an empty post. Its record is
made from the columns (:mod:`.kept_columns`) when one is requested.

The columns that may be large stand at the end of the first file, before Arrow's footer. A reader
that needs none of these columns gets the bytes before and after them
(:class:`~srmp_spark.rows.wide_part.WidePart`) and reads the file as if it were whole. Arrow reads
no buffer of a column that was not requested.

Reading restores all columns of INTERFACE.md at about 1 us a row. Most of that time copies strings
that are identical. The files carry no checksum of their own: the log keeps a checksum for each
file, and the dense stream sends it along.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Iterator
from decimal import Decimal
from itertools import zip_longest
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from srmp_spark.errors import StoreDamagedError
from srmp_spark.message import Arrival
from srmp_spark.rows.columns import LOG_COLUMNS, NAMES, WIDE, arrow_schema
from srmp_spark.rows.group import Form, Record
from srmp_spark.rows.kept_columns import KEPT, record_of_columns
from srmp_spark.rows.made_columns import Decoded, columns_of, message_ids, with_log_columns
from srmp_spark.rows.wide_part import WidePart

FORMAT = 1
METADATA = b"srmp.segment"
DICTIONARY_MAX = 256
"""Largest number of different values with which a column is stored as a dictionary.

There may also be at most one value for every four rows. The columns are those of text or bytes
(peers, labels, heartbeats). A column with more values is stored plain.
"""
CONSTANT_BYTES_MAX = 1024
"""Longest value, in bytes, that is stored once in the metadata when all rows share it.

A longer value is stored as a dictionary with one entry, because the metadata stand in the file
twice.
"""
WIDE_BYTES_MIN = 16_384
"""Smallest wide part, in bytes, that a reader may leave out.

A smaller one is sent with the rest, because leaving it out would cost more calls than bytes.
"""
POSTS_AT_ONCE = 256
"""Number of posts that are whole in memory at a time while a segment is read.

These are half a megabyte of small posts.
"""

_DERIVED_FROM = {"message_id": ("lineage", "uniquifier"), "body_text": ("body",)}
"""Columns that are not stored when they follow from others, with the columns they follow from."""
_types: dict[str, pa.DataType] = {field.name: field.type for field in arrow_schema()}
_POSTS = pa.schema(
    [
        # The post without its body.
        ("post", pa.binary()),
        # The offset of the body in the whole post; -1 if the post has no body.
        ("body_at", pa.int32()),
        ("head_length", pa.int32()),
        # The offset of the envelope in the whole post.
        ("envelope_at", pa.int32()),
        ("envelope_length", pa.int32()),
        ("form", pa.uint8()),
    ]
)


class SegmentBytes(NamedTuple):
    """The two files of a segment as bytes, and the length of each row's post in bytes."""

    columns: bytes
    posts: bytes
    sizes: list[int]
    wide: WidePart | None
    """Place of the wide part, or ``None`` if the file of columns has no wide part."""


def encode_segment(decoded: Decoded) -> SegmentBytes:
    """Return the two files of a segment for decoded rows, at least one, in ascending order.

    Nothing is written to disk. The files are read back and compared with the records. Raises
    :class:`StoreDamagedError` if they differ.
    """
    columns = columns_of(decoded)
    columns_file = _encode_columns(columns, decoded.sequences)
    posts_file = _encode_posts(decoded)
    restored = (record for _, record in records_of(columns_file, posts_file))
    # A bug here must not lose the original, which is deleted after this call. The records are
    # compared one by one, because all of them need as many bytes again.
    if any(ours != theirs for ours, theirs in zip_longest(restored, decoded.records)):
        raise StoreDamagedError(
            f"a segment of rows {decoded.sequences[0]} to {decoded.sequences[-1]} did not read back"
        )
    return SegmentBytes(
        columns_file,
        posts_file,
        [len(record.post) for record in decoded.records],
        wide_part(columns_file),
    )


def segment_of_rows(batch: pa.RecordBatch) -> SegmentBytes:
    """Return the two files of a segment for rows that have only their columns.

    ``batch`` has the columns of INTERFACE.md, one queue, one epoch and at least one row, with
    ascending sequences. The files hold none of the received bytes. The size of a row is the size of
    its body and extension in bytes, and at least 1.
    """
    columns = {
        name: batch.column(name)
        for name in batch.schema.names
        if name not in (*LOG_COLUMNS, "envelope")
    }
    columns["message_id"] = message_ids(columns["lineage"], columns["uniquifier"])
    nothing = {
        "post": b"",
        "body_at": -1,
        "head_length": 0,
        "envelope_at": 0,
        "envelope_length": 0,
        "form": Form.COLUMNS.value,
    }
    posts = {
        field.name: pa.repeat(pa.scalar(nothing[field.name], field.type), batch.num_rows)
        for field in _POSTS
    }
    posts_file = _file(posts, {METADATA: json.dumps({"format": FORMAT}).encode()}, "zstd")
    sizes = [
        # A size of 0 would mean a hole.
        max(1, (body or 0) + (extension or 0))
        for body, extension in zip(
            pc.binary_length(columns["body"]).to_pylist(),
            pc.binary_length(columns["extension"]).to_pylist(),
            strict=True,
        )
    ]
    columns_file = _encode_columns(columns, columns["sequence"].to_pylist())
    return SegmentBytes(columns_file, posts_file, sizes, wide_part(columns_file))


def wide_part(columns_file: bytes) -> WidePart | None:
    """Return where the large columns (:data:`.WIDE`) lie in a file of columns.

    Return ``None`` if the file stores no large columns, if they do not stand at its end, or if they
    take fewer bytes than :data:`WIDE_BYTES_MIN`.
    """
    file = pa.py_buffer(columns_file)
    reader = pa.ipc.open_file(file)
    names = reader.schema.names
    wide = [name for name in names if name in WIDE]
    if not wide or names[-len(wide) :] != wide:
        return None
    batch = reader.get_batch(0)
    places = [
        (buffer.address - file.address, buffer.address - file.address + buffer.size)
        for name in wide
        for buffer in _buffers(batch.column(name))
    ]
    begin, end = (
        min((place[0] for place in places), default=0),
        max((place[1] for place in places), default=0),
    )
    if end - begin < WIDE_BYTES_MIN:
        return None
    return WidePart(begin, end, zlib.crc32(columns_file[end:], zlib.crc32(columns_file[:begin])))


def _buffers(column: pa.Array) -> Iterator[pa.Buffer]:
    """Yield the buffers of a column that stand in the record batch.

    The buffers of a dictionary stand before the batch.
    """
    if pa.types.is_dictionary(column.type):
        column = column.indices
    yield from (buffer for buffer in column.buffers() if buffer is not None and buffer.size)


def read_segment(
    columns_file: bytes,
    queue_manager: str,
    epoch: str,
    queue: str,
    posts_file: bytes | None = None,
    *,
    names: tuple[str, ...] = NAMES,
) -> pa.RecordBatch:
    """Return all rows of a segment as one batch with the columns ``names``.

    ``queue_manager``, ``epoch`` and ``queue`` are the values of those columns. The column
    ``envelope`` is read from ``posts_file``, and is null without it. Raises
    :class:`StoreDamagedError` if a file cannot be read or has a newer format.
    """
    columns, rows = _decode_columns(columns_file, names if posts_file is None else (*names, "body"))
    if posts_file is not None and "envelope" in names:
        columns["envelope"] = _envelopes(posts_file, columns["body"])
    return with_log_columns(columns, rows, queue_manager, epoch, queue, names)


def arrivals_of(path: str) -> tuple[pa.Array, pa.Array]:
    """Return ``sequence`` and ``arrived_at`` of all rows of a file of columns, as two arrays.

    Times are in microseconds since 1970. Nothing else of the file is read, and the checksum of the
    file is not verified. Raises :class:`StoreDamagedError` if the file cannot be read, and
    :class:`FileNotFoundError` if it is missing.
    """
    with pa.memory_map(path) as file:
        try:
            reader = pa.ipc.open_file(file)
            note = json.loads((reader.schema.metadata or {})[METADATA])
            rows, derived = note["rows"], note["derived"]
            batch = reader.get_batch(0) if reader.num_record_batches else None
            stored = (
                {} if batch is None else dict(zip(batch.schema.names, batch.columns, strict=True))
            )
            if "arrived_at" in note["constants"]:
                arrived = pa.repeat(
                    pa.scalar(int(note["constants"]["arrived_at"]), pa.int64()), rows
                )
            else:
                arrived = stored["arrived_at"].cast(pa.int64())
            if "sequence" in derived:
                sequences = pa.array(
                    range(derived["sequence"], derived["sequence"] + rows), pa.int64()
                )
            else:
                sequences = stored["sequence"]
        except (pa.ArrowInvalid, OSError, KeyError, ValueError) as error:
            raise StoreDamagedError(f"a segment file cannot be read: {error}") from error
    return sequences, arrived


def records_of(
    columns_file: bytes, posts_file: bytes, keep: tuple[tuple[int, int], ...] | None = None
) -> Iterator[tuple[int, Record]]:
    """Yield the (sequence, record) pairs of a segment as they were accepted, byte for byte.

    A restored row yields a record of its columns. With ``keep``, only sequences in these closed
    ranges (bounds included) are yielded. Raises :class:`StoreDamagedError` if a file cannot be
    read.
    """
    columns, rows = _decode_columns(columns_file)
    arrivals = zip(
        columns["arrived_at"].cast(pa.int64()).to_pylist(),
        columns["transport"].to_pylist(),
        columns["peer"].to_pylist(),
        columns["sender_name"].to_pylist() if "sender_name" in columns else [None] * rows,
        strict=True,
    )
    placing = _posts_of(posts_file)
    posts = _whole_posts(placing, columns["body"])
    heads, forms = placing.column("head_length").to_pylist(), placing.column("form").to_pylist()
    left = _ColumnsLeft(columns)
    for at, (sequence, arrival, post, head_length, form) in enumerate(
        zip(columns["sequence"].to_pylist(), arrivals, posts, heads, forms, strict=True)
    ):
        if keep is not None and not any(first <= sequence <= last for first, last in keep):
            continue
        if post:
            yield sequence, Record(Arrival(*arrival), post, head_length, Form(form))
        else:
            # An empty post means a restored row. The form is not checked, because the first
            # versions wrote form 0 here.
            yield sequence, record_of_columns(Arrival(*arrival), left.row(at))


class _ColumnsLeft:
    """Reads the rows of a segment one by one, as values by column name.

    :data:`POSTS_AT_ONCE` rows are in memory at a time.
    """

    def __init__(self, columns: dict[str, pa.Array]) -> None:
        self._columns = {name: columns[name] for name in (*KEPT, "body") if name in columns}
        self._start = 0
        self._values: dict[str, list[Any]] = {}

    def row(self, at: int) -> dict[str, Any]:
        """Return the values of the row at index ``at``, by column name.

        Times are in microseconds since 1970. Rows should be requested in ascending order.
        """
        start = at - at % POSTS_AT_ONCE
        if not self._values or start != self._start:
            self._start = start
            self._values = {
                name: _plain(column.slice(start, POSTS_AT_ONCE))
                for name, column in self._columns.items()
            }
        return {name: values[at - start] for name, values in self._values.items()}


def _plain(column: pa.Array) -> list[Any]:
    values: list[Any] = (
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
    ).to_pylist()
    return values


def rows_kept(batch: pa.RecordBatch, keep: tuple[tuple[int, int], ...]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ``batch`` in the closed ranges ``keep``, one batch for each range.

    ``batch`` has the column ``sequence``, ascending, and at least one row. A range without rows is
    left out. In a batch without holes the rows are slices, which copy nothing.
    """
    sequences = batch.column("sequence")
    first, last = sequences[0].as_py(), sequences[-1].as_py()
    without_holes = last - first + 1 == batch.num_rows
    for low, high in keep:
        if without_holes:
            low, high = max(low, first), min(high, last)
            part = batch.slice(low - first, max(0, high - low + 1))
        else:
            part = batch.filter(
                pc.and_(pc.greater_equal(sequences, low), pc.less_equal(sequences, high))
            )
        if part.num_rows:
            yield part


def _encode_columns(columns: dict[str, pa.Array], sequences: list[int]) -> bytes:
    rows = len(sequences)
    derived: dict[str, object] = {"message_id": "lineage, uniquifier"}
    if sequences[-1] - sequences[0] + 1 == rows:
        derived["sequence"] = sequences[0]
    if columns["body_text"].null_count == 0 and columns["body_text"].cast(pa.binary()).equals(
        columns["body"]
    ):
        derived["body_text"] = "body"
    constants, stored = {}, {}
    for name, column in columns.items():
        if name in derived or column.null_count == rows:
            # A column that is not stored is read as null.
            continue
        if _is_constant(column):
            constants[name] = _to_json(column[0])
        else:
            stored[name] = _dictionary(column)
    note = {"format": FORMAT, "rows": rows, "derived": derived, "constants": constants}
    stored = {name: stored[name] for name in sorted(stored, key=_place)}
    return _file(stored, {METADATA: json.dumps(note).encode()}, None)


def _decode_columns(
    columns_file: bytes, names: Iterable[str] = NAMES
) -> tuple[dict[str, pa.Array], int]:
    """Return the requested columns of a file by name, and the number of rows.

    The result has the columns ``names`` and the columns that they are made from. A column that is
    null in every row is missing. Nothing else of the file is read. Raises
    :class:`StoreDamagedError` if the file cannot be read.
    """
    wanted = _sources_of(names)
    try:
        reader = pa.ipc.open_file(pa.py_buffer(columns_file))
        note = json.loads((reader.schema.metadata or {})[METADATA])
        if note["format"] != FORMAT:
            message = (
                f"a segment has format {note['format']}, this version reads "
                f"{FORMAT}: start the newer version"
            )
            raise StoreDamagedError(message)
        rows, derived, stored = note["rows"], note["derived"], reader.schema.names
        unknown = {*stored, *derived, *note["constants"]} - set(NAMES) | set(stored) & set(
            LOG_COLUMNS
        )
        if unknown:
            raise StoreDamagedError(
                f"a segment file has other columns than this version knows: {sorted(unknown)}"
            )
        included = [at for at, name in enumerate(stored) if name in wanted]
        if len(included) < len(stored):
            options = pa.ipc.IpcReadOptions(included_fields=included)
            reader = pa.ipc.open_file(pa.py_buffer(columns_file), options=options)
        batch = reader.get_batch(0) if included else None
        columns = {
            name: _repeat(name, value, rows)
            for name, value in note["constants"].items()
            if name in wanted
        }
    except (pa.ArrowInvalid, OSError, KeyError, ValueError) as error:
        raise StoreDamagedError(f"a segment file cannot be read: {error}") from error
    for name, column in (
        zip(batch.schema.names, batch.columns, strict=True) if batch is not None else ()
    ):
        columns[name] = (
            column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        )
    if "sequence" in derived and "sequence" in wanted:
        columns["sequence"] = pa.array(
            range(derived["sequence"], derived["sequence"] + rows), pa.int64()
        )
    if "body_text" in derived and "body_text" in wanted:
        # Sealing checked that these bytes are the text.
        columns["body_text"] = columns["body"].view(pa.string())
    # Messages of WS-ReliableMessaging have no message identifier.
    if "message_id" in wanted and "lineage" in columns:
        columns["message_id"] = message_ids(columns["lineage"], columns["uniquifier"])
    if any(len(column) != rows for column in columns.values()):
        raise StoreDamagedError(
            "a segment file has columns of other lengths than its metadata state"
        )
    return columns, rows


def _sources_of(names: Iterable[str]) -> set[str]:
    """Return the set of ``names`` and of the columns that derived ones among them are made from."""
    wanted = set(names)
    for name, sources in _DERIVED_FROM.items():
        if name in wanted:
            wanted |= set(sources)
    return wanted


def _place(name: str) -> int:
    """Return the sort key of a column in a file: the large columns stand after all others."""
    return WIDE.index(name) + 1 if name in WIDE else 0


def _is_constant(column: pa.Array) -> bool:
    if column.null_count:
        return False
    if pa.types.is_list(column.type):
        return bool(len(column.values) == 0)
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        return bool(
            pc.binary_length(column[0]).as_py() <= CONSTANT_BYTES_MAX
            and pc.all(pc.equal(column, column[0])).as_py()
        )
    return bool(pc.all(pc.equal(column, column[0])).as_py())


def _dictionary(column: pa.Array) -> pa.Array:
    if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
        return column
    most = min(DICTIONARY_MAX, len(column) // 4)
    # These are mostly bodies. Hashing all of them would be the most expensive step.
    if len(column.slice(0, 2 * most).unique()) > most:
        return column
    encoded = column.dictionary_encode()
    if len(encoded.dictionary) > most:
        return column
    return pa.DictionaryArray.from_arrays(encoded.indices.cast(pa.int16()), encoded.dictionary)


def _to_json(value: pa.Scalar) -> object:
    if pa.types.is_binary(value.type):
        return base64.b64encode(value.as_py()).decode()
    if pa.types.is_decimal(value.type):
        return str(value.as_py())
    return value.value if pa.types.is_timestamp(value.type) else value.as_py()


def _repeat(name: str, value: Any, rows: int) -> pa.Array:  # noqa: ANN401  # a JSON value
    type_ = _types[name]
    if pa.types.is_list(type_):
        # The list is always empty. The general way would build each list.
        empty = pa.array([], type_.value_type)
        return pa.ListArray.from_buffers(
            type_, rows, [None, pa.py_buffer(bytes(4 * (rows + 1)))], children=[empty]
        )
    if pa.types.is_decimal(type_):
        return pa.repeat(pa.scalar(Decimal(value), type_), rows)
    return pa.repeat(
        pa.scalar(base64.b64decode(value) if pa.types.is_binary(type_) else value, type_), rows
    )


def _encode_posts(decoded: Decoded) -> bytes:
    posts, heads, body_at, envelope_at, envelope_length = [], [], [], [], []
    for record, parts in zip(decoded.records, decoded.parts, strict=True):
        post, head = record.post, record.head_length
        if record.form is Form.COLUMNS:
            # All of the row stands in the file of columns.
            post, head = b"", 0
        heads.append(head)
        if parts.body is None:
            posts.append(post)
            body_at.append(-1)
        else:
            posts.append(post[: head + parts.body[0]] + post[head + parts.body[1] :])
            body_at.append(head + parts.body[0])
        envelope_at.append(head + parts.envelope[0])
        envelope_length.append(parts.envelope[1] - parts.envelope[0])
    forms = [int(record.form) for record in decoded.records]
    values = (posts, body_at, heads, envelope_at, envelope_length, forms)
    arrays = {
        field.name: pa.array(value, field.type) for field, value in zip(_POSTS, values, strict=True)
    }
    return _file(arrays, {METADATA: json.dumps({"format": FORMAT}).encode()}, "zstd")


def _posts_of(posts_file: bytes) -> pa.RecordBatch:
    try:
        return pa.ipc.open_file(pa.py_buffer(posts_file)).get_batch(0)
    except (pa.ArrowInvalid, OSError) as error:
        raise StoreDamagedError(f"a segment's file of posts cannot be read: {error}") from error


def _whole_posts(batch: pa.RecordBatch, bodies: pa.Array) -> Iterator[bytes]:
    """Yield the posts with their bodies put back.

    Only one post is made at a time, because all of them together are many megabytes.
    """
    for start in range(0, batch.num_rows, POSTS_AT_ONCE):
        columns = (batch.column("post"), batch.column("body_at"), bodies)
        rows = zip(
            *(column.slice(start, POSTS_AT_ONCE).to_pylist() for column in columns), strict=True
        )
        yield from (
            post if at < 0 else b"".join((post[:at], body, post[at:])) for post, at, body in rows
        )


def _envelopes(posts_file: bytes, bodies: pa.Array) -> pa.Array:
    placing = _posts_of(posts_file)
    posts = _whole_posts(placing, bodies)
    starts, lengths, forms = (
        placing.column(name).to_pylist() for name in ("envelope_at", "envelope_length", "form")
    )
    # As in an unsealed row: null for a row that was restored from its columns, empty for a packet.
    texts = [
        None if form == Form.COLUMNS else post[start : start + length].decode()
        for post, start, length, form in zip(posts, starts, lengths, forms, strict=True)
    ]
    return pa.array(texts, pa.string())


def _file(
    columns: dict[str, pa.Array], metadata: dict[bytes, bytes], compression: str | None
) -> bytes:
    schema = pa.schema([(name, column.type) for name, column in columns.items()], metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(
        sink, schema, options=pa.ipc.IpcWriteOptions(compression=compression)
    ) as writer:
        if columns:
            # A batch without columns would have no rows.
            writer.write_batch(pa.RecordBatch.from_arrays(list(columns.values()), schema=schema))
    data: bytes = sink.getvalue().to_pybytes()
    return data
