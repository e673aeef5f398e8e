"""The columns of the sink: which columns of a DataFrame are sent, and whether their types fit.

INTERFACE.md section 4 lists the columns. A frame is checked by its schema alone, before any row is
read. :func:`plan` either refuses the frame, or returns the columns of a stage (the rows of one task
in the form in which the queue manager keeps them until the commit). A refusal names the column, the
type found, the type wanted and the cast to write. Names are compared without case, as in Spark. A
column that the sink does not know is ignored, with two exceptions. A column that ``orderBy`` names
is used for the order. A misspelt column of the sink (:mod:`.misspelt_columns`) is refused.

The four columns of a source position count only together. So a frame with a ``sequence`` of its own
has no position.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql.types import DataType, DecimalType, StructField, StructType

from srmp_spark.errors import ConfigurationError
from srmp_spark.rows.body_text import VT_BSTR
from srmp_spark.rows.columns import NAMES, NOT_FOR_A_SINK, comment_of
from srmp_spark.spark.settings.misspelt_columns import misspelt
from srmp_spark.spark.settings.sink_options import SinkOptions
from srmp_spark.transports import transport_of

ORDER_BY_METADATA = b"srmp.order_by"
"""Key in the schema metadata of a stage: a JSON list of the columns that order the batch."""
DEAD_LETTER_METADATA = b"srmp.dead_letter"
"""Key in the schema metadata of a stage: ``true`` if final stream receipts are requested."""
DEAD_LETTER_QUEUE_METADATA = b"srmp.dead_letter_queue"
"""Key in the schema metadata of a stage: the application's queue for dead letters."""
ON_BAD_ROW_METADATA = b"srmp.on_bad_row"
"""Key in the schema metadata of a stage: the option ``onBadRow``, if it is not ``fail``."""

_INTEGERS = ("byte", "short", "integer", "long")
_TEXT = ("string", "char", "varchar")
_NAMES = (*_TEXT, "binary", *_INTEGERS)


class SinkColumn(NamedTuple):
    """A column that the sink knows, with its types and its meaning."""

    name: str
    spark: tuple[str, ...]
    """The ``typeName()`` of each Spark type that the column may have."""
    wanted: str
    """The same types as a text for people. The first word of the text is the type to cast to."""
    meaning: str


SINK_COLUMNS: tuple[SinkColumn, ...] = (
    SinkColumn(
        "body",
        (*_TEXT, "binary"),
        "string or binary",
        "the body; required. The option bodyFormat says how a string is written",
    ),
    SinkColumn("destination", _TEXT, "string", "format name or URL; the option of this name wins"),
    SinkColumn("label", _TEXT, "string", "the label of the message"),
    SinkColumn("priority", _INTEGERS, "int", "0 to 7; transactional messages are sent with 0"),
    SinkColumn("correlation_id", ("binary",), "binary", "20 bytes of the application"),
    SinkColumn("app_specific", _INTEGERS, "long", "a number of the application, 32 bit"),
    SinkColumn(
        "body_type", _INTEGERS, "long", "what the body is (VARIANT type); default by bodyFormat"
    ),
    SinkColumn("response_queue", _TEXT, "string", "format name of the queue for responses"),
    SinkColumn("admin_queue", _TEXT, "string", "format name of the queue for acknowledgements"),
    SinkColumn(
        "time_to_reach_queue",
        ("timestamp",),
        "timestamp",
        "a message that is not delivered by then becomes a dead letter",
    ),
    SinkColumn(
        "extension",
        ("binary",),
        "binary",
        "a second body for programs, such as the headers of NServiceBus and Rebus",
    ),
    SinkColumn(
        "key",
        _NAMES,
        "string, binary or an integer",
        "your name for the row: sent once for each application and destination",
    ),
    SinkColumn("delivery", _TEXT, "string", "transactional (default), recoverable, express"),
    SinkColumn(
        "transaction",
        _NAMES,
        "string, binary or an integer",
        "consecutive rows of one value are one MSMQ transaction; default: each row its own",
    ),
)

