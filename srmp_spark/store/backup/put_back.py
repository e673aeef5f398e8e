"""Make a data directory of a backup: ``srmp-spark restore --backup``.

The directory gets no file ``identity``. So its first start treats it as a copy: it begins a new
epoch, and holds everything that acts outside until ``srmp-spark activate``. The original may still
run, and one backup may be restored twice.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from srmp_spark.errors import StoreDamagedError, StoreSyncError
from srmp_spark.private_files import FOLDER_MODE
from srmp_spark.store.backup.files import OnBytes, copy_file
from srmp_spark.store.backup.manifest import Manifest, read_manifest
from srmp_spark.store.database import schema, sqlite_file
from srmp_spark.store.database.durable import sync_directory, write_durably
from srmp_spark.store.directory import DATABASE_FILE, RESTORED_FILE, SEGMENTS_DIRECTORY
from srmp_spark.store.outbox.tables.schema import DATABASE_FILE as OUTBOX_FILE
from srmp_spark.store.outbox.tables.schema import OUTBOX
from srmp_spark.store.restore.report import Report, ReportLine
from srmp_spark.store.restore.target import new_directory
from srmp_spark.store.stored_rows.log import Log


def restore_backup(
    backup: Path,
    data_dir: Path,
    tell: Callable[[ReportLine], object],
    *,
    on_begin: Callable[[int], OnBytes] = lambda _: lambda __: None,
) -> None:
    """Make the data directory ``data_dir`` of ``backup``, and report what is in it.

    ``tell`` gets each line of the report. ``on_begin`` is called with the number of bytes that are
    copied, and returns the function that counts them. Every file is compared with its checksum.
    Raises :class:`ConfigurationError` if one of the folders cannot be used,
    :class:`StoreInUseError`, :class:`StoreDamagedError` if the backup is incomplete or damaged, and
    :class:`StoreSyncError` if the directory cannot be written. After an error the directory cannot
    be used, and the same restore can be run again.
    """
    made = read_manifest(backup)
    with new_directory(data_dir) as path:
        try:
            _copy(backup, path, made, on_begin(made.bytes))
        except FileNotFoundError as error:
            raise StoreDamagedError(
                f"{error.filename} is gone from the backup: use another backup"
            ) from error
        except OSError as error:
            raise StoreSyncError(
                f"{data_dir} cannot be written ({error.strerror}): make room or repair the disk, "
                "then run the same restore again"
            ) from error
        try:
            _tell(path, made, Report(tell))
        except sqlite3.DatabaseError as error:
            raise sqlite_file.store_error(
                path / DATABASE_FILE, error, schema.RESTORE_HINT
            ) from error


def _copy(backup: Path, path: Path, made: Manifest, on_bytes: OnBytes) -> None:
    folders = {path}
    for file in made.files:
        target = path / file.name
        target.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        found = copy_file(backup / file.name, target, on_bytes)
        if (found.bytes, found.sha256) != (file.bytes, file.sha256):
            raise StoreDamagedError(
                f"{backup / file.name} is not what was backed up ({found.bytes} bytes of "
                f"{file.bytes}, or another checksum): use another backup"
            )
        folders |= {each for each in target.parents if path in each.parents}
    note = {"made_at": made.made_at, "host": made.host, "data_dir": made.data_dir}
    write_durably(path / RESTORED_FILE, (json.dumps(note) + "\n").encode())
    for folder in folders:
        sync_directory(folder)


def _tell(path: Path, made: Manifest, report: Report) -> None:
    report.add(
        "restored",
        "queue_manager",
        made.queue_manager,
        f"as it was at {made.made_at} on {made.host} in {made.data_dir}; its first start begins a "
        "new epoch",
        epoch=made.epoch,
    )
    with Log(path / DATABASE_FILE, path / SEGMENTS_DIRECTORY) as log:
        _tell_rows(log, report)
    if made.outbox_position is not None:
        with closing(sqlite_file.connect_reader(path / OUTBOX_FILE, OUTBOX)) as outbox:
            _tell_outgoing(outbox, report)
    for sentence in made.damaged:
        report.add("damaged", "rows", "", sentence)
    for each in made.elsewhere:
        report.add("known", "file", each, "not in the backup; the configuration names it")
    report.add(
        "may_be_lost",
        "messages",
        "",
        f"messages that arrived, or were committed to be sent, after {made.made_at} are not in the "
        "backup. Senders do not send again what was acknowledged; the Delta table inbox has what "
        "was published (docs/backup.md)",
    )
    report.add(
        "do",
        "activate",
        "",
        "start it with serve. It sends nothing and takes nothing from others until `srmp-spark "
        "activate`: run that when the original will never run again",
    )


def _tell_rows(log: Log, report: Report) -> None:
    with log.snapshot() as db:
        names = [
            name
            for (name,) in db.execute(
                "SELECT name FROM queues WHERE deleted_at IS NULL ORDER BY name"
            )
            if isinstance(name, str)
        ]
        marks = {
            (str(queue), str(name)): received
            for queue, name, received in db.execute(
                "SELECT q.name, c.name, c.received FROM consumers c JOIN queues q ON "
                "q.id = c.queue_id"
            )
        }
    for queue in names:
        for epoch in log.epochs(queue):
            bounds = log.bounds(queue, epoch)
            if bounds.first <= bounds.end:
                report.add(
                    "restored",
                    "rows",
                    queue,
                    "in the log",
                    first=bounds.first,
                    last=bounds.end,
                    epoch=epoch,
                )
        for (of, name), received in sorted(marks.items()):
            if of == queue:
                report.add(
                    "restored",
                    "consumer",
                    f"{queue} {name}",
                    "its mark; rows that it received later are delivered again",
                    last=received,
                )


def _tell_outgoing(outbox: sqlite3.Connection, report: Report) -> None:
    for destination, acknowledged, end in outbox.execute(
        "SELECT destination, acknowledged_to, end FROM queues WHERE id IN (SELECT queue_id FROM "
        "parts WHERE queue_id IS NOT NULL) ORDER BY destination"
    ):
        if end > acknowledged:
            report.add(
                "in_doubt",
                "outgoing",
                str(destination),
                "waited when the backup was made, and may have been sent since: held until "
                f"`srmp-spark streams resend|drop --destination {destination}`",
                first=acknowledged + 1,
                last=end,
            )
