"""``srmp-spark serve``: run a queue manager."""

from __future__ import annotations

import argparse
import os
from typing import Any

from srmp_spark.commands.common import Commands
from srmp_spark.extras import needs
from srmp_spark.queue_manager.configuration.config import add_flags, load


def add_commands(commands: Commands[Any]) -> None:
    """Add the command ``serve`` to ``commands``."""
    parser = commands.add_parser(
        "serve",
        help="run a queue manager",
        description="Run a queue manager. It prints one JSON line when it is ready. "
        "SIGTERM ends it without any loss.",
    )
    add_flags(parser)
    parser.set_defaults(run=_serve)


def _serve(args: argparse.Namespace) -> int:
    needs("serve")
    config = load(vars(args), os.environ)
    from srmp_spark.queue_manager.serve import serve

    return serve(config)