RELIABLE_COLUMNS: tuple[SinkColumn, ...] = (
    SinkColumn("soap_action", _TEXT, "string", "wsa:Action of the message; required for wsrm:URL"),
    SinkColumn("wsrm_version", _TEXT, "string", "1.0, 1.1 (default) or 1.2"),
    SinkColumn("soap_version", _TEXT, "string", "1.1 or 1.2 (default)"),
    SinkColumn("wsa_version", _TEXT, "string", "WS-Addressing, 2004/08 or 2005/08 (default)"),
)
"""Columns of rows for a service of WS-ReliableMessaging, ``wsrm:URL``.

For other rows they mean nothing. Options of the same names replace them.
"""

POSITION_COLUMNS: tuple[SinkColumn, ...] = (
    SinkColumn("queue_manager", _TEXT, "string", "GUID of the queue manager that has the row"),
    SinkColumn("epoch", _TEXT, "string", "epoch of the row"),
    SinkColumn("queue", _TEXT, "string", "queue of the row"),
    SinkColumn("sequence", _INTEGERS, "long", "sequence of the row"),
)
"""The four columns that together identify a row without ``key``."""

ORDERABLE = (
    *_INTEGERS,
    *_TEXT,
    "float",
    "double",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
    "boolean",
)
"""Types that ``orderBy`` accepts, in addition to decimals."""


class StagedColumn(NamedTuple):
    """One column of a stage (rows that wait for a commit), copied from the frame or constant."""

    name: str
    source: int | None
    """Index of the column in the frame, or ``None`` if all rows have the value ``constant``."""
    constant: str | int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlan:
    """Describes how a row of a frame becomes a row of a stage (:mod:`srmp_spark.spark.staging`).

    The plan is pickled into tasks.
    """

    options: SinkOptions
    columns: tuple[StagedColumn, ...]
    text_body: bool
    """Whether the body is a string, which is written in ``bodyFormat``."""
    order_by: tuple[str, ...]

    @property
    def metadata(self) -> dict[bytes, bytes]:
        """Return the metadata for the schema of the stage.

        The keys are :data:`DEAD_LETTER_METADATA`, and if they are set
        :data:`DEAD_LETTER_QUEUE_METADATA`, :data:`ON_BAD_ROW_METADATA` and
        :data:`ORDER_BY_METADATA`.
        """
        return stage_metadata(self.options, self.order_by)


def stage_metadata(options: SinkOptions, order_by: Sequence[str] = ()) -> dict[bytes, bytes]:
    """Return the metadata for the schema of a stage (:attr:`StagePlan.metadata`)."""
    found = {DEAD_LETTER_METADATA: b"true" if options.dead_letter else b"false"}
    if options.dead_letter_queue is not None:
        found[DEAD_LETTER_QUEUE_METADATA] = options.dead_letter_queue.encode()
    if options.on_bad_row != "fail":
        found[ON_BAD_ROW_METADATA] = options.on_bad_row.encode()
    if order_by:
        found[ORDER_BY_METADATA] = json.dumps(order_by).encode()
    return found


