"""Name a row for people: by the columns with which its owner finds the row again.

An error about a row that says "row 6 of partition 0" helps nobody, because Spark decides which row
that is. The name is the row's ``key``, else its source position, else the values of the columns
that order the batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

NAME_LENGTH_MAX = 100
"""Largest number of characters of one value in a name. A longer value is cut."""


def row_name(columns: Mapping[str, pa.Array], row: int, order_by: Sequence[str] = ()) -> str | None:
    """Return a text that names one row, or ``None`` if it has none of the columns that name it.

    ``columns`` are the columns of the sink, and those of ``order_by``, by name. ``row`` is an index
    into them.
    """
    key = _value(columns, "key", row)
    if key is not None:
        return f"key {_shown(key)}"
    sequence = _value(columns, "sequence", row)
    if sequence is not None:
        epoch = _value(columns, "epoch", row)
        of_epoch = "" if epoch is None else f" of epoch {epoch}"
        return f"{_value(columns, 'queue', row) or '?'} {sequence}{of_epoch}"
    ordered = [(name, _value(columns, name, row)) for name in order_by]
    if all(value is None for _, value in ordered):
        return None
    return ", ".join(f"{name} {_shown(value)}" for name, value in ordered)


def value_of(scalar: pa.Scalar) -> object:
    """Return the value of an Arrow scalar for people; a time that Python cannot hold is a number.

    Python's years end with 9999, and its times have microseconds.
    """
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        return scalar.value


def _value(columns: Mapping[str, pa.Array], name: str, row: int) -> object:
    column = columns.get(name)
    return None if column is None else value_of(column[row])


def _shown(value: object) -> str:
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if not isinstance(value, str):
        return str(value)
    return repr(value if len(value) <= NAME_LENGTH_MAX else f"{value[:NAME_LENGTH_MAX]}…")
