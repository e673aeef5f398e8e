"""``send``, ``peek`` and ``receive``: send and read messages from the command line."""

from __future__ import annotations

import argparse
import base64
import contextlib
import heapq
import itertools
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from srmp_spark.canonical_url import canonical_outgoing
from srmp_spark.commands.common import (
    Commands,
    add_command,
    add_connection_flags,
    connect,
    connect_outgoing,
    emit,
    line,
)
from srmp_spark.commands.send_unfinished import unfinished
from srmp_spark.errors import ApiError, ConfigurationError
from srmp_spark.interface import DEFAULT_CONSUMER, ExitCode
from srmp_spark.names import (
    format_names,
    local_queue_name,
    multicast_address,
    parse_queue_url,
)
from srmp_spark.transports import transport_of

if TYPE_CHECKING:
    from srmp_spark.client.api import QueueManagerClient
    from srmp_spark.client.outgoing_messages import OutgoingClient

RANGE_ROWS = 10_000
"""Most rows of one request. ``peek`` prints the first rows while it still reads the others."""
RECEIVE_MAX = 10_000
"""Most rows that ``receive`` returns without ``--max``.

All of them are in memory at once, to be sorted by priority.
"""
SEND_MESSAGES = 1_000
"""Most messages of ``--lines`` in one request."""

_TABLE_COLUMNS = ("sequence", "arrived_at", "message_id", "priority", "label", "body_text")
_SENT = ("message_id", "destination", "stream_id", "stream_sequence", "state")
_RELIABLE = (
    ("soap_action", "URI", "wsa:Action of the message, required"),
    ("wsrm_version", "V", "1.0, 1.1 (default) or 1.2"),
    ("soap_version", "V", "1.1 or 1.2 (default)"),
    ("wsa_version", "V", "2004/08 or 2005/08 (default)"),
)
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
_DEFAULT_PORTS = frozenset((80, 443))
"""Ports of URLs without a port.

Such a URL means the queue manager of its host. Any other port on which the connected queue manager
does not listen belongs to another queue manager of the host.
"""

_SEND = """\
Send messages to a queue of this queue manager, or to the URL of a queue elsewhere.

Use it to try a queue, or to send from a shell script. The queue manager keeps a message for another
machine, and sends it again until the receiver acknowledges it."""

_SEND_EXAMPLES = """\
examples:
  to a queue of this queue manager:
    srmp-spark send --destination 'private$/orders' --label hello --body 'order 1'
  to a queue of another machine, and wait for the acknowledgement:
    srmp-spark send --destination 'http://peer.example/msmq/private$/orders' --body 'order 1' \\
        --key order-1 --wait 30
  each line of a file as a message:
    srmp-spark send --destination 'private$/orders' --lines orders.txt

output: one JSON object a message, {"message_id", "destination", "stream_id", "stream_sequence",
"state"}, where state is queued, sent, acknowledged or dead"""

_PEEK = """\
Print rows of a queue in the order of their sequences, and leave them in the queue.

Use it to look at messages. Rows that are already received are printed too, while they are kept."""

_PEEK_EXAMPLES = """\
examples:
  srmp-spark peek --queue 'private$/orders' --max 10 --table
  srmp-spark peek --queue 'private$/orders' > orders.jsonl     # backfill --source files reads it

output: one JSON object a row, with the columns of docs/INTERFACE.md section 4"""

_RECEIVE = """\
Print rows of a queue by priority, then mark them as received.

Use it to read a queue from a shell script. While a query or another receiver reads the queue with
the same --consumer, the command is refused."""

_RECEIVE_EXAMPLES = """\
examples:
  srmp-spark receive --queue 'private$/orders' --max 1 --body text
  srmp-spark receive --queue 'private$/orders' --consumer audit --table

output: one JSON object a row, with the columns of docs/INTERFACE.md section 4. Rows are marked only
after they were printed. If the command fails before, the next call prints them again"""


def add_commands(commands: Commands[Any]) -> None:
    """Add the commands ``send``, ``peek`` and ``receive`` to ``commands``."""
    _add_send(commands)
    _add_peek_and_receive(commands)