def plan(options: SinkOptions, schema: StructType) -> StagePlan:
    """Check the schema of a frame, and return the plan by which its rows become stages.

    Raises :class:`ConfigurationError`, which names the column and says what to write instead.
    """
    fields = _by_name(schema, options)
    if "body" not in fields:
        raise ConfigurationError(_no_body(schema))
    as_they_came = {
        name for name, (_, found) in fields.items() if _is_of_the_message_that_came(found)
    }
    made = fields.keys() - as_they_came
    if options.destination is None and "destination" not in made:
        raise ConfigurationError(
            "destination is missing: give option destination (a format name or URL, for example "
            "DIRECT=http://host/msmq/private$/orders), or a string column destination"
            + (
                "; the column destination of format('srmp') is that of the received message"
                * ("destination" in as_they_came)
            )
        )
    _check_no_slip(options, fields)
    columns = [
        StagedColumn(spec.name, _checked(fields[spec.name], spec))
        for spec in SINK_COLUMNS
        if spec.name in made
        and not (spec.name == "destination" and options.destination is not None)
    ]
    if options.destination is not None:
        columns.append(StagedColumn("destination", None, options.destination))
    columns += _reliable(options, fields)
    if all(spec.name in fields for spec in POSITION_COLUMNS):
        columns += [
            StagedColumn(spec.name, _checked(fields[spec.name], spec)) for spec in POSITION_COLUMNS
        ]
    text_body = fields["body"][1].dataType.typeName() != "binary"
    if options.body_format != "raw" and not text_body:
        raise ConfigurationError(
            f"bodyFormat={options.body_format} writes strings, and column body is binary: "
            "cast it with "
            "col('body').cast('string'), or leave bodyFormat out to send the bytes as they are"
        )
    if options.body_format == "activex" and "body_type" not in fields:
        columns.append(StagedColumn("body_type", None, VT_BSTR))
    order_by = _order_by(options, fields, columns)
    return StagePlan(
        options=options, columns=tuple(columns), text_body=text_body, order_by=order_by
    )


def _check_no_slip(options: SinkOptions, fields: dict[str, tuple[int, StructField]]) -> None:
    """Raise :class:`ConfigurationError` if a name is one slip away from a column of the sink."""
    named = options.destination
    known = [*SINK_COLUMNS, *RELIABLE_COLUMNS, *POSITION_COLUMNS]
    missing = [spec.name for spec in SINK_COLUMNS if spec.name not in fields]
    if named is not None and "destination" in missing:
        # The option replaces the column.
        missing.remove("destination")
    if named is None or transport_of(named).rules.speaks_soap:
        given = dict(options.reliable)
        missing += [
            spec.name
            for spec in RELIABLE_COLUMNS
            if spec.name not in fields and spec.name not in given
        ]
    of_position = [spec.name for spec in POSITION_COLUMNS if spec.name not in fields]
    # If the frame has the other three, the fourth is probably misspelt.
    if len(of_position) == 1:
        missing += of_position
    used = {spec.name for spec in known} | {name.lower() for name in options.order_by} | {*NAMES}
    found = misspelt([name for name in fields if name not in used], missing)
    if found is not None:
        written, meant = fields[found[0]][1].name, found[1]
        raise ConfigurationError(
            f"column {written!r} would not be sent: the sink knows no such column; if it "
            f"is {meant!r}, write "
            f".withColumnRenamed('{written}', '{meant}'), if not, .drop('{written}')"
        )


def _is_of_the_message_that_came(column: StructField) -> bool:
    """Return whether ``column`` is an unchanged column of the source about the received message.

    Such a column does not describe the message to send.
    """
    comment = comment_of(column.name.lower())
    return comment is not None and column.metadata.get("comment") == comment


def _reliable(
    options: SinkOptions, fields: dict[str, tuple[int, StructField]]
) -> list[StagedColumn]:
    """Return the columns of a reliable session, if rows may be for a service.

    An option replaces the column of the same name. Raises :class:`ConfigurationError` if the option
    ``destination`` is a service and there is no ``soap_action``.
    """
    named = options.destination
    if named is not None and not transport_of(named).rules.speaks_soap:
        return []
    found = []
    given = dict(options.reliable)
    for spec in RELIABLE_COLUMNS:
        if spec.name in given:
            found.append(StagedColumn(spec.name, None, given[spec.name]))
        elif spec.name in fields and (
            named is not None or fields[spec.name][1].dataType.typeName() in _TEXT
        ):
            found.append(StagedColumn(spec.name, _checked(fields[spec.name], spec)))
    if named is not None and not any(each.name == "soap_action" for each in found):
        raise ConfigurationError(
            f"soap_action is missing: a message for {named} has the wsa:Action that the "
            "service knows its operation by; give "
            "option soap_action (for example http://tempuri.org/IOrders/Submit), or a "
            "string column soap_action"
        )
    return found


