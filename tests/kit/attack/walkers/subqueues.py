"""A remote reader that makes subqueues without end.

The reader opens, moves, receives and purges in any order, and often disconnects without a close. A
client that opens ``queue;name`` creates that subqueue, and unused subqueues are removed. The calls
are drawn from a seed, so a walk with a finding can be played again from its file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from srmp_spark.client.remote_queue import RemoteMachine, RemoteQueue
from srmp_spark.errors import SrmpSparkError
from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.lookup_identifier import rebuilt
from srmp_spark.mqrr.ndr.methods import (
    ACCESS_MOVE,
    ACCESS_PEEK,
    ACCESS_RECEIVE,
    MoveMessageRequest,
    OpenRequest,
)
from srmp_spark.mqrr.ndr.receive import NO_TRANSACTION
from srmp_spark.mqrr.queue_format import QueueFormat, queue_format_for
from srmp_spark.mqrr.status import Status
from tests.kit.attack.scene import OWN

CALLS = ("open", "open", "open", "receive", "move", "move", "back", "purge", "close", "close")
OPENED_MAX = 40
"""Most handles of one reader; at the limit the oldest handle is closed."""
NAMES = (1, 4, 300, 100_000)
"""Numbers of different subqueue names to draw from.

The largest number is far above the limit of subqueues.
"""
SEQUENCES = 200
PRIORITIES = (0, 3, 3, 7)


def drawn(rng: Random) -> dict[str, Any]:
    """Return the drawn values of one step, for the argument ``given`` of :func:`read`."""
    return {
        "seed": rng.randrange(1 << 30),
        "calls": rng.choice((10, 60, 300)),
        "names": rng.choice(NAMES),
        "readers": rng.choice((1, 1, 3)),
        "leaves": rng.random() < 0.6,
    }


def read(
    port: tuple[str, int], given: Mapping[str, Any], reader: int, count: Callable[[], None]
) -> None:
    """Play reader number ``reader`` of a step; ``count`` is called once for each of its calls.

    A refusal is an answer like any other. The function blocks its thread.
    """
    rng = Random(f"{given['seed']} {reader}")
    opened: list[RemoteQueue] = []
    with contextlib.suppress(SrmpSparkError, OSError), RemoteMachine.connect(*port) as machine:
        for _ in range(given["calls"]):
            count()
            with contextlib.suppress(SrmpSparkError):
                _call(rng, machine, opened, given["names"])
        if given["leaves"]:
            machine.interrupt()


def _call(rng: Random, machine: RemoteMachine, opened: list[RemoteQueue], names: int) -> None:
    what = rng.choice(CALLS)
    if what == "open" or not opened:
        opened.append(machine.open(_name(rng, names), rng.choice((ACCESS_PEEK, ACCESS_RECEIVE))))
        if len(opened) > OPENED_MAX:
            opened.pop(0).close()
        return
    queue = rng.choice(opened)
    if what == "receive":
        request, answer = queue.start(Action.RECEIVE)
        if answer.status == Status.MQ_OK:
            queue.end(request, keep=rng.random() < 0.3)
    elif what in ("move", "back"):
        to = queue_format_for("127.0.0.1", OWN) if what == "back" else _name(rng, names)
        opened_there = machine.call(11, OpenRequest(to, ACCESS_MOVE))
        lookup = rebuilt(rng.randrange(1, SEQUENCES), priority=rng.choice(PRIORITIES))
        machine.call(
            10, MoveMessageRequest(queue.handle, opened_there.move_context, lookup, NO_TRANSACTION)
        )
    elif what == "purge":
        queue.purge()
    else:
        opened.remove(queue)
        queue.close()


def _name(rng: Random, names: int) -> QueueFormat:
    number = rng.randrange(names)
    return queue_format_for("127.0.0.1", OWN if number == 0 else f"{OWN};s{number}")