def _add_send(commands: Commands[Any]) -> None:
    parser = add_command(
        commands,
        "send",
        words="send messages to a queue, here or at another queue manager",
        description=_SEND,
        examples=_SEND_EXAMPLES,
    )
    parser.add_argument(
        "--destination",
        required=True,
        metavar="NAME",
        help="a queue of this queue manager, for example private$/orders, or the URL of a queue",
    )
    parser.add_argument("--label", metavar="S", default="", help="label (default: none)")
    body = parser.add_mutually_exclusive_group()
    body.add_argument(
        "--body",
        metavar="S",
        help="body as text, sent in UTF-16LE with --body-type 8 or 31, else in UTF-8",
    )
    body.add_argument(
        "--body-file", metavar="F", help="file with the bytes of the body; - is standard input"
    )
    body.add_argument(
        "--lines",
        metavar="F",
        help="file of UTF-8 text, each line a message as with --body; - is standard input",
    )
    parser.add_argument(
        "--body-type",
        type=int,
        default=0,
        metavar="N",
        help="PROPID_M_BODY_TYPE: 8 for a COM string, 30 for a C string, 31 for a wide string "
        "(default 0: bytes)",
    )
    parser.add_argument(
        "--delivery",
        choices=("express", "recoverable", "transactional"),
        help="default: transactional for a URL, whose queue must then be transactional; for a "
        "queue of this queue manager what the queue accepts",
    )
    parser.add_argument(
        "--key",
        metavar="S",
        help="identity of the message: the same message is not sent twice with the same key "
        "(URL only)",
    )
    for name, metavar, text in _RELIABLE:
        parser.add_argument(
            f"--{name.replace('_', '-')}", metavar=metavar, help=f"{text} (wsrm:URL only)"
        )
    parser.add_argument(
        "--wait",
        type=_seconds,
        metavar="SECONDS",
        help="wait at most SECONDS for the acknowledgement. If none arrives, print the reason and "
        "end with exit code 4. A queue here acknowledges at once, unless a redirection leads "
        "elsewhere",
    )
    add_connection_flags(parser)
    parser.set_defaults(run=_send)


def _add_peek_and_receive(commands: Commands[Any]) -> None:
    for name, words, description, examples, run in (
        (
            "peek",
            "print rows of a queue and leave them there",
            _PEEK,
            _PEEK_EXAMPLES,
            _peek,
        ),
        (
            "receive",
            "print rows of a queue by priority, then mark them as received",
            _RECEIVE,
            _RECEIVE_EXAMPLES,
            _receive,
        ),
    ):
        parser = add_command(
            commands, name, words=words, description=description, examples=examples
        )
        parser.add_argument("--queue", required=True, metavar="NAME", help="the queue to read")
        parser.add_argument(
            "--after", type=_sequence, metavar="SEQ", help="print only rows after this sequence"
        )
        most = "no limit" if name == "peek" else f"{RECEIVE_MAX:,}"
        parser.add_argument(
            "--max", type=_sequence, metavar="N", help=f"print at most N rows (default: {most})"
        )
        parser.add_argument(
            "--body",
            choices=("base64", "text", "none"),
            default="base64",
            help="form of the column body (default: base64)",
        )
        if name == "receive":
            parser.add_argument(
                "--consumer",
                default=DEFAULT_CONSUMER,
                metavar="NAME",
                help="consumer whose mark moves (default: %(default)s)",
            )
            parser.add_argument(
                "--reject",
                action="store_true",
                help="mark the rows as rejected: a sender that asked for it is notified",
            )
        add_connection_flags(parser, shows=name == "peek")
        parser.set_defaults(run=run)


def _sequence(text: str) -> int:
    with contextlib.suppress(ValueError):
        if (value := int(text)) >= 0:
            return value
    raise argparse.ArgumentTypeError(f"a whole number from 0 on, not {text!r}")


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if (value := float(text)) >= 0:
            return value
    raise argparse.ArgumentTypeError(f"a number of seconds from 0 on, not {text!r}")


# --- send -----------------------------------------------------------------------------------------


