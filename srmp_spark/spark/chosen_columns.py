"""Which columns a query reads: a declared schema or the option ``columns``, else all of them.

Spark hands a declared schema (``.schema("sequence LONG, body BINARY")``) to the reader and asks the
data source for none; without one it asks, and hands the answer to the reader. So the reader's
schema says the choice either way. What is not chosen is neither decoded nor built, and the bodies
of sealed rows that are not chosen stay with the queue manager. Offsets have no columns: a restart
may choose others.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from srmp_spark.errors import ConfigurationError
from srmp_spark.rows.columns import KINDS, NAMES

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

ENVELOPE = "envelope"
_IN_SPARK = {"long": "bigint"}
"""Types whose DDL name is not the one that Spark prints."""


def names_in(text: str) -> tuple[str, ...]:
    """Return the columns that the option ``columns`` names, in its order. Raises :class:`ConfigurationError`."""
    names = tuple(part.strip() for part in text.split(","))
    _check_names("option columns", names)
    return names


def chosen_columns(
    schema: StructType | None, option: tuple[str, ...] | None = None
) -> tuple[str, ...]:
    """Return the columns of a reader, in their order: what its schema declares, else what option ``columns`` names, else all.

    Raises :class:`ConfigurationError` for a column that is not known, named twice or declared with another type.
    """
    if schema is None or not schema.fields:  # a declared schema cannot be empty
        return option or NAMES
    names = tuple(schema.fieldNames())
    _check_names("the declared schema", names)
    for field in schema.fields:
        expected = _IN_SPARK.get(KINDS[field.name], KINDS[field.name])
        if field.dataType.simpleString() != expected:
            raise ConfigurationError(
                f"the declared schema has {field.name} "
                f"{field.dataType.simpleString().upper()}: that column is "
                f"{KINDS[field.name].upper()}; declare it so, and cast it in the query "
                "(.withColumn or .selectExpr)"
            )
    if option is not None and option != names:
        raise ConfigurationError(
            f"option columns names {', '.join(option)}, and the declared schema "
            f"{', '.join(names)}: give one of them"
        )
    return names


def fills_envelope(names: Sequence[str], *, asked: bool) -> bool:
    """Return whether the column ``envelope`` has values: ``includeEnvelope`` asks for it, or it was chosen among fewer.

    Raises :class:`ConfigurationError` if it was asked for and is not among the columns.
    """
    if asked and ENVELOPE not in names:
        raise ConfigurationError(
            "includeEnvelope has no effect: envelope is not among the columns that are read; add it"
        )
    return asked or (ENVELOPE in names and tuple(names) != NAMES)


def _check_names(where: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name not in KINDS:
            close = difflib.get_close_matches(name.lower(), NAMES, 1, 0.5)
            advice = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(NAMES)}"
            raise ConfigurationError(f"{where} names {name!r}, which is no column; {advice}")
        if name in seen:
            raise ConfigurationError(f"{where} names {name!r} twice")
        seen.add(name)
    if not seen:
        raise ConfigurationError(
            f"{where} names no column: name at least one, sequence for example"
        )
