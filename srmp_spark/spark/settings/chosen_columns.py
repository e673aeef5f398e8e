"""Decide which columns a query reads: those of a declared schema or option ``columns``, or all.

If the user declares a schema (``.schema("sequence LONG, body BINARY")``), Spark hands it to the
reader and does not ask the data source. Without a declared schema, Spark asks the data source and
hands the answer to the reader. So the schema of the reader states the choice in both cases. Columns
that are not chosen are neither decoded nor built. If the body is not chosen, the queue manager does
not send the bodies of sealed rows. Offsets do not depend on the columns, so a restart may choose
other columns.
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
"""Spark's printed names of types whose DDL names differ."""


def names_in(text: str) -> tuple[str, ...]:
    """Return the columns that the option ``columns`` names, in its order.

    Raises :class:`ConfigurationError` for an unknown column, or one that is named twice.
    """
    names = tuple(part.strip() for part in text.split(","))
    _check_names("option columns", names)
    return names


def chosen_columns(
    schema: StructType | None, option: tuple[str, ...] | None = None
) -> tuple[str, ...]:
    """Return the columns of a reader, in their order.

    The columns are those of the declared ``schema``, else those of option ``columns``, else all
    columns. Raises :class:`ConfigurationError` for a column that is unknown, named twice or
    declared with another type, and if option and schema differ.
    """
    # A declared schema cannot be empty.
    if schema is None or not schema.fields:
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
    """Return whether the column ``envelope`` has values.

    The column has values if option ``includeEnvelope`` is true (``asked``), or if the user chose
    columns and ``envelope`` is one of them. Raises :class:`ConfigurationError` if ``asked`` and the
    column is not read.
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
