"""``ingest``, ``replay`` and ``backfill``: the jobs as commands of an installation.

The commands have the code, the flags and the exit codes of the scripts of the same names.
``spark-submit`` runs the scripts.
"""

from __future__ import annotations

from typing import Any

from srmp_spark.commands.common import Commands
from srmp_spark.jobs import backfill, ingest, replay


def add_commands(commands: Commands[Any]) -> None:
    """Add the commands ``ingest``, ``replay`` and ``backfill`` to ``commands``."""
    parser = commands.add_parser(
        "ingest", help="write queues into a Delta table, each message exactly once (with Spark)"
    )
    ingest.add_arguments(parser)
    parser.set_defaults(run=ingest.run)

    parser = commands.add_parser("replay", help="send rows of a message table again (with Spark)")
    replay.add_arguments(parser)
    parser.set_defaults(run=replay.run)

    parser = commands.add_parser(
        "backfill", help="bring stored rows or files into a message table or a queue (with Spark)"
    )
    backfill.add_arguments(parser)
    parser.set_defaults(run=backfill.run)
