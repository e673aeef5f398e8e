"""Report database rows that cannot be read at a start, so that everything else starts.

A row of most tables is set aside where it is: its reader leaves it out. Rows of some tables are
moved, whole, into a table ``set_aside`` (:mod:`srmp_spark.store.unreadable_rows`,
:mod:`srmp_spark.store.outbox.tables.unreadable`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from srmp_spark.errors import SrmpSparkError

_T = TypeVar("_T")

TOLD_MAX = 100
"""Largest number of rows that are reported one by one; further rows are only counted."""
KEY_MAX = 200
"""Longest reported key, in characters.

A key is a value of the row and can have any length; it is cut at this length.
"""
REASON_MAX = 200
"""Longest reported reason, in characters.

A reason may quote what stands in the row; it is cut at this length.
"""

_log = logging.getLogger(__name__)


class SetAside(NamedTuple):
    """The report on one database row that was not loaded, because it cannot be read.

    The bytes of the row stay in its table or in the table ``set_aside``, for a release that can
    read them.
    """

    table: str
    key: str
    """Value that identifies the row in its table."""
    reason: str
    """Reason why the row cannot be read, for an operator."""


def readable(
    table: str,
    rows: Iterable[Sequence[Any]],
    read: Callable[[Sequence[Any]], _T],
    unreadable: list[SetAside],
    *,
    key: int = 1,
) -> Iterator[_T]:
    """Yield the result of ``read`` for each row that it can read.

    The errors of ``read`` that mean a bad row are caught: :class:`.SrmpSparkError`, ``ValueError``,
    ``TypeError``, ``KeyError``, ``IndexError``, ``OverflowError`` and ``RecursionError``. Such a
    row is reported in the list ``unreadable``, and stays in its table ``table``. The first ``key``
    values of a row are its key in the report.
    """
    for row in rows:
        try:
            found = read(row)
        except (  # noqa: PERF203
            # One bad row must not stop the others.
            SrmpSparkError,
            ValueError,
            TypeError,
            KeyError,
            IndexError,
            OverflowError,
            RecursionError,
        ) as error:
            reason = f"{type(error).__name__}: {error}"[:REASON_MAX]
            unreadable.append(
                SetAside(table, " ".join(str(each) for each in row[:key])[:KEY_MAX], reason)
            )
        else:
            yield found


def typed(values: Sequence[Any], types: Sequence[type | tuple[type, ...]]) -> Sequence[Any]:
    """Check the types of ``values``, and return ``values`` unchanged.

    SQLite keeps values of any type in any column. Raises :class:`TypeError` if a value has another
    type than the one at its index in ``types``, and :class:`ValueError` if the numbers differ.
    """
    for number, (value, wanted) in enumerate(zip(values, types, strict=True)):
        if not isinstance(value, wanted):
            raise TypeError(f"value {number} is {value!r:.50}")
    return values


def tell_set_aside(rows: Sequence[SetAside]) -> Sequence[SetAside]:
    """Log at most :data:`TOLD_MAX` of ``rows``, and return those rows for the status.

    The first rows are logged and returned. Of further rows only the number is logged.
    """
    for each in rows[:TOLD_MAX]:
        _log.error(
            "store.set_aside table=%s key=%s reason=%s",
            each.table,
            ascii(each.key),
            ascii(each.reason),
        )
    if len(rows) > TOLD_MAX:
        _log.error("store.set_aside further=%d", len(rows) - TOLD_MAX)
    return rows[:TOLD_MAX]
