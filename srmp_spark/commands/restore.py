"""``restore``: make a new data directory from the Delta state after the disk was lost."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from srmp_spark.commands.common import Commands, emit

_COLUMNS = ("finding", "what", "name", "first", "last", "count", "state", "detail")

_EPILOG = """one JSON object per line, each with what was found:
  restored     it is in the new data directory
  lost         it was given out, and Delta does not have it
  may_be_lost  it may have come after Delta was written last
  in_doubt     messages to others that may have arrived: held until `srmp-spark streams resend|drop --destination D`
then start the queue manager with serve and the same flags; see docs/troubleshooting.md, "A lost disk"."""


def add_commands(commands: Commands[Any]) -> None:
    """Add the command ``restore`` to ``commands``."""
    parser = commands.add_parser(
        "restore",
        help="make a new data directory from the Delta state, when the disk is lost",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--state", required=True, metavar="URI|PATH", help="what serve had as --state"
    )
    parser.add_argument("--data-dir", required=True, metavar="DIR", help="an empty folder")
    parser.add_argument(
        "--queue-manager", metavar="GUID", help="which one, if the state has several"
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="do not ask whether the queue manager lives: its disk is lost for certain. "
        "One that lives ends within 5 s, and "
        "what it accepts until then is lost",
    )
    parser.add_argument(
        "--table", action="store_true", help="a table for people instead of JSON lines"
    )
    parser.set_defaults(run=_restore)


def _restore(args: argparse.Namespace) -> int:
    # Imported here, because loading deltalake takes a while.
    from srmp_spark.store.restore.report import Line
    from srmp_spark.store.restore.restore import restore

    kept: list[dict[str, Any]] = []

    def tell(line: Line) -> None:
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
