"""``restore``: make a new data directory from the Delta state after the disk was lost."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from srmp_spark.commands.common import Commands, add_command, emit

_COLUMNS = ("finding", "what", "name", "first", "last", "count", "state", "detail")

_DESCRIPTION = """\
Make a new data directory from the Delta state (serve --state) after the disk was lost.

Use it only when neither the data directory nor a backup of it is left. The queue manager must not
run. Afterwards start it with serve and the same flags. docs/troubleshooting.md, "A lost disk",
describes each step."""

_EXAMPLES = """\
example:
  srmp-spark restore --state /lake/srmp-state --data-dir /var/lib/srmp-spark --table

output: one JSON object a line. Its field "finding" is one of
  restored     the object is in the new data directory
  lost         it was handed out, but the Delta state does not have it
  may_be_lost  it may have arrived after the last write of the Delta state
  in_doubt     messages to others that may have arrived. They are held until
               srmp-spark streams resend|drop --destination D decides"""


def add_commands(commands: Commands[Any]) -> None:
    """Add the command ``restore`` to ``commands``."""
    parser = add_command(
        commands,
        "restore",
        words="make a new data directory from the Delta state after the disk was lost",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    parser.add_argument(
        "--state",
        required=True,
        metavar="URI|PATH",
        help="value of --state of the lost queue manager",
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
        help="which queue manager to restore, if the state has several",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="do not check whether the queue manager still runs. If it runs, it ends within 5 s, "
        "and the messages that it accepts until then are lost",
    )
    parser.add_argument(
        "--table", action="store_true", help="print a table for people instead of JSON lines"
    )
    parser.set_defaults(run=_restore)


def _restore(args: argparse.Namespace) -> int:
    # Imported here, because loading deltalake takes a while.
    from srmp_spark.store.restore.report import ReportLine
    from srmp_spark.store.restore.restore import restore

    kept: list[dict[str, object]] = []

    def tell(line: ReportLine) -> None:
        if args.table:
            kept.append(line.as_dict())
        else:
            emit([line.as_dict()], table=False)

    def on_wait(seconds: float) -> None:
        note = (
            f"asking the queue manager whether it lives, for {seconds:.0f} s; --force does not ask"
        )
        print(f"srmp-spark: {note}", file=sys.stderr, flush=True)

    try:
        restore(
            args.state,
            Path(args.data_dir),
            tell,
            queue_manager=args.queue_manager,
            force=args.force,
            on_wait=on_wait,
        )
    finally:
        if kept:
            emit(kept, table=True, columns=_COLUMNS, whole=True)
    return 0
