"""``srmp-spark serve``: run a queue manager."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from srmp_spark.commands.common import Commands, add_command
from srmp_spark.errors import SrmpSparkError
from srmp_spark.extras import needs
from srmp_spark.interface import exit_code_of
from srmp_spark.logs.form import say_last
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
  would it start with these options? prints each finding and what to do (exit code 1: one failed):
    srmp-spark serve --config /etc/srmp-spark/serve.toml --check

Exit codes: 0 ended by SIGTERM or checked, 1 a check failed, 2 usage or configuration, 5 data
directory in use, 6 data directory damaged or newer"""


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
    parser.add_argument(
        "--check",
        action="store_true",
        help="check these options, their files, ports, names and the disk, and end: nothing is "
        "changed, and a queue manager that runs is not disturbed",
    )
    parser.set_defaults(run=_serve)


def _serve(args: argparse.Namespace) -> int:
    needs("serve")
    if args.check:
        from srmp_spark.commands.checks.before_start import checks_before_start
        from srmp_spark.commands.checks.report import report

        return report(checks_before_start(vars(args), os.environ), table=sys.stdout.isatty())
    config = load(vars(args), os.environ)
    from srmp_spark.queue_manager.serve import serve

    try:
        return serve(config)
    except SrmpSparkError as error:
        # The log is set up by now, and its last line has its form.
        code = exit_code_of(type(error))
        say_last(" ".join(str(error).split()), code)
        return code