def _send(args: argparse.Namespace) -> int:
    client = connect_outgoing(args)
    queue = _local_destination(args.destination, client)
    if args.key is not None and queue is not None:
        raise ConfigurationError(
            "--key works only for the URL of another queue manager; for a queue of this one leave "
            "--key out"
        )
    if args.key is not None and args.lines is not None:
        raise ConfigurationError(
            "--key identifies one message, and --lines sends many: send them one by one, or with "
            "Spark's column key"
        )
    if args.body is None and args.body_file is None and args.lines is None:
        raise ConfigurationError(
            "send needs --body, --body-file or --lines; --body '' sends an empty message"
        )
    reliable = [
        f"--{name.replace('_', '-')}" for name, *_ in _RELIABLE if getattr(args, name) is not None
    ]
    if reliable and not transport_of(args.destination).rules.speaks_soap:
        raise ConfigurationError(
            f"{', '.join(reliable)}: only a destination wsrm:URL can have this, and "
            f"{args.destination} is no such URL; leave it out"
        )
    fields: dict[str, object] = {"label": args.label, "body_type": args.body_type}
    if args.delivery is not None:
        fields["delivery"] = args.delivery
    if args.key is not None:
        fields["key"] = args.key
    fields |= {name: value for name, *_ in _RELIABLE if (value := getattr(args, name)) is not None}
    left: set[tuple[str, str, str]] = set()
    deadline = None if args.wait is None else time.monotonic() + args.wait
    messages = (
        {**fields, "body_base64": base64.b64encode(body).decode("ascii")} for body in _bodies(args)
    )
    while batch := list(itertools.islice(messages, SEND_MESSAGES)):
        if queue is not None:
            answers = client.send(queue, batch)
            emit(answers, table=args.table)
            left |= {
                (each["destination"], "", each["state"])
                for each in answers
                if each["state"] != "acknowledged"
            }
        else:
            left |= _send_away(args, client, batch, deadline)
    if deadline is None or not left:
        return 0
    status = {(each["destination"], each["kind"]): each for each in client.status()["outgoing"]}
    for destination, kind, state in sorted(left):
        print(
            f"srmp-spark: {state}: {unfinished(state, status.get((destination, kind)))}",
            file=sys.stderr,
        )
    return int(ExitCode.REFUSED)


def _send_away(
    args: argparse.Namespace,
    client: OutgoingClient,
    batch: list[dict[str, object]],
    deadline: float | None,
) -> set[tuple[str, str, str]]:
    """Send ``batch`` to another queue manager, print the answers, return unfinished ones.

    The result holds (destination, kind of the outgoing queue, state) of each message that is not
    acknowledged. With ``deadline`` (of ``time.monotonic``) the call waits until every message has
    ended or the deadline passes.
    """
    answers = client.send_away([{"destination": args.destination, **message} for message in batch])
    if deadline is not None:
        _wait(client, answers, deadline)
    for answer in answers:
        if answer.get("known"):
            answer["message_id"] = answer["known_message_id"]
            which = (
                f"message {answer['message_id']}"
                if answer["message_id"]
                else "its identifier is not kept"
            )
            told = (
                f"--key {args.key} was given before: nothing new is sent. State of the "
                f"earlier message: {answer['state']}"
            )
            print(f"srmp-spark: {told} ({which})", file=sys.stderr)
    emit([{name: answer[name] for name in _SENT} for answer in answers], table=args.table)
    return {
        (each["destination"], each["kind"], each["state"])
        for each in answers
        if each["state"] != "acknowledged"
    }


def _wait(client: OutgoingClient, answers: list[dict[str, Any]], deadline: float) -> None:
    """Wait until every message of ``answers`` has ended or the deadline passes.

    The states in ``answers`` are updated. All messages of one destination must be in outgoing
    queues of the same kind.
    """
    waiting = [answer for answer in answers if answer["serial"] is not None]
    for destination in dict.fromkeys(answer["destination"] for answer in waiting):
        _wait_for(
            [answer for answer in waiting if answer["destination"] == destination], client, deadline
        )


