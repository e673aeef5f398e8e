"""The columns of a stage: their names, their types, and the form in which the outbox works on them.

INTERFACE.md, section 4, Sink, lists them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from srmp_spark.canonical_url import canonical_outgoing
from srmp_spark.errors import ConfigurationError
from srmp_spark.names import dead_letter_queue_name
from srmp_spark.store.outbox import errors
from srmp_spark.store.outbox.address_lists import has_lists, names_of
from srmp_spark.store.outbox.errors import BAD_STAGE, FAIL, BatchError
from srmp_spark.store.outbox.limits import RECORD_BATCH_BYTES_MAX
from srmp_spark.transports import Transport, transport_of

ORDER_BY = b"srmp.order_by"
"""Key in the schema metadata: a JSON list of the columns by which the batch is ordered."""
DEAD_LETTER = b"srmp.dead_letter"
"""Key in the schema metadata: ``true`` if final stream receipts finish the messages.

The other value is ``false``.
"""
DEAD_LETTER_QUEUE = b"srmp.dead_letter_queue"
"""Key in the schema metadata: a local queue for dead letters.

The queue is SRMPMessage.ApplicationDeadletterQueue ([MC-MQSRM] 3.1.5.2.1.2).
"""
ON_BAD_ROW = b"srmp.on_bad_row"
"""Key in the schema metadata: what becomes of a row that can never be sent.

The value is one of :data:`.errors.ON_BAD_ROW`; without the key it is ``fail``.
"""

BYTES, TEXT, INT, TIME, BOOL, NAME = (
    "binary or string",
    "string",
    "integer",
    "timestamp",
    "boolean",
    "string, binary or integer",
)
KINDS: dict[str, str] = {
    "body": BYTES,
    "destination": TEXT,
    "label": TEXT,
    "priority": INT,
    "correlation_id": BYTES,
    "app_specific": INT,
    "body_type": INT,
    "response_queue": TEXT,
    "admin_queue": TEXT,
    "time_to_reach_queue": TIME,
    "extension": BYTES,
    "key": NAME,
    "delivery": TEXT,
    "transaction": NAME,
    "journal": BOOL,
    "queue_manager": TEXT,
    "epoch": TEXT,
    "queue": TEXT,
    "sequence": INT,
    "soap_action": TEXT,
    "wsrm_version": TEXT,
    "soap_version": TEXT,
    "wsa_version": TEXT,
}
"""Kind of type that each known column may have, by name of the column."""
POSITION = ("queue_manager", "epoch", "queue", "sequence")
"""The columns of the source position, which identifies a row that has no key."""

RELIABLE_COLUMNS = ("soap_action", "wsrm_version", "soap_version", "wsa_version")
"""The columns that matter only for a destination ``wsrm:URL`` (:mod:`.reliable_rows`)."""

ARROW: dict[str, pa.DataType] = {
    BYTES: pa.binary(),
    TEXT: pa.string(),
    INT: pa.int64(),
    TIME: pa.timestamp("us", tz="UTC"),
    BOOL: pa.bool_(),
    NAME: pa.binary(),
}
DELIVERIES = ("express", "recoverable", "transactional")


class StageSchema(NamedTuple):
    """The columns and settings that the schema of one stage declares."""

    columns: tuple[str, ...]
    """The columns of :data:`KINDS` that the stage has, in the order of :data:`KINDS`."""
    order_by: tuple[tuple[str, str], ...]
    """Name and Arrow type of each column by which the batch is ordered."""
    dead_letter: bool
    dead_letter_queue: str | None
    """Canonical name of the queue for dead letters; ``None`` means the system's queue."""
    on_bad_row: str = FAIL
    """One of :data:`.errors.ON_BAD_ROW`: what becomes of a row that can never be sent."""


def read_schema(schema: pa.Schema) -> StageSchema:
    """Return the columns and settings that the Arrow schema of a stage declares.

    Raises :class:`BatchError` (400) if the schema is unusable. The error names the column, the type
    found and the type wanted.
    """
    if len(set(schema.names)) != len(schema.names):
        raise BatchError(400, BAD_STAGE, "two columns have one name", "rename one of them")
    for name, kind in KINDS.items():
        index = schema.get_field_index(name)
        if index >= 0 and not _fits(schema.field(index).type, kind):
            found = schema.field(index).type
            hint = f"cast it, for example df.withColumn({name!r}, …)"
            if kind == TIME and pa.types.is_timestamp(found):
                hint = "it has no time zone: cast it to timestamp, not timestamp_ntz"
            raise BatchError(400, BAD_STAGE, f"column {name} is {found}, wanted is {kind}", hint)
    for name in ("body", "destination"):
        if schema.get_field_index(name) < 0:
            hint = (
                "or give the option destination"
                if name == "destination"
                else "it is the only one that must be there"
            )
            raise BatchError(400, BAD_STAGE, f"there is no column {name}", f"add one, {hint}")
    metadata = schema.metadata or {}
    try:
        order_by = json.loads(metadata.get(ORDER_BY, b"[]"))
        dead_letter = {b"true": True, b"false": False}[metadata.get(DEAD_LETTER, b"false")]
        named = metadata[DEAD_LETTER_QUEUE].decode() if DEAD_LETTER_QUEUE in metadata else None
        dead_letter_queue = None if named is None else dead_letter_queue_name(named)
    except (ValueError, KeyError) as error:
        raise BatchError(
            400, BAD_STAGE, f"the schema's metadata cannot be read: {error!r}"
        ) from error
    on_bad_row = _on_bad_row(metadata, dead_letter_queue)
    if not isinstance(order_by, list) or not all(isinstance(name, str) for name in order_by):
        raise BatchError(400, BAD_STAGE, "srmp.order_by is a JSON list of column names")
    types = _types_of_order(schema, order_by)
    columns = tuple(name for name in KINDS if schema.get_field_index(name) >= 0)
    return StageSchema(columns, types, dead_letter, dead_letter_queue, on_bad_row)


