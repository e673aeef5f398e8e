"""Connect the commands to the queue manager, and print their results."""

from __future__ import annotations

import argparse
import base64
import json
import os
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from srmp_spark.errors import ConfigurationError
from srmp_spark.interface import DEFAULT_API
from srmp_spark.private_files import refuse_open_secret
from srmp_spark.queue_manager.trust.tokens import check_token

if TYPE_CHECKING:
    from srmp_spark.client.api import QueueManagerClient
    from srmp_spark.client.outgoing_messages import OutgoingClient

Commands = argparse._SubParsersAction  # noqa: SLF001  # argparse gives the type no public name

RETRY_SECONDS = 5.0
"""Longest time that a command tries to reach the queue manager, in seconds.

Then the command ends with exit code 3. A person waits for less time than Spark does.
"""

CELL_WIDTH_MAX = 60
"""Most characters of one cell of a table.

Longer text is cut and ends with ``…``, so that a row fits on a screen.
"""


def add_command(
    commands: Commands[Any], name: str, *, words: str, description: str, examples: str
) -> argparse.ArgumentParser:
    """Add the parser of the command ``name`` to ``commands`` and return the parser.

    ``words`` is the line of ``srmp-spark --help``. ``description`` and ``examples`` are printed by
    ``srmp-spark NAME --help`` with their line ends.
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=words,
        description=description,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parser


def add_connection_flags(parser: argparse.ArgumentParser, *, shows: bool = False) -> None:
    """Add ``--api``, ``--token-file``, ``--allow-plain-token``, ``--table``, ``--json``.

    ``shows`` states that the command only shows things. Such a command prints a table by default if
    standard output is a terminal. Any other command prints JSON lines by default, because a table
    cuts long cells, and rows that ``receive`` has printed are gone from the queue.
    """
    parser.add_argument(
        "--api",
        metavar="URL",
        help=f"API of the queue manager (also SRMP_SPARK_API; default http://{DEFAULT_API}). "
        "For https with a private CA set REQUESTS_CA_BUNDLE or SSL_CERT_FILE",
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="file with the token of the API (also SRMP_SPARK_TOKEN)",
    )
    parser.add_argument(
        "--allow-plain-token",
        action="store_true",
        help="send the token over plain HTTP to another host, although others can read it there",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--table",
        action="store_true",
        default=shows and sys.stdout.isatty(),
        help="print a table for people"
        + (" (default on a terminal)" if shows else " instead of JSON lines"),
    )
    form.add_argument(
        "--json",
        action="store_false",
        dest="table",
        default=argparse.SUPPRESS,
        help="print JSON lines" + (" (default in a pipe or a file)" if shows else " (default)"),
    )


def connect(args: argparse.Namespace) -> QueueManagerClient:
    """Return a client for the queue manager that the flags and the environment name.

    Nothing is sent yet. Raises :class:`ConfigurationError` if the URL or the token cannot be used.
    """
    # Imported here, because loading requests takes a while.
    from srmp_spark.client.api import QueueManagerClient

    return QueueManagerClient(
        *address(args), retry_seconds=RETRY_SECONDS, allow_plain_token=args.allow_plain_token
    )


def connect_outgoing(args: argparse.Namespace) -> OutgoingClient:
    """Return a client for outgoing messages of the queue manager that the flags name.

    Nothing is sent yet. Raises :class:`ConfigurationError` if the URL or the token cannot be used.
    """
    from srmp_spark.client.outgoing_messages import OutgoingClient

    return OutgoingClient(
        *address(args), retry_seconds=RETRY_SECONDS, allow_plain_token=args.allow_plain_token
    )


def address(args: argparse.Namespace) -> tuple[str, str | None]:
    """Return (URL of the API, API token), from the flags or the environment.

    The token is ``None`` if neither has one. Raises :class:`ConfigurationError` if ``--token-file``
    cannot be read, other users can read it, or its content is no token.
    """
    url = args.api or os.environ.get("SRMP_SPARK_API") or f"http://{DEFAULT_API}"
    token = os.environ.get("SRMP_SPARK_TOKEN")
    try:
        if args.token_file:
            refuse_open_secret("--token-file", args.token_file)
            token = check_token(Path(args.token_file).read_text(encoding="utf-8").strip())
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"--token-file {args.token_file}: {error}") from None
    return url, token


def to_json(value: Any) -> Any:  # noqa: ANN401  # a cell of a row
    """Return a cell as a JSON value.

    Bytes become base64, times RFC 3339 in UTC, and decimals integers. Other values stay as they
    are.
    """
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, datetime):
        return (
            value.astimezone(timezone.utc).isoformat(timespec="microseconds").replace("+00:00", "Z")
        )
    if isinstance(value, Decimal):
        return int(value)
    return value


def line(value: Mapping[str, Any]) -> str:
    """Return ``value`` as one JSON object on one line, without a line end.

    The cells are converted by :func:`to_json`.
    """
    return json.dumps(
        {key: to_json(cell) for key, cell in value.items()},
        ensure_ascii=False,
        separators=(",", ":"),
    )


def emit(
    rows: Iterable[Mapping[str, Any]],
    *,
    table: bool,
    columns: Iterable[str] | None = None,
    whole: bool = False,
) -> None:
    """Print ``rows`` as JSON lines, or as a table of ``columns`` if ``table`` is true.

    The default of ``columns`` is every key of the rows. A table cuts its cells at
    :data:`CELL_WIDTH_MAX` characters unless ``whole`` is true. Standard output is flushed.
    """
    if not table:
        for row in rows:
            print(line(row))
        sys.stdout.flush()
        return
    listed = list(rows)
    names = (
        list(columns)
        if columns is not None
        else list(dict.fromkeys(name for row in listed for name in row))
    )
    cells = [
        [_cell(row.get(name), sys.maxsize if whole else CELL_WIDTH_MAX) for name in names]
        for row in listed
    ]
    widths = [max([len(name), *(len(row[i]) for row in cells)]) for i, name in enumerate(names)]
    for texts in [names, *cells]:
        print(
            "  ".join(text.ljust(width) for text, width in zip(texts, widths, strict=True)).rstrip()
        )
    sys.stdout.flush()


def _cell(value: Any, width: int) -> str:  # noqa: ANN401  # a cell of a row
    value = to_json(value)
    text = (
        ""
        if value is None
        else value
        if isinstance(value, str)
        else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    )
    text = "".join(c if c.isprintable() else " " for c in text)
    return text if len(text) <= width else text[: width - 1] + "…"