def _wait_for(waiting: list[dict[str, Any]], client: OutgoingClient, deadline: float) -> None:
    """Wait like :func:`_wait`, for messages of one destination and one kind of queue."""
    while waiting:
        left = deadline - time.monotonic()
        serials = [answer["serial"] for answer in waiting]
        states = client.states(
            waiting[0]["destination"], waiting[0]["kind"], serials, wait=max(left, 0.0)
        )
        for answer, state in zip(waiting, states, strict=True):
            answer["state"] = state
        if left <= 0 or all(state in ("acknowledged", "dead") for state in states):
            return


def _local_destination(destination: str, client: QueueManagerClient) -> str | None:
    """Return the queue of the connected queue manager that ``destination`` names, or ``None``.

    ``None`` means that another queue manager has the queue, or that only the queue manager can
    judge the name. The queue manager is asked where it listens. Raises :class:`ConfigurationError`
    for a name that no message over HTTP can reach.
    """
    # The queue manager judges each of several names, and sends over HTTP to all of them, also to
    # its own queues.
    if len(format_names(destination)) > 1:
        return None
    try:
        if multicast_address(destination) is not None:
            return None
    except ValueError as error:
        raise ConfigurationError(f"--destination {destination}: {error}") from None
    if not transport_of(destination).rules.leads_to_queue:
        # Raise the error of the queue manager before anything is sent.
        canonical_outgoing(destination)
        return None
    other = f"--destination {destination}: give the URL of the queue, like http://HOST/msmq/private$/NAME"
    url = destination[7:] if destination[:7].upper() == "DIRECT=" else destination
    if "://" not in url:
        # MSMQ writes "OS:." for this computer.
        if url[:4].upper() == "OS:.":
            return local_queue_name(url[3:])
        if url is not destination or "=" in url:
            raise ConfigurationError(other)
        return local_queue_name(url)
    try:
        address = parse_queue_url(url)
    except ValueError:
        # The web server of another host may have any path. The queue manager refuses a text that
        # is no URL.
        return None
    listening = [parse_queue_url(f"{each}/msmq/any") for each in client.status()["listening"]]
    if address.host not in {each.host for each in listening} and address.host not in _LOCAL_HOSTS:
        return None
    return (
        address.queue
        if address.port in {each.port for each in listening} | _DEFAULT_PORTS
        else None
    )


def _bodies(args: argparse.Namespace) -> Iterator[bytes]:
    from srmp_spark.rows.body_text import VT_BSTR, VT_LPWSTR, body_of

    if args.lines is not None:
        with _open(args.lines) as file:
            for number, line_bytes in enumerate(file, 1):
                content = line_bytes.rstrip(b"\r\n")
                if args.body_type in (VT_BSTR, VT_LPWSTR):
                    try:
                        content = body_of(args.body_type, content.decode())
                    except UnicodeDecodeError:
                        raise ConfigurationError(
                            f"--lines {args.lines}: line {number} is not UTF-8"
                        ) from None
                yield content
    elif args.body_file is not None:
        with _open(args.body_file) as file:
            yield file.read()
    else:
        try:
            yield body_of(args.body_type, args.body)
        # The argument has bytes that are no text in the encoding of the locale.
        except UnicodeEncodeError:
            raise ConfigurationError("--body is not text; --body-file takes any bytes") from None


def _open(name: str) -> Any:  # noqa: ANN401  # a binary file, or standard input
    if name == "-":
        # The caller closes the file; the descriptor of standard input stays open.
        return open(sys.stdin.fileno(), "rb", closefd=False)
    try:
        return Path(name).open("rb")
    except OSError as error:
        raise ConfigurationError(f"{name}: {error.strerror}") from None


# --- peek and receive -----------------------------------------------------------------------------


