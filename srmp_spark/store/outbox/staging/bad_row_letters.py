"""The letter about a row that can never be sent: a JSON document with the reason and the row.

A bad row cannot become a message, so its dead letter is not the message as it would have been sent.
The letter is a message of its own: its label is ``bad row: REASON``, and its body is a document in
UTF-8 that any program can read:

    {"bad_row": "bad-label", "message": "label has at most 249 characters, got 300",
     "hint": "shorten it", "application": "orders", "batch": "7",
     "row": {"key": "A-17", "destination": "DIRECT=…", "label": "…", "body": "…"}}

``row`` has the columns of the sink that have a value, and those of ``orderBy``. Bytes that are text
are written as text, other bytes as ``NAME_base64``. Values that do not fit are cut, and ``cut`` has
their full lengths by column. The document depends on the row alone, so that a batch that is run
again makes the same letter.
"""

from __future__ import annotations

import base64
import json
import math
import re
from datetime import date, datetime
from hashlib import blake2b
from typing import Any, NamedTuple

import pyarrow as pa

from srmp_spark.rows.row_names import value_of
from srmp_spark.srmp.limits import BODY_MAX
from srmp_spark.store.outbox.columns import POSITION
from srmp_spark.store.outbox.identity.hashing import HASH_BYTES
from srmp_spark.store.outbox.stage_file import Slice
from srmp_spark.store.outbox.staging.refusals import RowRefusal

DOCUMENT_BYTES_MAX = BODY_MAX - 65_536
"""Largest size of a document, in bytes. A letter is a message, and has MSMQ's limit.

The rest is for the reason and the names of the row.
"""
VALUE_LENGTH_MAX = 8_192
"""Largest length of a value in the document, in characters or bytes; a longer value is cut.

A destination may be that long. The column ``body`` gets all the room that the others leave.
"""
VALUES_BYTES_MAX = 1_048_576
"""Largest size of all values but the body, in bytes. Columns of ``orderBy`` beyond it are left out.
"""

ESCAPE_BYTES_MAX = 6
"""Largest number of bytes that one character has in JSON: ``\\u0001``."""

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class Origin(NamedTuple):
    """Where the rows of a stage come from."""

    application: str
    batch: str
    partition: int


class Letter(NamedTuple):
    """A letter about one bad row, as a message."""

    label: str
    body: bytes
    key: bytes | None
    """Identity of the letter, if the row has a key or a source position.

    Without one, the letter is identified by its content within its batch.
    """


def letter_of(piece: Slice, row: int, refusal: RowRefusal, origin: Origin) -> Letter:
    """Return the letter about the row at index ``row`` of ``piece``."""
    values, cut = _values(piece.batch, row)
    shown = _json(values)
    document = {
        "bad_row": refusal.reason,
        "message": refusal.message[:VALUE_LENGTH_MAX],
        "hint": refusal.hint,
        "application": origin.application,
        "batch": origin.batch,
        "row": values,
        **({"cut": cut} if cut else {}),
    }
    return Letter(f"bad row: {refusal.reason}", _json(document), _key(piece, row, shown))


def _key(piece: Slice, row: int, shown: bytes) -> bytes | None:
    columns = piece.columns
    key = columns["key"][row].as_py() if "key" in columns else None
    if key is None:
        if not all(name in columns for name in POSITION):
            return None
        if any(not columns[name][row].is_valid for name in POSITION):
            return None
    # The values include the key, or the position.
    return blake2b(
        (key or b"") + b"\n" + shown, digest_size=HASH_BYTES, person=b"srmp-bad-row"
    ).digest()


def _values(batch: pa.RecordBatch, row: int) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the values of a row as JSON has them, and the full lengths of those that are cut."""
    found: dict[str, Any] = {}
    cut: dict[str, int] = {}
    room = VALUES_BYTES_MAX
    for name in batch.schema.names:
        value = value_of(batch.column(name)[row])
        if value is None or name == "body":
            continue
        shown = _shown(name, value, VALUE_LENGTH_MAX)
        if len(_json(shown)) > room:
            cut[name] = _length(value)
            continue
        room -= len(_json(shown))
        found |= shown
        if _length(value) > VALUE_LENGTH_MAX:
            cut[name] = _length(value)
    body = batch.column("body")[row].as_py()
    if body is not None:
        shown, is_whole = _fitting("body", body, DOCUMENT_BYTES_MAX - len(_json(found)))
        found |= shown
        if not is_whole:
            cut["body"] = _length(body)
    return found, cut


def _length(value: object) -> int:
    return len(value) if isinstance(value, bytes | str) else 0


def _fitting(name: str, value: bytes | str, room: int) -> tuple[dict[str, Any], bool]:
    """Return as much of a value as fits into ``room`` bytes of JSON, and whether it is whole."""
    shown = _shown(name, value, room)
    if len(_json(shown)) <= room:
        return shown, len(value) <= room
    if _text_of(value) is None:
        return _shown(name, value, (room - len(f'{{"{name}_base64":""}}')) // 4 * 3), False
    ((key, text),) = shown.items()
    # The JSON of the text is cut, and then the rest of an escape or of a character.
    left = _json(text)[: room - len(_json({key: ""})) + 1]
    for cut in range(ESCAPE_BYTES_MAX + 1):
        try:
            return {key: json.loads(left[: len(left) - cut] + b'"')}, False
        except ValueError:  # noqa: PERF203  # a few attempts for a body that does not fit
            continue
    raise AssertionError(f"{left[-20:]!r} is no JSON")


def _shown(name: str, value: object, length_max: int) -> dict[str, Any]:
    """Return an object with one value in the form that JSON has for it."""
    if isinstance(value, bytes):
        text = _text_of(value)
        if text is None:
            return {f"{name}_base64": base64.b64encode(value[:length_max]).decode()}
        value = text
    if isinstance(value, str):
        return {name: value[:length_max]}
    if isinstance(value, datetime | date):
        return {name: value.isoformat()}
    if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return {name: value}
    return {name: str(value)}


def _text_of(value: bytes | str) -> str | None:
    if isinstance(value, str):
        return value
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return None if _CONTROL.search(text) else text


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
