"""``srmp-spark serve``: run a queue manager."""

from __future__ import annotations

import argparse
import os
from typing import Any

from srmp_spark.commands.common import Commands, add_command
from srmp_spark.extras import needs
from srmp_spark.queue_manager.configuration.config import add_flags, load

_DESCRIPTION = """\
Run a queue manager: it accepts MSMQ messages over HTTP (SRMP), stores them, and sends messages.

It prints one JSON line when it is ready, and logs to stderr. SIGTERM ends it without any loss.
Each flag can also be an environment variable (SRMP_SPARK_NAME) or a key of --config FILE.toml."""

_EXAMPLES = """\
examples:
  for a first try, on this machine only:
    srmp-spark serve --data-dir ./queue-manager --queue 'private$/orders'
  for senders on other machines, with a Delta copy of its state:
    srmp-spark serve --data-dir /var/lib/srmp-spark --listen 0.0.0.0:80 --host-name msmq.example \\
        --queue 'private$/orders:transactional' --state /lake/srmp-state

Exit codes: 0 ended by SIGTERM, 2 usage or configuration, 5 data directory in use, 6 data directory
damaged or newer"""


def add_commands(commands: Commands[Any]) -> None:
    """Add the command ``serve`` to ``commands``."""
    parser = add_command(
        commands,
        "serve",
        words="run a queue manager",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    add_flags(parser)
    parser.set_defaults(run=_serve)


def _serve(args: argparse.Namespace) -> int:
    needs("serve")
    config = load(vars(args), os.environ)
    from srmp_spark.queue_manager.serve import serve

    return serve(config)
