"""``capture``: write the posts of a queue to files, redacted, for bug reports and tests.

:mod:`.redaction` describes which parts of a post are replaced.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from srmp_spark.commands.common import (
    Commands,
    add_command,
    add_connection_flags,
    connect,
    emit,
)
from srmp_spark.errors import ConfigurationError
from srmp_spark.names import local_queue_name

if TYPE_CHECKING:
    from srmp_spark.client.api import QueueManagerClient
    from srmp_spark.rows.group import Record

CAPTURE_MAX = 10_000
"""Largest value of ``--max``: the posts of one capture are files in one folder.

A larger value is an error.
"""
MANIFEST = "manifest.jsonl"

_DESCRIPTION = """\
Write the newest posts of a queue to files, redacted, for a bug report or a test.

Body, label, host names, GUIDs and signatures are replaced by other content of the same length.
Queue names, numbers, times and priorities are kept. Look at the files before you pass them on."""

_EXAMPLES = """\
example:
  srmp-spark capture --queue 'private$/orders' --max 20 --out ./capture

output: one JSON object for each file, also in DIR/manifest.jsonl"""


def add_commands(commands: Commands[Any]) -> None:
    """Add the command ``capture`` to ``commands``."""
    parser = add_command(
        commands,
        "capture",
        words="write the newest posts of a queue to files, redacted, for a bug report",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    parser.add_argument("--queue", required=True, metavar="NAME", help="the queue to read")
    parser.add_argument(
        "--max", type=int, default=100, metavar="N", help="write the newest N posts (default 100)"
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="a new or empty folder")
    add_connection_flags(parser)
    parser.set_defaults(run=_capture)


def _capture(args: argparse.Namespace) -> int:
    from srmp_spark.commands.redaction import Redactor

    if not 0 < args.max <= CAPTURE_MAX:
        raise ConfigurationError(f"--max {args.max}: give a number from 1 to {CAPTURE_MAX}")
    # Asked before the folder is made: no folder appears for a queue that does not exist.
    records = _records(connect(args), local_queue_name(args.queue), args.max)
    out = Path(args.out)
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise ConfigurationError(
                f"--out {out} is not empty: name another folder, or empty this one"
            )
    except OSError as error:
        raise ConfigurationError(f"--out {out}: {error.strerror}") from None
    from srmp_spark.rows.group import FORM_OF

    redactor, left_out = Redactor(), 0
    written: list[dict[str, object]] = []
    with (out / MANIFEST).open("w", encoding="utf-8") as manifest:
        for number, (sequence, record) in enumerate(records, 1):
            if record.form not in FORM_OF.values():
                left_out += 1
                continue
            name = f"{number:05d}.http"
            (out / name).write_bytes(redactor.redact(record))
            entry = {
                "file": name,
                "sequence": sequence,
                "bytes": len(record.post),
                "head_bytes": record.head_length,
                "transport": record.arrival.transport,
                "peer": redactor.peer(record.arrival.peer),
            }
            manifest.write(json.dumps(entry) + "\n")
            written.append(entry)
    if left_out:
        sys.stderr.write(
            f"{left_out} messages are no posts of SRMP and are left out: nothing in them "
            "would be redacted\n"
        )
    emit(written, table=args.table)
    return 0


def _records(client: QueueManagerClient, queue: str, count: int) -> Iterator[tuple[int, Record]]:
    """Return an iterator over the newest ``count`` posts of the present epoch.

    Each post comes with its sequence. The queue manager is asked for the range at once, so a
    refusal (for example: no such queue) is raised by this call as :class:`ApiError`.
    """
    found = client.range(queue)
    return _read(client, queue, found.epoch, max(found.first - 1, found.end - count), found.end)


def _read(
    client: QueueManagerClient, queue: str, epoch: str, after: int, to: int
) -> Iterator[tuple[int, Record]]:
    from srmp_spark.rows import dense
    from srmp_spark.rows.group import unpack_group
    from srmp_spark.rows.segment import records_of

    columns = b""
    with client.rows(queue, epoch=epoch, after=after, to=to, envelope=True, dense=True) as stream:
        for frame in dense.frames(stream.as_file()):
            if frame.kind == dense.SEGMENT:
                # The next frames have the posts of these columns.
                columns = frame.data
                continue
            pairs = (
                unpack_group(frame.data)
                if frame.kind == dense.GROUP
                else records_of(columns, frame.data)
            )
            for sequence, record in pairs:
                if sequence > after and any(
                    first <= sequence <= last for first, last in frame.keep
                ):
                    yield sequence, record
