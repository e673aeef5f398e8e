"""``subscribe``: read queues of other queue managers into queues of this one ([MS-MQRR])."""

from __future__ import annotations

import argparse
import math
import os
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from srmp_spark.commands import subscribe_cutover
from srmp_spark.commands.common import (
    RETRY_SECONDS,
    Commands,
    add_command,
    add_connection_flags,
    address,
    emit,
)
from srmp_spark.errors import ApiError, ConfigurationError, with_hint
from srmp_spark.jobs.sign_in_flags import add_sign_in_flags
from srmp_spark.private_files import refuse_open_secret

if TYPE_CHECKING:
    from srmp_spark.client.subscriptions import SubscriptionsClient

ACTIONS = ("add", "list", "remove", "resume", "cutover")
FIRST_SECONDS = 2.0
"""Longest wait of ``add`` for the first attempt, in seconds.

A reachable machine usually answers within this time. After it the command reports that no answer
has arrived yet and ends with exit code 0.
"""
POLL_SECONDS = 0.1
_FLAGS = (
    "the flags are --host, --queue, --mode move|copy, --to, --username with "
    "--password-file, --domain, "
    "--auth-protocol ntlm|kerberos|negotiate, --auth-level none|connect|integrity|privacy"
)
SUBSCRIPTION_COLUMNS = (
    "host",
    "queue",
    "mode",
    "to",
    "pulled",
    "pending",
    "doubtful",
    "lag_seconds",
    "last_error",
)
# The text is the name of an environment variable, no password.
PASSWORD_VARIABLE = "SRMP_SPARK_REMOTE_PASSWORD"  # noqa: S105
PASSWORD_MAX = 4_096
"""Most bytes that are read of a password file.

Passwords of Windows have at most 256 characters.
"""

_DESCRIPTION = """\
Read queues of other queue managers, for example of Windows, into queues of this one ([MS-MQRR]).

Use it when a sender cannot be changed to send here. The queue manager reads the remote queue
continuously until the subscription is removed, also after restarts."""

_EXAMPLES = f"""\
actions:
  add     begin to read --queue of --host. For an existing subscription add changes its mode or
          account. The command waits up to two seconds for the first attempt. If the attempt
          fails, the command prints the error and ends with exit code 4. The subscription stays,
          and the queue manager tries again
  list    print one subscription a line, with its count of messages and its last error
  remove  read nothing more. The subscription disappears when its pending count is 0. Remove a
          subscription of the configuration file from that file
  cutover compare a copied queue (--mode copy) with its original, and then move it. --check only
          compares, and ends with exit code 0 if it is safe and 1 if not. Stop the readers of the
          other machine first. No message counts twice: what was received there is marked as
          received here for --consumer, everything else is removed there and is read here
  resume  begin to read after a hold. A copy of a data directory moves no messages until an
          operator confirms that the original no longer reads the queue

examples:
  srmp-spark subscribe add --host windows.example --queue 'private$\\orders' --username reader \\
      --domain EXAMPLE --password-file reader.password
  srmp-spark subscribe list --table
  srmp-spark subscribe cutover --host windows.example --queue 'private$\\orders' --check
  srmp-spark subscribe remove --host windows.example --queue 'private$\\orders'

The password is the content of --password-file, or of the environment variable
{PASSWORD_VARIABLE}. The queue manager keeps it in a file of its data directory that
only its owner can read. To keep the password elsewhere, write a [[subscription]] with password_file
into the configuration of serve."""