def _on_bad_row(metadata: Mapping[bytes, bytes], dead_letter_queue: str | None) -> str:
    """Return the fate of bad rows that the metadata state.

    Raises :class:`BatchError` (400) if the fate is unknown, or needs a queue that is not named.
    """
    fate = metadata.get(ON_BAD_ROW, FAIL.encode()).decode(errors="replace")
    if fate not in errors.ON_BAD_ROW:
        message = f"srmp.on_bad_row is {fate[:100]!r}"
        raise BatchError(400, BAD_STAGE, message, f"one of {', '.join(errors.ON_BAD_ROW)}")
    if fate == errors.DEAD_LETTER and dead_letter_queue is None:
        message = "srmp.on_bad_row is dead-letter, and there is no srmp.dead_letter_queue"
        raise BatchError(400, BAD_STAGE, message, "name the queue for the letters")
    return fate


def _types_of_order(schema: pa.Schema, order_by: list[str]) -> tuple[tuple[str, str], ...]:
    """Return name and type of each column of ``order_by``.

    Raises :class:`BatchError` (400) if a column is missing or cannot be ordered.
    """
    types = []
    for name in order_by:
        index = schema.get_field_index(name)
        if index < 0:
            raise BatchError(
                400,
                BAD_STAGE,
                f"there is no column {name} to order by",
                "orderBy names columns of the rows",
            )
        found = schema.field(index).type
        if not _ordered(found):
            raise BatchError(
                400,
                BAD_STAGE,
                f"rows cannot be ordered by {name}: it is {found}",
                "order by plain values",
            )
        types.append((name, str(found)))
    return tuple(types)


