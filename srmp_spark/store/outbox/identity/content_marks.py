"""Content marks: 8 bytes for the content of a row, computed for a whole slice of rows at once.

The outbox compares the marks of rows that have a key or a source position. Two rows have one mark
if they have one content. Content means the same as in :func:`.hashing.content_hashes`: the same
columns and the same defaults, and a null equals a missing column. A hash function that is called
for each row would cost a fifth of the commit of small rows. So marks are computed by a few passes
over contiguous buffers:

1. Arrow copies the texts and bytes of each row one after another. Each value is filled up with
   zeros to a multiple of 8 bytes.
2. The 64-bit words of each row are summed up. The word ``w`` counts ``(h ^ h >> 32) * P**n``
   modulo ``2**64``, where ``h`` is ``w * Q`` and ``n`` counts the words of the row. ``P`` and ``Q``
   are odd, so one changed word changes the sum. Without ``Q``, an equal change of both halves of a
   word would change only the high half of ``h ^ h >> 32``, and the highest bits of that half count
   the same in each word. A vector and its negative, four numbers of 32 bits, would then have one
   mark.
3. To this sum each column adds its number, or the length of its text, times an odd constant of its
   own.

The mark is no secret and no signature. The author of a query's rows can construct two rows with one
mark, and harms only that query. By chance two contents have one mark in fewer than one of ``2**40``
pairs.

**Marks are stored for 30 days: their form must not change.** ``tests/outbox/test_content_marks.py``
has values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from srmp_spark.store.outbox.identity.hashing import CONTENT, DEFAULTS

_MODULUS = 1 << 64
_P = 0x9E3779B97F4A7C15
_Q = np.uint64(0xD6E8FEB86659FD93)
_SEGMENT = 1 << 16
"""Number of words that are worked on at once: 512 KiB, which fit into the processor's own cache."""
COPY_BYTES = 4 * 1024 * 1024
_WORD = 8
_BODY = b"b"
_HALF = np.uint64(32)
_SET = np.uint64(0xA5A5A5A5A5A5A5A5)
"""Turns the time 0, which is a valid time, into a number other than the 0 of a missing time."""
_TEXT_DEFAULTS = {
    name: str(value).encode() for name, value in DEFAULTS.items() if isinstance(value, str)
} | {"body": b""}
_NUMBER_DEFAULTS: dict[str, int] = {
    name: int(value) for name, value in DEFAULTS.items() if isinstance(value, int)
}


def _powers(base: int) -> np.ndarray:
    """Return an array of the powers 0 to ``_SEGMENT - 1`` of ``base``, modulo ``2**64``."""
    found = np.ones(_SEGMENT, np.uint64)
    count = 1
    while count < _SEGMENT:
        found[count : 2 * count] = found[:count] * np.uint64(pow(base, count, _MODULUS))
        count *= 2
    return found


_FORWARD, _BACK = _powers(_P), _powers(pow(_P, -1, _MODULUS))
_CONSTANTS = {
    letter: np.uint64(pow(_P, 1 << 20 | letter[0] << 8 | 1, _MODULUS))
    for letter in (*(each for _, each in CONTENT), _BODY)
}
"""The odd factor of each column, which is no power of ``_P`` that a word is multiplied by."""


def content_marks(columns: Mapping[str, pa.Array], rows: int) -> np.ndarray:
    """Return an array with the mark of each row's content: unsigned numbers of 64 bits."""
    marks = np.zeros(rows, np.uint64)
    texts: list[pa.Array] = []
    for name, letter in (*CONTENT, ("body", _BODY)):
        array = columns.get(name)
        if array is None:
            continue
        constant = _CONSTANTS[letter]
        if pa.types.is_binary(array.type) or pa.types.is_string(array.type):
            array, counts = _text(array.cast(pa.binary()), name)
            marks += counts * constant
            texts += (array, _zeros(-np.diff(_offsets(array)) & (_WORD - 1)))
        else:
            numbers = _numbers(array, name)
            marks += (numbers ^ (numbers >> _HALF)) * constant
    for start, end in _pieces(texts, rows):
        filled = pc.binary_join_element_wise(
            *(text.slice(start, end - start) for text in texts), b""
        )
        starts = _offsets(filled)
        count = (int(starts[-1]) - int(starts[0])) // _WORD
        if count:
            words = np.frombuffer(filled.buffers()[2], "<u8", count, int(starts[0]))
            _add_words(marks[start:end], words, (starts - starts[0]) // _WORD)
    return _mixed(marks)


def _pieces(texts: Sequence[pa.Array], rows: int) -> Iterator[tuple[int, int]]:
    """Yield spans (start, end before) of rows whose texts are copied at once.

    A span has one row, or rows of at most ``COPY_BYTES``. So the copy of a span takes no more
    memory than the slice itself.
    """
    if not texts:
        return
    ends = np.zeros(rows, np.int64)
    for text in texts:
        offsets = _offsets(text)
        ends += offsets[1:] - offsets[0]
    start = 0
    while start < rows:
        before = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + COPY_BYTES, side="right")))
        yield start, end
        start = end