def _rows(
    client: QueueManagerClient, queue: str, after: int, limit: int | None, *, peek: bool
) -> Iterator[dict[str, Any]]:
    """Yield the rows of ``queue`` after the sequence ``after``, in order, over all epochs.

    The end of the queue is read once at the start, so rows that arrive later are not yielded. At
    most ``limit`` rows are yielded; ``None`` means no limit. ``peek`` means that the caller
    receives nothing. Raises :class:`ApiError` if the queue manager refuses, for example because
    there is no such queue, or because its readers are paused.
    """
    described = client.queue(queue)
    to, at = described["last"], max(after, described["first"] - 1)
    left = limit
    ends = [epoch["first"] - 1 for epoch in described["epochs"][1:]] + [to]
    for epoch, end in zip(described["epochs"], ends, strict=True):
        at = max(at, epoch["first"] - 1)
        # The queue manager refuses a range after the end of the epoch, so such an epoch is
        # skipped.
        while at < end and (left is None or left > 0):
            found = client.range(
                queue,
                epoch=epoch["epoch"],
                after=at,
                max_rows=RANGE_ROWS if left is None else min(RANGE_ROWS, left),
                peek=peek,
            )
            if found.paused:
                raise ApiError(
                    409,
                    "paused",
                    f"the readers of queue {queue} are paused",
                    f"srmp-spark queue resume {shlex.quote(queue)}; peek shows the rows",
                )
            last = min(found.last, to)
            if last <= at:
                break
            for row in _read(client, queue, found.epoch, at, last):
                if left is not None:
                    if left == 0:
                        return
                    left -= 1
                yield row
            at = last


def _read(
    client: QueueManagerClient, queue: str, epoch: str, after: int, to: int
) -> Iterator[dict[str, Any]]:
    import pyarrow as pa

    with (
        client.rows(queue, epoch=epoch, after=after, to=to) as stream,
        pa.ipc.open_stream(stream.as_file()) as reader,
    ):
        for batch in reader:
            yield from batch.to_pylist()


def shape(row: dict[str, Any], body: str) -> dict[str, Any]:
    """Return ``row`` with its body in the form that ``--body`` names.

    ``base64`` keeps the bytes, ``text`` replaces them by the column ``body_text``, and ``none``
    sets body and text to ``None``.
    """
    if body == "text":
        return {**row, "body": row["body_text"]}
    if body == "none":
        return {**row, "body": None, "body_text": None}
    return row


def _peek(args: argparse.Namespace) -> int:
    queue = local_queue_name(args.queue)
    found = _rows(connect(args), queue, args.after or 0, args.max, peek=True)
    rows = (shape(row, args.body) for row in found)
    if args.table:
        emit(rows, table=True, columns=_TABLE_COLUMNS)
        return 0
    for row in rows:
        print(line(row))
    sys.stdout.flush()
    return 0


def _receive(args: argparse.Namespace) -> int:
    from srmp_spark.client.lease import LeaseKeeper
    from srmp_spark.holder import Holder
    from srmp_spark.queue_manager.queues.consumers import SEQUENCES_MAX
    from srmp_spark.sequences.sequence_set import SequenceSet

    limit = RECEIVE_MAX if args.max is None else args.max
    if limit > SEQUENCES_MAX:
        raise ConfigurationError(
            f"--max {limit}: at most {SEQUENCES_MAX} rows are received at once; call "
            "receive again for more"
        )
    if args.reject and args.consumer != DEFAULT_CONSUMER:
        raise ConfigurationError(
            f"--reject: only consumer {DEFAULT_CONSUMER} can reject rows, not "
            f"{args.consumer}; leave "
            "--consumer out"
        )
    client, queue = connect(args), local_queue_name(args.queue)
    keeper = LeaseKeeper(Holder.here("srmp-spark receive").as_dict())
    registration = keeper.acquire(client, queue, args.consumer)
    try:
        taken = SequenceSet(client.all_ahead(queue, args.consumer, registration))
        after = max(args.after or 0, registration.received)
        waiting = (
            row
            for row in _rows(client, queue, after, None, peek=False)
            if row["sequence"] not in taken
        )
        rows = heapq.nsmallest(
            limit, waiting, key=lambda row: (-(row["priority"] or 0), row["sequence"])
        )
        emit((shape(row, args.body) for row in rows), table=args.table, columns=_TABLE_COLUMNS)
        # Only printed rows are marked as received. If the reader of standard output had ended,
        # emit would have raised.
        if rows:
            keeper.check()
            sequences = sorted(row["sequence"] for row in rows)
            client.received(
                queue,
                args.consumer,
                epoch=registration.epoch,
                to=sequences[-1],
                holder=keeper.holder,
                sequences=sequences,
                rejected=args.reject,
            )
    finally:
        keeper.release()
    return 0