def add_commands(commands: Commands[Any]) -> None:
    """Add the command ``subscribe`` to ``commands``."""
    parser = add_command(
        commands,
        "subscribe",
        words="read queues of other queue managers into queues of this one (MQRR)",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    parser.add_argument("action", choices=ACTIONS, help="see below")
    parser.add_argument(
        "--host",
        metavar="HOST",
        help="the remote machine, HOST or HOST:PORT (without a port its endpoint mapper is asked)",
    )
    parser.add_argument(
        "--queue",
        metavar="NAME",
        help="the remote queue: private$\\orders, orders;JOURNAL, deadletter$ or a format name",
    )
    parser.add_argument(
        "--mode",
        choices=("move", "copy"),
        help="move (default): remove each message from the remote queue; copy: remove nothing",
    )
    parser.add_argument(
        "--to", metavar="NAME", help="the queue here that receives (default private$/NAME@HOST)"
    )
    parser.add_argument(
        "--unsettled",
        choices=("here", "there"),
        help="remove: whose the messages are that a cut-over in progress has not decided, if the "
        "other machine does not come back",
    )
    subscribe_cutover.add_flags(parser)
    add_sign_in_flags(parser)
    add_connection_flags(parser, shows=True)
    parser.set_defaults(run=_subscribe)


def _subscribe(args: argparse.Namespace) -> int:
    _refuse_flags_of_others(args)
    client = _client(args)
    if args.action == "list":
        found = [
            each
            for each in client.subscriptions()
            if args.host in (None, each["host"]) and args.queue in (None, each["queue"])
        ]
        emit(found, table=args.table, columns=SUBSCRIPTION_COLUMNS)
        if not found and args.table:
            print("no subscriptions", file=sys.stderr)
        return 0
    for name in ("host", "queue"):
        if getattr(args, name) is None:
            raise ConfigurationError(
                f"{args.action} needs --{name}; `srmp-spark subscribe list` lists the subscriptions"
            )
    if args.action == "remove":
        emit(
            [client.unsubscribe(args.host, args.queue, unsettled=args.unsettled)],
            table=args.table,
            columns=SUBSCRIPTION_COLUMNS,
        )
        return 0
    if args.action == "cutover":
        return subscribe_cutover.cut_over(client, args)
    if args.action == "resume":
        emit(
            [client.resume_subscription(args.host, args.queue)],
            table=args.table,
            columns=SUBSCRIPTION_COLUMNS,
        )
        return 0
    entry = {
        "host": args.host,
        "queue": args.queue,
        "mode": args.mode,
        "to": args.to,
        "username": args.username,
        "domain": args.domain,
        "auth_protocol": args.auth_protocol,
        "auth_level": args.auth_level,
        "password": _password(args),
    }
    return _add(client, entry, _connection_of(args), table=args.table)


def _refuse_flags_of_others(args: argparse.Namespace) -> None:
    """Raise :class:`ConfigurationError` for a flag that the action would silently ignore.

    Someone who asks for a check must not get a change.
    """
    owners = {
        "check": "cutover",
        "consumer": "cutover",
        "accept_received": "cutover",
        "received_there": "cutover",
        "unsettled": "remove",
    }
    for name, action in owners.items():
        if getattr(args, name) and args.action != action:
            flag = name.replace("_", "-")
            raise ConfigurationError(f"--{flag} is a flag of {action}, not of {args.action}")


def _connection_of(args: argparse.Namespace) -> str:
    """Return the flags that reach the same queue manager, for a command that the user copies."""
    given = [("--api", args.api), ("--token-file", args.token_file)]
    flags = "".join(f" {flag} {shlex.quote(value)}" for flag, value in given if value)
    return flags + (" --allow-plain-token" if args.allow_plain_token else "")


def _add(
    client: SubscriptionsClient, entry: dict[str, str | None], connection: str, *, table: bool
) -> int:
    from srmp_spark.client.attempts import Attempt, attempt

    try:
        found = client.subscribe(entry)
    except ApiError as error:
        if error.code != "usage":
            raise
        raise ConfigurationError(
            with_hint(error.message, f"{error.hint}; {_FLAGS}" if error.hint else _FLAGS)
        ) from None
    deadline = time.monotonic() + FIRST_SECONDS
    while (
        attempt(found, math.inf) is Attempt.UNDER_WAY
        and not found["pulled"]
        and time.monotonic() < deadline
    ):
        time.sleep(POLL_SECONDS)
        there = client.subscriptions()
        found = next(
            (each for each in there if (each["host"], each["to"]) == (found["host"], found["to"])),
            found,
        )
    emit([found], table=table, columns=SUBSCRIPTION_COLUMNS)
    outcome = attempt(found, math.inf)
    this = f"--host {found['host']} --queue '{found['queue']}'"
    if outcome is Attempt.FAILED:
        print(
            f"srmp-spark: {found['queue']} of {found['host']} cannot be read: "
            f"{found['last_error']}\n"
            "srmp-spark: the subscription stays and is tried again; to take it back: "
            f"srmp-spark subscribe remove {this}{connection}",
            file=sys.stderr,
        )
        return 4
    if outcome is Attempt.HINDERED:
        print(f"srmp-spark: {found['last_error']}", file=sys.stderr)
    elif outcome is Attempt.UNDER_WAY and not found["pulled"]:
        print(
            f"srmp-spark: {found['queue']} of {found['host']} has not answered yet; what "
            "came of it: srmp-spark subscribe list"
            f"{connection}",
            file=sys.stderr,
        )
    return 0


def _client(args: argparse.Namespace) -> SubscriptionsClient:
    # Imported here, because loading requests takes a while.
    from srmp_spark.client.subscriptions import SubscriptionsClient

    return SubscriptionsClient(
        *address(args), retry_seconds=RETRY_SECONDS, allow_plain_token=args.allow_plain_token
    )


def _password(args: argparse.Namespace) -> str | None:
    """Return the password of ``--password-file``, or else of the environment.

    Without the flag, and without ``--username``, the result is ``None``. No flag takes the password
    itself, because other users of the machine can read command lines. Raises
    :class:`ConfigurationError` if the file cannot be read, is no UTF-8, or can be read by other
    users.
    """
    if args.password_file is None:
        return os.environ.get(PASSWORD_VARIABLE) if args.username else None
    try:
        refuse_open_secret("--password-file", args.password_file)
        with Path(args.password_file).open("rb") as file:
            return file.read(PASSWORD_MAX).decode().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--password-file {args.password_file}: {error}") from None
