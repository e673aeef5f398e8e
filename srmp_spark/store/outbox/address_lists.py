"""Several format names in one column: multiple-element format names ([MS-MQMQ] 2.1.7).

This module parses such a list and checks which elements it may contain.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from srmp_spark.names import JOURNAL_SUFFIX, format_names
from srmp_spark.srmp.limits import NAMES_MAX
from srmp_spark.store.outbox.limits import ADDRESS_LENGTH_MAX, LIST_LENGTH_MAX

DESTINATION_LIST = "destination_list"
"""Name of the column with all destinations of a row, which :func:`.multiple.expanded` adds.

The destinations are spelled as given. The value is null if the row has one destination.
"""
_WHITE = re.compile(r"\s")


def names_of(text: str) -> tuple[str, ...]:
    """Return the format names in ``text``: a destination, response queue or admin queue.

    The text has one name, or several with commas. Raises :class:`ValueError` if the list cannot be
    sent: it has more than ``NAMES_MAX`` names, the list or a name is too long, or one name of a
    list contains white space or is a journal.
    """
    names = format_names(text)
    if len(names) > NAMES_MAX:
        raise ValueError(f"names {len(names)} queues, NAMES_MAX is {NAMES_MAX}")
    if len(names) > 1:
        if len(text) > LIST_LENGTH_MAX:
            raise ValueError(f"has {len(text)} characters, LIST_LENGTH_MAX is {LIST_LENGTH_MAX}")
        for name in names:
            if _WHITE.search(name):
                raise ValueError(
                    f"holds {name[:100]!r}: white space separates the names of <…Mqf>, write %20"
                )
            if name.lower().endswith(JOURNAL_SUFFIX):
                raise ValueError(f"holds {name[:100]!r}: a journal is read only ([MS-MQMQ] 2.1.7)")
    if max(map(len, names)) > ADDRESS_LENGTH_MAX:
        raise ValueError(f"has at most {ADDRESS_LENGTH_MAX} characters for each queue")
    return names


def has_lists(column: pa.Array) -> bool:
    """Return whether any value of a column of addresses contains a comma, as a list does.

    The search is quick, and most columns contain no list. A single address may contain a comma,
    too: :func:`names_of` decides.
    """
    values = column.dictionary if pa.types.is_dictionary(column.type) else column
    return bool(pc.any(pc.match_substring(values.cast(pa.string()), ","), min_count=0).as_py())
