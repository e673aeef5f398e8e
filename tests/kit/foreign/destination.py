"""Runs the foreign destination, a receiving queue manager written from the document alone.

The module ``destination_server`` describes the destination and its use in tests. This module is its
command line, for the demo and for runs that kill processes: ``python -m
tests.kit.foreign.destination --port 8080 --faults 503=0.1 --seed 7 --record FILE``.

The process prints one JSON line when it listens and one when it ends. It ends at SIGTERM or SIGINT,
after ``--seconds``, or with ``--control`` at the end of its input. If it is killed and started
again with the same ``--record`` and ``--port``, it continues where it was.
"""

from __future__ import annotations

import argparse
import base64
import dataclasses
import json
import re
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from srmp_spark.testing.foreign.destination_server import FINALS, Destination
from srmp_spark.testing.foreign.destination_verdict import judge_record
from srmp_spark.testing.foreign.faults import POST_FAULTS, RECEIPT_FAULTS, Faults
from srmp_spark.testing.foreign.receiving import RECEIPT_WAIT

__all__ = ["Destination", "main"]

COMMANDS = (
    "restart [S] | memory-lost [S] | down S | withhold S | receive QUEUE | purge QUEUE | status"
)
KNOWN = tuple(entry.split()[0] for entry in COMMANDS.split(" | "))


def parser() -> argparse.ArgumentParser:
    """Return the parser of this module's command line."""
    faults = "\n".join(
        f"  {name:16} {text}" for name, text in (POST_FAULTS | RECEIPT_FAULTS).items()
    )
    made = argparse.ArgumentParser(
        prog="python -m tests.kit.foreign.destination",
        description="A receiving queue manager by [MC-MQSRM] that injects faults and "
        "watches its sender.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="faults, as NAME=CHANCE[:SECONDS],… or @N=NAME[:SECONDS] for the N-th "
        f"POST:\n{faults}",
    )
    made.add_argument(
        "--host", default="127.0.0.1", help="the address to listen on (default 127.0.0.1)"
    )
    made.add_argument(
        "--port", type=int, default=0, help="0: any free port, see the first line of output"
    )
    made.add_argument("--faults", default="", metavar="SCHEDULE", help="see below; default: none")
    made.add_argument("--seed", type=int, default=1, help="the same seed injects the same faults")
    made.add_argument(
        "--record", type=Path, metavar="FILE", help="the arrival journal; kept and gone on with"
    )
    made.add_argument(
        "--queue",
        action="append",
        metavar="NAME:KIND",
        help="KIND is transactional or plain; others get 400",
    )
    made.add_argument("--refuse", metavar="REGEX", help="answer 400 to messages with such a body")
    made.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="RULE",
        help="do not count violations of this rule",
    )
    made.add_argument(
        "--finals",
        choices=FINALS,
        default="none",
        help="what happens at once to messages with <DeadLetter/>",
    )
    made.add_argument(
        "--receipt-wait",
        type=float,
        default=RECEIPT_WAIT,
        metavar="S",
        help="seconds before a stream receipt",
    )
    made.add_argument(
        "--repeat-receipts",
        action="store_true",
        help="a repeated message makes its receipt owed again",
    )
    made.add_argument("--seconds", type=float, metavar="S", help="end after so long")
    made.add_argument(
        "--control", action="store_true", help=f"read commands from the input: {COMMANDS}"
    )
    made.add_argument(
        "--expect",
        type=Path,
        metavar="FILE",
        help='JSON {"queue": ["body" or {"base64": "…"}, …]}: judge at the end',
    )
    made.add_argument(
        "--judge",
        action="store_true",
        help="only judge --record against --expect; exit 1 when it is not well",
    )
    return made


def expectation(path: Path) -> dict[str, list[bytes]]:
    """Read the file of ``--expect`` and return queue → expected bodies.

    A body in the file is a text (UTF-8) or ``{"base64": …}``. Raises :class:`OSError` or
    :class:`ValueError` if the file cannot be read.
    """
    return {
        queue: [
            body.encode() if isinstance(body, str) else base64.b64decode(body["base64"])
            for body in bodies
        ]
        for queue, bodies in json.loads(path.read_text(encoding="utf-8")).items()
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the destination until it ends, and return the exit code.

    The exit code is 0 if no rule was violated and everything expected arrived, otherwise 1.
    """
    made = parser()
    options = made.parse_args(arguments)
    if options.judge:
        if options.record is None or options.expect is None:
            made.error("--judge needs --record and --expect")
        return _judge(options.record, options.expect)
    try:
        faults = Faults.parse(options.faults, options.seed)
    except ValueError as error:
        made.error(str(error))
    queues = None
    if options.queue:
        queues = {
            name: kind == "transactional"
            for name, _, kind in (entry.partition(":") for entry in options.queue)
        }
    peer = Destination(
        port=options.port,
        host=options.host,
        queues=queues,
        faults=faults,
        record=options.record,
        refuse=(lambda message: bool(re.search(options.refuse.encode(), message.body)))
        if options.refuse
        else None,
        allow=options.allow,
        finals=options.finals,
        receipt_wait=options.receipt_wait,
        repeat_receipts=options.repeat_receipts,
    )
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    with peer:
        print(
            json.dumps({"port": peer.port, "url": peer.url(""), "record": str(peer.record.path)}),
            flush=True,
        )
        if options.control:
            threading.Thread(target=_control, args=(peer, over), daemon=True).start()
        over.wait(options.seconds)
    print(json.dumps(_status(peer)), flush=True)
    if options.expect is not None:
        return _judge(peer.record.path, options.expect)
    return 1 if peer.violations else 0


def _judge(record: Path, expect: Path) -> int:
    verdict = judge_record(record, expectation(expect))
    print(json.dumps(dataclasses.asdict(verdict) | {"ok": verdict.ok}), flush=True)
    return 0 if verdict.ok else 1


def _status(peer: Destination) -> dict[str, object]:
    return {
        "queues": {name: len(messages) for name, messages in peer.queues.items()},
        "posts": len(peer.journal),
        "resends": peer.rules.resends,
        "faults": peer.struck,
        "receipts": len(peer.receipts.sent),
        "violations": [str(remark) for remark in peer.violations],
    }


def _control(peer: Destination, over: threading.Event) -> None:
    for line in sys.stdin:
        command, _, argument = line.strip().partition(" ")
        try:
            if command in ("restart", "memory-lost"):
                peer.restart(memory_lost=command == "memory-lost", down=float(argument or 0))
            elif command == "down":
                peer.down(float(argument))
            elif command == "withhold":
                peer.withhold_receipts(float(argument))
            elif command in ("receive", "purge"):
                peer.decide(argument, "positive" if command == "receive" else "negative")
            print(
                json.dumps(
                    _status(peer) if command in KNOWN else {"error": f"commands are {COMMANDS}"}
                ),
                flush=True,
            )
        except ValueError as error:
            print(json.dumps({"error": str(error)}), flush=True)
    over.set()


if __name__ == "__main__":
    raise SystemExit(main())
