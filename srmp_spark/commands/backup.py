"""``backup`` and ``restore``: save a data directory, and make a new one after a loss."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from srmp_spark.commands.common import Commands, add_command, emit
from srmp_spark.errors import ConfigurationError
from srmp_spark.interface import ExitCode
from srmp_spark.jobs.pace import Bar

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

KB = 1_000
"""Bytes in the unit of the progress line."""
_BACKUP_COLUMNS = ("finding", "what", "name", "bytes", "detail")
_RESTORE_COLUMNS = ("finding", "what", "name", "first", "last", "count", "state", "detail")

_BACKUP = """\
Back up a data directory into a new folder, while its queue manager runs or while it does not.

The backup has both databases as they were at one moment, the sealed rows, and the passwords of
subscriptions. Everything is read again from the disk before the backup counts: checksums, SQLite's
integrity check, and every row. A backup that is interrupted is marked as incomplete, and restore
refuses it. Run the command as the user of serve, on the same machine. docs/backup.md has the
schedule, the restore, and what a backup cannot know."""

_BACKUP_EXAMPLES = """\
example:
  srmp-spark backup --data-dir /var/lib/srmp-spark --to /mnt/backup/$(date +%F) \\
        --config /etc/srmp-spark/serve.toml

output: one JSON object a line. Its field "finding" is one of
  saved    the file, or the data directory as a whole, is in the backup
  damaged  rows that are unreadable in the data directory itself (exit code 1). The rest is saved
  known    a file that the configuration names and that is not in the backup. Keep it elsewhere"""

_RESTORE = """\
Make a new data directory from a backup (srmp-spark backup), or from the Delta state.

Use --backup if there is a backup: it has everything up to its time, also what waits to be sent.
Use --state, with the value that serve had, after the disk was lost and no backup is left, or if
the messages since the backup count more: the Delta state is seconds old, and has less.
docs/backup.md compares the two. The queue
manager must not run. Afterwards start it with serve and the same flags."""

_RESTORE_EXAMPLES = """\
examples:
  srmp-spark restore --backup /mnt/backup/2026-11-27 --data-dir /var/lib/srmp-spark --table
  srmp-spark restore --state /lake/srmp-state --data-dir /var/lib/srmp-spark --table