def _plain(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def _is_text(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(type_) or pa.types.is_large_string(type_) or str(type_) == "string_view"
    )


def _is_bytes(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(type_)
        or pa.types.is_large_binary(type_)
        or pa.types.is_fixed_size_binary(type_)
        or str(type_) == "binary_view"
    )


def _fits(type_: pa.DataType, kind: str) -> bool:
    type_ = _plain(type_)
    if pa.types.is_null(type_):
        return True
    if kind == BOOL:
        return bool(pa.types.is_boolean(type_))
    if kind == TIME:
        return bool(pa.types.is_timestamp(type_) and type_.tz is not None)
    text, whole = _is_text(type_), bool(pa.types.is_integer(type_))
    return {
        TEXT: text,
        INT: whole,
        BYTES: text or _is_bytes(type_),
        NAME: text or whole or _is_bytes(type_),
    }[kind]


def _ordered(type_: pa.DataType) -> bool:
    type_ = _plain(type_)
    return bool(
        pa.types.is_integer(type_)
        or pa.types.is_floating(type_)
        or pa.types.is_decimal(type_)
        or pa.types.is_boolean(type_)
        or pa.types.is_temporal(type_)
        or pa.types.is_null(type_)
        or _is_text(type_)
        or _is_bytes(type_)
    )


def plain_columns(batch: pa.RecordBatch, columns: tuple[str, ...]) -> dict[str, pa.Array]:
    """Return ``columns`` of ``batch`` by name, converted to the Arrow types of :data:`ARROW`.

    ``columns`` are names of :data:`KINDS` that the batch has. A column that is null in every row is
    left out. Dictionaries are decoded. Raises :class:`BatchError` (400) for a value that does not
    fit into its type, and for a dictionary that would become too large.
    """
    found: dict[str, pa.Array] = {}
    for name in columns:
        array = batch.column(batch.schema.get_field_index(name))
        kind = KINDS[name]
        if array.null_count == len(array):
            continue
        _check_spread(name, array)
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        try:
            if kind == NAME and pa.types.is_integer(array.type):
                array = array.cast(pa.string())
            if array.type != ARROW[kind]:
                # Nanoseconds are truncated to microseconds.
                array = array.cast(ARROW[kind], safe=kind != TIME)
        except pa.ArrowInvalid as error:
            raise BatchError(
                400, BAD_STAGE, f"column {name}: {error}", "values must fit into 64 bits"
            ) from error
        found[name] = array
    return found


def _check_spread(name: str, array: pa.Array) -> None:
    """Raise :class:`BatchError` (400) if a column is too large once each row has its own value.

    The limit is that of a record batch. A dictionary or a view stores one value for any number of
    rows: 4,096 rows with one value of 64 MB would become 256 GB.
    """
    if pa.types.is_dictionary(array.type):
        values = array.dictionary
        if not (_is_text(values.type) or _is_bytes(values.type)):
            return
        lengths = _value_lengths(values)
        size = int(lengths[array.indices.drop_null().to_numpy(zero_copy_only=False)].sum())
    elif str(array.type) in ("string_view", "binary_view"):
        size = int(_value_lengths(array).sum())
    else:
        return
    if size > RECORD_BATCH_BYTES_MAX:
        message = (
            f"column {name} has {size} bytes when each row has its own value, "
            "RECORD_BATCH_BYTES_MAX is "
        )
        raise BatchError(
            400, BAD_STAGE, f"{message}{RECORD_BATCH_BYTES_MAX}", "write smaller record batches"
        )


def _value_lengths(values: pa.Array) -> np.ndarray:
    """Return an array with the length of each text or binary value, in bytes.

    In a view, a null has the length that is stored in its place. Elsewhere a null has the length 0.
    """
    if str(values.type) not in ("string_view", "binary_view"):
        plain: np.ndarray = (
            pc.fill_null(pc.binary_length(values), 0)
            .to_numpy(zero_copy_only=False)
            .astype(np.int64)
        )
        return plain
    # A view has 16 bytes and begins with the length.
    views = np.frombuffer(values.buffers()[1], np.int32)
    lengths: np.ndarray = views[::4][values.offset : values.offset + len(values)].astype(np.int64)
    return lengths


class CanonicalDestinations:
    """Translates destinations, as the rows spell them, to canonical names and transports.

    Each spelling is checked once, and the result is kept for the life of the object.
    """

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._transports: dict[str, Transport] = {}
        self._elements: dict[str, tuple[str, ...]] = {}

    def elements(self, destination: str) -> tuple[str, ...]:
        """Return the format names of the queues that a destination names, spelled as given.

        Raises :class:`BatchError` (400) if the destination cannot be sent to.
        """
        known = self._elements.get(destination)
        if known is None:
            try:
                known = names_of(destination)
            except ValueError as error:
                raise BatchError(
                    400, BAD_STAGE, f"destination {error}", "a format name, or several with commas"
                ) from error
            queues = [self.canonical(each) for each in known]
            twice = next((each for each in queues if queues.count(each) > 1), None)
            if twice is not None:
                hint = "each queue gets a message once: name it once"
                raise BatchError(400, BAD_STAGE, f"destination names {twice} twice", hint)
            for each in queues if len(queues) > 1 else ():
                alone = transport_of(each).rules.alone
                if alone is not None:
                    what = f"destination names {alone.what} alongside other queues"
                    hint = f"send it in a row of its own: {alone.because}"
                    raise BatchError(400, BAD_STAGE, what, hint)
            self._elements[destination] = known
        return known

    def messages_in(self, column: pa.Array) -> int:
        """Return how many messages the rows with the destinations in ``column`` become.

        A row becomes one message for each queue that its destination names. Raises
        :class:`BatchError` (400) if a destination cannot be sent to.
        """
        if not has_lists(column):
            return len(column)
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        counts = np.array(
            [len(self.elements(each)) for each in encoded.dictionary.cast(pa.string()).to_pylist()]
        )
        return int(counts[encoded.indices.to_numpy(zero_copy_only=False)].sum())

    def transport(self, destination: str) -> Transport:
        """Return the transport of a destination, which is HTTP if it names several queues.

        Raises :class:`BatchError` if the destination cannot be sent to.
        """
        known = self._transports.get(destination)
        if known is None:
            is_list = len(self.elements(destination)) > 1
            known = Transport.HTTP if is_list else transport_of(self.canonical(destination))
            self._transports[destination] = known
        return known

    def canonical(self, destination: str) -> str:
        """Return the canonical name of the queue that ``destination``, one format name, names.

        Raises :class:`BatchError` (400) if the destination cannot be sent to.
        """
        known = self._known.get(destination)
        if known is None:
            try:
                known = canonical_outgoing(destination)
            except ConfigurationError as error:
                hint = (
                    "write DIRECT=http://HOST/msmq/private$/QUEUE, the URL alone, "
                    "MULTICAST=IP:PORT, or wsrm:URL"
                )
                raise BatchError(400, BAD_STAGE, str(error), hint) from error
            self._known[destination] = known
        return known


def body_sizes(columns: Mapping[str, pa.Array], rows: int) -> np.ndarray:
    """Return an array with the size of body plus extension of each row, in bytes."""
    sizes = np.zeros(rows, np.int64)
    for name in ("body", "extension"):
        if name in columns:
            sizes += pc.fill_null(pc.binary_length(columns[name]), 0).to_numpy(zero_copy_only=False)
    return sizes