def _text(array: pa.Array, name: str) -> tuple[pa.Array, np.ndarray]:
    """Return the values of a column without nulls, and an array of one number for each row.

    A null becomes an empty value. The number depends on the length of the value, and differs
    between an empty value and a null where the two differ in meaning.
    """
    default = _TEXT_DEFAULTS.get(name)
    if default:
        array = pc.if_else(
            pc.equal(array, pa.scalar(default, pa.binary())), pa.scalar(None, pa.binary()), array
        )
    there = None if array.null_count == 0 else array.is_valid().to_numpy(zero_copy_only=False)
    # Arrow does not define what the span of a null contains.
    if there is not None:
        array = array.fill_null(b"")
    counts = np.diff(_offsets(array)).astype(np.uint64)
    # A missing value means the same as an empty one.
    if default == b"":
        return array, counts
    return array, counts + (np.uint64(1) if there is None else there.astype(np.uint64))


def _numbers(array: pa.Array, name: str) -> np.ndarray:
    """Return the values of a column as unsigned 64-bit numbers for a mark, 0 for a missing one.

    The numbers are not the values themselves. A column with a default is counted from it, so the
    default becomes 0 too. In any other column ``_SET`` is mixed in, so that the value 0 does not.
    """
    if not pa.types.is_int64(array.type):
        array = array.cast(pa.int64())
    default = _NUMBER_DEFAULTS.get(name)
    if default is not None:
        values: np.ndarray = array.fill_null(default).to_numpy(zero_copy_only=False)
        return (values - default).view(np.uint64)
    values = array.fill_null(0).to_numpy(zero_copy_only=False).view(np.uint64) ^ _SET
    return (
        values
        if array.null_count == 0
        else np.where(array.is_valid().to_numpy(zero_copy_only=False), values, np.uint64(0))
    )


def _zeros(lengths: np.ndarray) -> pa.Array:
    """Return a binary column whose values are zeros of the given lengths."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(bytes(int(offsets[-1])))]
    return pa.BinaryArray.from_buffers(pa.binary(), len(lengths), buffers)


def _add_words(sums: np.ndarray, words: np.ndarray, starts: np.ndarray) -> None:
    """Add the words of each row to the row's element of ``sums``, weighted as the module says.

    The words of row n lie between ``starts[n]`` and ``starts[n + 1]``.
    """
    rows = np.flatnonzero(starts[1:] > starts[:-1])
    first = starts[rows].astype(np.int64)
    room, more_room = (np.empty(min(len(words), _SEGMENT), np.uint64) for _ in range(2))
    for begin in range(0, len(words), _SEGMENT):
        end = min(begin + _SEGMENT, len(words))
        product, work = more_room[: end - begin], room[: end - begin]
        np.multiply(words[begin:end], _Q, out=product)
        np.right_shift(product, _HALF, out=work)
        np.bitwise_xor(work, product, out=work)
        np.multiply(work, _FORWARD[: end - begin], out=work)
        # ``low`` is the row in which the segment begins.
        low = int(np.searchsorted(first, begin, side="right")) - 1
        high = int(np.searchsorted(first, end, side="left"))
        places = np.maximum(first[low:high] - begin, 0)
        parts = np.add.reduceat(work, places)
        # The power of a word counts from the beginning of its row.
        factors = _BACK[places]
        if first[low] < begin:
            factors[0] = np.uint64(pow(_P, int(begin - first[low]), _MODULUS))
        sums[rows[low:high]] += parts * factors


def _offsets(array: pa.Array) -> np.ndarray:
    return np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]


def _mixed(values: np.ndarray) -> np.ndarray:
    """Return the numbers scrambled: every bit of a result depends on every bit of its number.

    The function is one to one. MurmurHash3 ends with the same function.
    """
    values = values ^ (values >> np.uint64(33))
    values *= np.uint64(0xFF51AFD7ED558CCD)
    values ^= values >> np.uint64(33)
    values *= np.uint64(0xC4CEB9FE1A85EC53)
    values ^= values >> np.uint64(33)
    return values
