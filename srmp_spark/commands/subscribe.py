"""``subscribe``: which queues of other queue managers are read into ours ([MS-MQRR])."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from srmp_spark.commands.common import RETRY_SECONDS, Commands, add_connection_flags, address, emit
from srmp_spark.errors import ConfigurationError

if TYPE_CHECKING:
    from srmp_spark.client.subscriptions import SubscriptionsClient

ACTIONS = ("add", "list", "remove")
COLUMNS = ("host", "queue", "mode", "to", "pulled", "pending", "doubtful", "lag_seconds", "last_error")
PASSWORD_VARIABLE = "SRMP_SPARK_REMOTE_PASSWORD"  # noqa: S105  # a name
PASSWORD_MAX = 4_096
"""Bytes of a password file; passwords of Windows have at most 256 characters."""

_HELP = f"""actions:
  add     read the remote queue --queue of --host from now on, until it is removed. Again with another --mode or
          account: it has those then
  list    one a line, with what was pulled and the last error (also in srmp-spark status)
  remove  take nothing more; it is gone when pending is 0. What stands in the configuration file is removed there

The password is the content of --password-file, read here, or {PASSWORD_VARIABLE}. The queue manager keeps it in a file of its
data directory that only its owner can read; to keep it elsewhere: [[subscription]] with password_file in its configuration."""


def add_commands(commands: Commands[Any]) -> None:
    """Add it."""
    parser = commands.add_parser(
        "subscribe", help="read queues of other queue managers into ours (MQRR)", epilog=_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("action", choices=ACTIONS)
    parser.add_argument("--host", metavar="HOST", help="HOST or HOST:PORT that has the queue (no port: its endpoint mapper)")
    parser.add_argument("--queue", metavar="NAME", help="private$\\orders, orders;JOURNAL, deadletter$ or a format name")
    parser.add_argument("--mode", choices=("move", "copy"), help="move (default): removed there; copy: nothing is removed")
    parser.add_argument("--to", metavar="NAME", help="the queue of ours (default private$/NAME@HOST)")
    parser.add_argument("--username", metavar="USER", help="as whom to sign in")
    parser.add_argument("--domain", metavar="DOMAIN", help="its domain, or the name of the other machine")
    parser.add_argument("--password-file", metavar="FILE", help="its password")
    parser.add_argument("--auth-protocol", metavar="P", help="ntlm (default), kerberos or negotiate")
    parser.add_argument("--auth-level", metavar="L", help="none, connect, integrity or privacy (default; on loopback none)")
    add_connection_flags(parser)
    parser.set_defaults(run=_subscribe)


def _subscribe(args: argparse.Namespace) -> int:
    client = _client(args)
    if args.action == "list":
        found = [
            each for each in client.subscriptions()
            if args.host in (None, each["host"]) and args.queue in (None, each["queue"])
        ]  # fmt: skip
        if found or not args.table:
            emit(found, table=args.table, columns=COLUMNS)
        return 0
    for name in ("host", "queue"):
        if getattr(args, name) is None:
            raise ConfigurationError(f"{args.action} needs --{name}; `srmp-spark subscribe list` lists what there is")
    if args.action == "remove":
        emit([client.unsubscribe(args.host, args.queue)], table=args.table, columns=COLUMNS)
        return 0
    entry = {
        "host": args.host, "queue": args.queue, "mode": args.mode, "to": args.to, "username": args.username,
        "domain": args.domain, "auth_protocol": args.auth_protocol, "auth_level": args.auth_level, "password": _password(args),
    }  # fmt: skip
    emit([client.subscribe(entry)], table=args.table, columns=COLUMNS)
    return 0


def _client(args: argparse.Namespace) -> SubscriptionsClient:
    from srmp_spark.client.subscriptions import SubscriptionsClient  # requests takes a while to load

    return SubscriptionsClient(*address(args), retry_seconds=RETRY_SECONDS)


def _password(args: argparse.Namespace) -> str | None:
    """Never on the command line: other users of the machine read those."""
    if args.password_file is None:
        return os.environ.get(PASSWORD_VARIABLE) if args.username else None
    try:
        with Path(args.password_file).open("rb") as file:
            return file.read(PASSWORD_MAX).decode().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--password-file {args.password_file}: {error}") from None
