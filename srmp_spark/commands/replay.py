"""``replay``: the same as ``jobs/replay.py`` (:mod:`srmp_spark.jobs.replay`)."""

from __future__ import annotations

from typing import Any

from srmp_spark.commands.common import Commands
from srmp_spark.jobs import replay


def add_commands(commands: Commands[Any]) -> None:
    """Add it."""
    parser = commands.add_parser(
        "replay", help="send rows of a message table once more (with Spark)"
    )
    replay.add_arguments(parser)
    parser.set_defaults(run=replay.run)