output: one JSON object a line. Its field "finding" is one of
  restored     the object is in the new data directory
  lost         it was handed out, but the Delta state does not have it
  may_be_lost  it may have arrived after the backup, or after the last write of the Delta state
  known        why nothing more can be lost, or what is not part of a backup
  damaged      rows that were unreadable already when the backup was made
  in_doubt     messages to others that may have arrived. They are held until
               srmp-spark streams resend|drop --destination D decides
  do           what to do next. After --backup everything that acts outside is held until
               srmp-spark activate"""


def add_commands(commands: Commands[Any]) -> None:
    """Add the commands ``backup`` and ``restore`` to ``commands``."""
    _add_backup(commands)
    _add_restore(commands)


def _add_backup(commands: Commands[Any]) -> None:
    parser = add_command(
        commands,
        "backup",
        words="back up a data directory, while its queue manager runs or not",
        description=_BACKUP,
        examples=_BACKUP_EXAMPLES,
    )
    parser.add_argument(
        "--data-dir", required=True, metavar="DIR", help="the data directory of serve"
    )
    parser.add_argument(
        "--to", required=True, metavar="DIR", help="the backup: a new or empty folder"
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="configuration file of serve. It and the files that it names are listed, and not "
        "copied, because they hold secrets of their own",
    )
    parser.add_argument(
        "--table", action="store_true", help="print a table for people instead of JSON lines"
    )
    parser.set_defaults(run=_backup)


def _add_restore(commands: Commands[Any]) -> None:
    parser = add_command(
        commands,
        "restore",
        words="make a new data directory from a backup or from the Delta state",
        description=_RESTORE,
        examples=_RESTORE_EXAMPLES,
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--backup", metavar="DIR", help="folder that srmp-spark backup --to named")
    source.add_argument(
        "--state", metavar="URI|PATH", help="value of --state of the lost queue manager"
    )
    parser.add_argument(
        "--data-dir",
        required=True,
        metavar="DIR",
        help="the new data directory: a new or empty folder",
    )
    parser.add_argument(
        "--queue-manager",
        metavar="GUID",
        help="with --state: which queue manager to restore, if the state has several",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="with --state: do not check whether the queue manager still runs. If it runs, it ends "
        "within 5 s, and the messages that it accepts until then are lost",
    )
    parser.add_argument(
        "--table", action="store_true", help="print a table for people instead of JSON lines"
    )
    parser.set_defaults(run=_restore)


class _Bytes:
    """Shows on stderr how many bytes of a step are done."""

    def __init__(self, words: str, total: int) -> None:
        print(f"srmp-spark: {words}", file=sys.stderr, flush=True)
        self._bar = Bar(total // KB, sys.stderr, unit="KB")
        self._rest = 0

    def add(self, count: int) -> None:
        """Count ``count`` more bytes."""
        done, self._rest = divmod(self._rest + count, KB)
        self._bar.add(done)

    def close(self) -> None:
        """End the line on a terminal."""
        self._bar.close()


def _backup(args: argparse.Namespace) -> int:
    from srmp_spark.store.backup.backup import Step, backup

    shown: list[_Bytes] = []

    def on_step(step: Step, total: int) -> Callable[[int], object]:
        words = {"copy": "copying", "verify": "reading everything again"}[step]
        for each in shown[-1:]:
            each.close()
        shown.append(_Bytes(words, total))
        return shown[-1].add

    elsewhere = [] if args.config is None else list(_files_of(Path(args.config)))
    try:
        made = backup(Path(args.data_dir), Path(args.to), on_step=on_step, elsewhere=elsewhere)
    finally:
        for each in shown[-1:]:
            each.close()
    lines: list[dict[str, object]] = [
        {"finding": "saved", "what": "file", "name": each.name, "bytes": each.bytes, "detail": ""}
        for each in made.files
        if not each.name.startswith("segments/")
    ]
    sealed = [each.bytes for each in made.files if each.name.startswith("segments/")]
    lines.append(
        {
            "finding": "saved",
            "what": "segments",
            "name": "segments/",
            "bytes": sum(sealed),
            "detail": f"{len(sealed)} files",
        }
    )
    for what, found in (("damaged", made.damaged), ("known", made.elsewhere)):
        for each_text in found:
            is_file = what == "known"
            lines.append(
                {
                    "finding": what,
                    "what": "file" if is_file else "rows",
                    "name": each_text if is_file else "",
                    "bytes": None,
                    "detail": "not in the backup; the configuration names it"
                    if is_file
                    else each_text,
                }
            )
    lines.append(
        {
            "finding": "saved",
            "what": "queue_manager",
            "name": made.queue_manager,
            "bytes": made.bytes,
            "detail": f"as it was at {made.made_at}, in {Path(args.to).absolute()}; verified",
        }
    )
    emit(lines, table=args.table, columns=_BACKUP_COLUMNS, whole=True)
    return ExitCode.CHECK_FAILED if made.damaged else ExitCode.DONE


def _files_of(config: Path) -> Iterator[str]:
    """Yield ``config``, and each existing file that a value in it names, as absolute paths.

    Raises :class:`ConfigurationError` if the file cannot be read.
    """
    try:
        pending: list[object] = [tomllib.loads(config.read_text(encoding="utf-8"))]
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"--config {config}: {error}") from None
    found = [config]
    while pending:
        value = pending.pop()
        if isinstance(value, list | dict):
            pending += value if isinstance(value, list) else value.values()
        elif isinstance(value, str) and _is_file(value):
            found.append(Path(value))
    yield from dict.fromkeys(str(each.absolute()) for each in found)


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):
        # The text is too long for a path, or its folder may not be searched.
        return text.startswith("/")


def _restore(args: argparse.Namespace) -> int:
    # Imported here, because loading deltalake takes a while.
    from srmp_spark.store.restore.report import ReportLine

    if args.backup is not None and (args.force or args.queue_manager):
        raise ConfigurationError("--force and --queue-manager can be given only with --state")
    kept: list[dict[str, object]] = []

    def tell(line: ReportLine) -> None:
        if args.table:
            kept.append(line.as_dict())
        else:
            emit([line.as_dict()], table=False)

    try:
        if args.backup is not None:
            _restore_backup(args, tell)
        else:
            _restore_state(args, tell)
    finally:
        if kept:
            emit(kept, table=True, columns=_RESTORE_COLUMNS, whole=True)
    return ExitCode.DONE


def _restore_backup(args: argparse.Namespace, tell: Callable[[Any], object]) -> None:
    from srmp_spark.store.backup.put_back import restore_backup

    shown: list[_Bytes] = []

    def on_begin(total: int) -> Callable[[int], object]:
        shown.append(_Bytes("copying, and comparing checksums", total))
        return shown[-1].add

    try:
        restore_backup(Path(args.backup), Path(args.data_dir), tell, on_begin=on_begin)
    finally:
        for each in shown:
            each.close()


def _restore_state(args: argparse.Namespace, tell: Callable[[Any], object]) -> None:
    from srmp_spark.store.restore.restore import restore

    def on_wait(seconds: float) -> None:
        note = (
            f"asking the queue manager whether it lives, for {seconds:.0f} s; --force does not ask"
        )
        print(f"srmp-spark: {note}", file=sys.stderr, flush=True)

    restore(
        args.state,
        Path(args.data_dir),
        tell,
        queue_manager=args.queue_manager,
        force=args.force,
        on_wait=on_wait,
    )
