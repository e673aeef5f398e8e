"""Read saved messages as rows.

The messages are bodies in files, or JSON lines of ``srmp-spark peek`` or ``capture``. ``--from`` is
a file, a folder (with everything below it except hidden files) or a glob, on a disk of the machine
that runs the job:

- ``*.jsonl`` and ``*.ndjson`` hold one message a line, with the columns of INTERFACE.md section 4
  as ``srmp-spark peek`` prints them (bytes as base64, times as RFC 3339). A line must have
  ``body``; a line that a person wrote may have ``body_text`` alone. Other columns may be missing.
  Lines of ``peek --body text`` or ``none`` lack the bytes, and are refused.
- ``manifest.jsonl`` of ``srmp-spark capture``: each line names a file in the same folder that holds
  the POST as it was received (redacted).
- Any other file is the body of one message.

**Identity.** A line that has ``queue_manager``, ``epoch``, ``queue`` and ``sequence`` is identified
by these four, in whatever file it is. Any other message is identified by its path below ``--from``
and its row, so renaming a file makes a new message of it. The queue manager refuses, and does not
skip, the same path and row with another content.
"""

from __future__ import annotations

import base64
import binascii
import glob
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from srmp_spark.errors import ConfigurationError, SrmpSparkError
from srmp_spark.jobs.selection import POSITION, parse_time

if TYPE_CHECKING:
    import pyarrow as pa

LINES = (".jsonl", ".ndjson")
MANIFEST = "manifest.jsonl"
"""The file that ``srmp-spark capture`` writes into the folder of its posts."""
BODY_MAX = 4_194_304
"""Most bytes of a body, the limit of MSMQ. A larger file is refused before anything is sent."""
FILES_QUEUE_MANAGER = "files"
"""Value of the column ``queue_manager`` for rows without a source position.

No GUID has this value.
"""


class FileRow(NamedTuple):
    """One message that was read from a file."""

    path: str
    """Path of the file below ``--from``."""
    row: int
    """Line number in the file, from 1."""
    columns: dict[str, Any]
    """The known columns of INTERFACE.md section 4. ``body`` is always among them."""

    @property
    def has_position(self) -> bool:
        """Return whether the message has a source position of its own, which identifies it."""
        return all(self.columns.get(name) is not None for name in POSITION)

    @property
    def key(self) -> str | None:
        """Return the identity of a message without a source position.

        Return ``None`` for a message that has one.
        """
        return None if self.has_position else f"{self.path}#{self.row}"


def files_of(source: str) -> list[tuple[str, Path]]:
    """Return pairs of (path below ``source``, file), sorted by path.

    Raises :class:`ConfigurationError` if ``source`` names no file.
    """
    root = Path(source)
    if root.is_dir():
        found = [
            (path.relative_to(root).as_posix(), path) for path in root.rglob("*") if path.is_file()
        ]
        found = [
            (name, path)
            for name, path in found
            if not any(part.startswith(".") for part in name.split("/"))
        ]
    elif root.is_file():
        found = [(root.name, root)]
    else:
        found = [
            (Path(name).as_posix(), Path(name))
            for name in glob.glob(source, recursive=True)  # noqa: PTH207  # an absolute pattern too
            if Path(name).is_file()
        ]
    if not found:
        raise ConfigurationError(
            f"--from {source}: no file there; give a file, a folder or a glob on this machine"
        )
    return sorted(found)


def read(source: str) -> Iterator[FileRow]:
    """Yield every message, in the order of paths and rows.

    Raises :class:`ConfigurationError` that names the file and the line if one cannot be read.
    """
    try:
        yield from _read(source)
    except OSError as error:
        raise ConfigurationError(f"--from {source}: {error}") from None


def _read(source: str) -> Iterator[FileRow]:
    files = files_of(source)
    captured = {path.parent for _, path in files if path.name == MANIFEST}
    for name, path in files:
        if path.suffix.lower() in LINES:
            yield from _lines(name, path)
        elif path.parent not in captured:
            _check_size(name, path.stat().st_size)
            yield FileRow(name, 1, {"body": path.read_bytes(), "body_type": 0})


def _check_size(place: str, size: int) -> None:
    if size > BODY_MAX:
        raise ConfigurationError(
            f"{place} has {size} bytes, a message at most {BODY_MAX}: leave it out, or split it"
        )


def _lines(name: str, path: Path) -> Iterator[FileRow]:
    with path.open("rb") as file:
        for number, text in enumerate(file, 1):
            if not text.strip():
                continue
            place = f"{path}, line {number}"
            try:
                line = json.loads(text)
            except ValueError:
                line = None
            if not isinstance(line, dict):
                raise ConfigurationError(
                    f"{place}: not a JSON object; a file of bodies must not end in .jsonl "
                    "or .ndjson"
                )
            captured = "file" in line and "head_bytes" in line
            columns = _captured(place, path.parent, line) if captured else _columns(place, line)
            _check_size(place, len(columns["body"]))
            yield FileRow(name, number, columns)


