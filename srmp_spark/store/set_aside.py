"""Rows of the store that cannot be read at a start: they stay where they are, and everything else starts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from srmp_spark.errors import SrmpSparkError

_T = TypeVar("_T")

TOLD_MAX = 100
"""Rows that are told one by one; of further ones only the number is logged."""
KEY_MAX = 200
"""Characters of a key: it is a value of the row, of any length."""
REASON_MAX = 200
"""Characters of a reason: it may quote what stands in the row."""

_log = logging.getLogger(__name__)


class SetAside(NamedTuple):
    """One row that was not loaded. Its bytes stay in its table, for a release that can read them."""

    table: str
    key: str
    """What names the row in its table."""
    reason: str
    """Why it cannot be read, in words for an operator."""


def readable(
    table: str,
    rows: Iterable[Sequence[Any]],
    read: Callable[[Sequence[Any]], _T],
    unreadable: list[SetAside],
    *,
    key: int = 1,
) -> Iterator[_T]:
    """Yield what ``read`` makes of each row. One that it cannot read is added to ``unreadable``, and stays in its table.

    The first ``key`` values of a row are its key.
    """
    for row in rows:
        try:
            found = read(row)
        except (  # noqa: PERF203  # each row for itself
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
    """Return ``values``. Raises :class:`TypeError` for one of another type: SQLite keeps whatever was written."""
    for number, (value, wanted) in enumerate(zip(values, types, strict=True)):
        if not isinstance(value, wanted):
            raise TypeError(f"value {number} is {value!r:.50}")
    return values


def tell_set_aside(rows: Sequence[SetAside]) -> Sequence[SetAside]:
    """Log each row, and return those that are told in the status."""
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