def _by_name(schema: StructType, options: SinkOptions) -> dict[str, tuple[int, StructField]]:
    wanted = {spec.name for spec in (*SINK_COLUMNS, *RELIABLE_COLUMNS, *POSITION_COLUMNS)} | {
        name.lower() for name in options.order_by
    }
    fields: dict[str, tuple[int, StructField]] = {}
    for index, found in enumerate(schema.fields):
        name = found.name.lower()
        if name in fields and name in wanted:
            raise ConfigurationError(
                f"columns {fields[name][1].name!r} and {found.name!r} differ in case "
                "only: which one is meant? "
                "Drop or rename the other"
            )
        fields[name] = (index, found)
    return fields


def _no_body(schema: StructType) -> str:
    names = schema.fieldNames()
    candidates = [
        name
        for name in names
        if name.lower() in ("value", "payload", "message", "body_text", "content")
    ]
    candidates = candidates or difflib.get_close_matches("body", names, 1, 0.6)
    if candidates:
        return (
            f"column body is missing (found {', '.join(names)}): is it {candidates[0]!r}? "
            f"Then .withColumnRenamed('{candidates[0]}', 'body')"
        )
    return (
        f"column body is missing (found {', '.join(names)}): add it, for example "
        ".select(to_json(struct('*')).alias('body'))"
    )


def _checked(found: tuple[int, StructField], spec: SinkColumn) -> int:
    index, column = found
    if column.dataType.typeName() not in spec.spark:
        raise ConfigurationError(
            f"column {column.name} is {column.dataType.simpleString()}, the sink wants "
            f"{spec.wanted}: write "
            f".withColumn('{column.name}', {_cast(column, spec)})"
        )
    return index


def _cast(column: StructField, spec: SinkColumn) -> str:
    kind = column.dataType.typeName()
    target = spec.wanted.partition(" ")[0].rstrip(",")
    if spec.name == "body":
        return (
            f"to_json('{column.name}')"
            if kind in ("struct", "array", "map", "variant")
            else f"col('{column.name}').cast('string')"
        )
    if target == "binary" and kind not in _TEXT:
        return f"col('{column.name}').cast('string').cast('binary')"
    return f"col('{column.name}').cast('{target}')"


def _order_by(
    options: SinkOptions, fields: dict[str, tuple[int, StructField]], columns: list[StagedColumn]
) -> tuple[str, ...]:
    """Return the names that the columns of ``orderBy`` have in the stage.

    Columns that the stage does not have yet are added to ``columns``. Raises
    :class:`ConfigurationError` if a column cannot order the batch.
    """
    names: list[str] = []
    for wanted in options.order_by:
        name = wanted.lower()
        if name not in fields:
            close = difflib.get_close_matches(name, list(fields), 1, 0.6)
            advice = (
                f"did you mean {fields[close[0]][1].name!r}?"
                if close
                else f"found {', '.join(f.name for _, f in fields.values())}"
            )
            raise ConfigurationError(f"option orderBy: there is no column {wanted!r}; {advice}")
        index, column = fields[name]
        _check_orderable(column)
        staged = next((each for each in columns if each.name == name), None)
        if staged is None:
            # Alone the column is no position and may have any type. A column of the received
            # message says nothing about the message to send.
            taken = name in NOT_FOR_A_SINK or any(name == spec.name for spec in POSITION_COLUMNS)
            staged = StagedColumn(f"{column.name} (orderBy)" if taken else column.name, index)
            columns.append(staged)
        elif name == "body" or staged.source is None:
            raise ConfigurationError(
                f"option orderBy: column {column.name} is not sent unchanged; "
                "order by a copy of it under another name"
            )
        names.append(staged.name)
    return tuple(names)


def _check_orderable(column: StructField) -> None:
    kind: DataType = column.dataType
    if kind.typeName() not in ORDERABLE and not isinstance(kind, DecimalType):
        raise ConfigurationError(
            f"option orderBy: column {column.name} is {kind.simpleString()}, which the "
            "queue manager cannot order; "
            "order by a number, text, date or timestamp made of it"
        )
