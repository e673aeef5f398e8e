"""10,000 stubs that no client would write, for every method, at a server with open queues: an answer or a fault, each once.

How long one may take, and what is left after a few, is asked in test_mqrr_fuzz.py.
"""

from __future__ import annotations

import random

from server_kit import Box, World, lookup_id

from srmp_spark.mqrr.ndr.methods import (
    METHODS,
    EndReceiveRequest,
    EnlistRequest,
    HandleNumberRequest,
    HandleRequest,
    MoveMessageRequest,
    NoParameters,
    OpenRequest,
    SetClassRequest,
)
from srmp_spark.mqrr.ndr.receive import StartReceiveRequest
from srmp_spark.mqrr.ndr.transfer_syntax import NDR, NDR64
from srmp_spark.mqrr.queue_format import queue_format_of
from srmp_spark.mqrr.rpc.binding import REMOTE_READ
from srmp_spark.mqrr.rpc.server_events import CallReceived
from srmp_spark.mqrr.server.requests import Action
from srmp_spark.mqrr.status import Status

MUTANTS = 10_000
QUEUE = queue_format_of(r"DIRECT=OS:host\private$\orders")


def test_ten_thousand_mutants_are_answered():
    rng = random.Random(20261122)
    world = World(Box(transactional=True))
    world.came(0, 0, 0)
    reader = world.reader().opened()
    cursor = reader.cursor()
    handle, tx = reader.handle, b"t" * 16
    valid = {
        0: NoParameters(),
        2: OpenRequest(QUEUE, 1),
        3: HandleRequest(handle),
        4: HandleRequest(handle),
        5: HandleNumberRequest(handle, cursor),
        6: HandleRequest(handle),
        7: StartReceiveRequest(handle, request_id=1),
        8: HandleNumberRequest(handle, 1),
        9: EndReceiveRequest(handle, 2, 1),
        10: MoveMessageRequest(handle, 1, lookup_id(1, 0), tx),
        11: OpenRequest(QUEUE, 4),
        12: EnlistRequest(tx, b"token", QUEUE),
        13: StartReceiveRequest(handle, request_id=2, transaction=tx),
        14: SetClassRequest(handle, lookup_id(1, 0), 0xC004),
        15: EndReceiveRequest(handle, 2, 2),
    }
    assert valid.keys() == METHODS.keys()
    answered = 0
    for _ in range(MUTANTS):
        opnum, syntax = rng.choice(sorted(valid)), rng.choice((NDR, NDR64))
        stub = bytearray(valid[opnum].encode(syntax))
        if opnum == 7 and rng.random() < 0.5:
            stub[36:40] = rng.choice(list(Action)).to_bytes(4, "little")
        for _ in range(rng.randrange(3)):
            if stub:
                behind_the_handle = min(20, len(stub) - 1) if rng.random() < 0.9 else 0
                stub[rng.randrange(behind_the_handle, len(stub))] = rng.choice((0, 1, 0x80, 0xFF))
        if rng.random() < 0.1:
            stub = stub[: rng.randrange(len(stub) + 1)]
        if opnum == 3 and bytes(stub[:20]) == HandleRequest(handle).encode(NDR):
            continue  # it would be closed
        number = next(world.numbers)
        world.opnums["one", number] = opnum
        received = CallReceived(
            number, REMOTE_READ, syntax, opnum, bytes(stub), reader.association, None, 1
        )
        world.do(world.server.call("one", received, world.now))
        answered += ("one", number) in world.answers
        if rng.random() < 0.02:
            world.wait(rng.choice((0.1, 400)))
            world.came(0)
    assert answered > MUTANTS * 0.9, "all but those that wait"
    last = world.reader("last").opened()
    world.wait(1_000)
    assert last.get() in (Status.MQ_ERROR_IO_TIMEOUT, *world.box.priorities), (
        "the queue is not locked for ever"
    )