def _columns(place: str, line: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of one line of ``peek``, by name; columns without a value are left out.

    ``place`` names the file and the line in errors. Raises :class:`ConfigurationError` without a
    body, or if a value does not fit its column.
    """
    from srmp_spark.rows.columns import arrow_schema

    columns: dict[str, Any] = {}
    for field in arrow_schema():
        if line.get(field.name) is not None:
            columns[field.name] = _cell(place, field, line[field.name])
    text = columns.get("body_text")
    if line.get("body") is None:
        if "body" in line or text is None:
            raise ConfigurationError(
                f"{place} has no body; print lines with `srmp-spark peek --body base64`, "
                "the default"
            )
        from srmp_spark.rows.body_text import body_of

        columns["body"] = body_of(columns.get("body_type", 0), text)
    return columns


def _cell(place: str, field: pa.Field, value: Any) -> Any:  # noqa: ANN401  # JSON in, a cell out
    import pyarrow as pa

    kind = field.type
    try:
        if pa.types.is_binary(kind):
            return base64.b64decode(value, validate=True)
        if pa.types.is_timestamp(kind):
            return parse_time(value)
        if pa.types.is_decimal(kind):
            return Decimal(value)
        return pa.scalar(value, kind).as_py()
    except (
        binascii.Error,
        TypeError,
        ValueError,
        ArithmeticError,
        ConfigurationError,
        pa.ArrowException,
    ):
        advice = (
            "; was it printed with --body text? The text does not give the bytes back"
            if field.name == "body"
            else ""
        )
        wanted = "base64" if pa.types.is_binary(kind) else str(kind)
        raise ConfigurationError(
            f"{place}: column {field.name} is not {wanted}: {str(value)[:60]!r}{advice}"
        ) from None


def _captured(place: str, folder: Path, line: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a POST that ``capture`` saved in ``folder``, without its position.

    Raises :class:`ConfigurationError` if the file is missing or holds no SRMP message.
    """
    from srmp_spark.message import Arrival
    from srmp_spark.rows.decode import rows_of
    from srmp_spark.rows.group import Record

    # Only the last part of the name counts, so no line can name a file outside the folder.
    file = folder / Path(str(line["file"])).name
    if not file.is_file():
        raise ConfigurationError(f"{place} names {file.name}, which is not in the same folder")
    transport, peer = line.get("transport", "http"), str(line.get("peer", ""))
    record = Record(Arrival(0, transport, peer, None), file.read_bytes(), int(line["head_bytes"]))
    try:
        columns: dict[str, Any] = rows_of(FILES_QUEUE_MANAGER, "", "", [(1, record)]).to_pylist()[0]
    except SrmpSparkError as error:
        raise ConfigurationError(f"{place}: {file.name} is no SRMP message: {error}") from None
    unknown = (*POSITION, "arrived_at")
    return {
        name: value for name, value in columns.items() if name not in unknown and value is not None
    }


def as_outgoing(rows: list[FileRow], delivery: str) -> pa.Table:
    """Return the messages as a table to stage.

    The table has the columns that the sink sends, the source position of messages that have one,
    and the key of the others. ``delivery`` is the value of ``--delivery``.
    """
    import pyarrow as pa

    from srmp_spark.jobs.sending import CORRELATION_BYTES, SENT
    from srmp_spark.rows.columns import arrow_schema

    schema = arrow_schema()
    columns: dict[str, pa.Array] = {}
    for name in SENT:
        values = [row.columns.get(name) for row in rows]
        if name == "correlation_id":
            values = [
                value if value is not None and len(value) == CORRELATION_BYTES else None
                for value in values
            ]
        columns[name] = pa.array(values, schema.field(name).type)
    for name in POSITION:
        values = [row.columns[name] if row.has_position else None for row in rows]
        columns[name] = pa.array(values, schema.field(name).type)
    columns["key"] = pa.array([row.key for row in rows], pa.string())
    as_received = [row.columns.get("delivery") or "recoverable" for row in rows]
    columns["delivery"] = pa.array(
        as_received if delivery == "original" else [delivery] * len(rows), pa.string()
    )
    return pa.table(columns)


def as_table_rows(rows: list[FileRow], run: str) -> pa.Table:
    """Return the messages with all columns of a message table.

    A message without a source position gets one from ``run``, its path and its row.
    """
    import pyarrow as pa

    from srmp_spark.rows.columns import arrow_schema

    placed = []
    for row in rows:
        place = {
            "queue_manager": FILES_QUEUE_MANAGER,
            "epoch": run,
            "queue": row.path,
            "sequence": row.row,
        }
        placed.append({**row.columns, **({} if row.has_position else place)})
    return pa.Table.from_pylist(placed, arrow_schema())
