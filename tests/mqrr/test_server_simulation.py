"""Readers at random against one queue: kills, NACKs, time-outs, stores that fail, reads that are late, other receivers.

What must hold at every moment: a message has one reader at most; what left was acknowledged by whoever had it, or purged;
every call is answered once. And at the end, when everybody is gone: all that did not leave is there for the next reader.
"""

from __future__ import annotations

import os
import random

import pytest
from server_kit import Box, Reader, World, lookup_id

from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.ndr.methods import (
    RR_ACK,
    RR_NACK,
    EndReceiveRequest,
    EnlistRequest,
    HandleRequest,
)
from srmp_spark.mqrr.queue_format import queue_format_of
from srmp_spark.mqrr.server.effects import Purge, ReadMessage, RemovalReason, Take
from srmp_spark.mqrr.status import Status

ORDERS = queue_format_of(r"DIRECT=OS:host\private$\orders")
RUNS = int(os.environ.get("MQRR_SERVER_RUNS", "150")) // 3
"""MQRR_SERVER_RUNS=10000 takes three minutes."""
STEPS = 120


class Run:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.transactional = self.rng.random() < 0.4
        self.world = World(Box(transactional=self.transactional), hold=(ReadMessage, Take, Purge))
        self.readers: list[Reader] = []
        self.calls: dict[int, tuple[Reader, int]] = {}
        """call → (reader, request), of receives without an answer."""
        self.held: dict[int, tuple[Reader, int]] = {}
        """sequence → who was handed it last and has not ended."""
        self.acknowledged: set[int] = set()
        self.purges = 0
        self.names = 0

    def step(self) -> None:
        choice = self.rng.random()
        world, rng = self.world, self.rng
        if choice < 0.15:
            priority = 0 if self.transactional else rng.randrange(8)
            world.came(*[priority] * rng.randrange(1, 3))
        elif choice < 0.22 or not self.readers:
            self.names += 1
            self.readers.append(world.reader(f"reader {self.names}").opened())
        elif choice < 0.42:
            self.start(rng.choice(self.readers))
        elif choice < 0.52 and self.held:
            self.end(rng.choice(sorted(self.held)))
        elif choice < 0.58:
            gone = self.readers.pop(rng.randrange(len(self.readers)))
            gone.gone()
            self.calls = {call: each for call, each in self.calls.items() if each[0] is not gone}
            self.held = {n: each for n, each in self.held.items() if each[0] is not gone}
        elif choice < 0.61:
            world.wait(rng.choice((0.5, 3, 400)))
            if world.now % 1 == 0:
                self.held = {n: each for n, each in self.held.items() if self.is_held(n)}
        elif choice < 0.63:
            self.purges += 1
            rng.choice(self.readers).call(6, HandleRequest(rng.choice(self.readers).handle))
        elif choice < 0.67:
            self.name_a_transaction()
        elif world.held:
            self.release()
        self.look()

    def start(self, reader: Reader) -> None:
        rng = self.rng
        more: dict[str, object] = {}
        action, receives = Action.RECEIVE, True
        if rng.random() < 0.3 and self.world.box.priorities:
            sequence = rng.choice(sorted(self.world.box.priorities))
            more["lookup_id"] = lookup_id(sequence, self.world.box.priorities[sequence])
            action = rng.choice([a for a in Action if a & 0x40000000])
            receives = bool(action & 0x20)
        else:
            more["timeout_ms"] = rng.choice((0, 2_000, 0xFFFFFFFF))
        call = reader.start(action, **more)
        if receives:
            self.calls[call] = reader, reader.last

    def is_held(self, sequence: int) -> bool:
        reader, request = self.held[sequence]
        found = reader.association.find(reader.handle)
        return (
            found is not None
            and request in found.requests
            and (found.requests[request].found or 0) & 0xFFFF == sequence
        )

    def end(self, sequence: int) -> None:
        reader, request = self.held[sequence]
        if not self.is_held(sequence):
            del self.held[sequence]
            return
        ack = self.rng.choice((RR_ACK, RR_ACK, RR_NACK))
        opnum = self.rng.choice((9, 15))
        reader.call(opnum, EndReceiveRequest(reader.handle, ack, request))
        del self.held[sequence]
        if ack == RR_ACK:
            self.acknowledged.add(sequence)

    def name_a_transaction(self) -> None:
        """A reader that is refused, and nothing is locked for it."""
        reader, made = self.rng.choice(self.readers), self.rng.randbytes(16)
        answer = reader.ask(12, EnlistRequest(made, b"", ORDERS))
        assert answer.status == Status.MQ_ERROR_TRANSACTION_ENLIST
        assert isinstance(reader.get(transaction=made), Status)

    def release(self) -> None:
        world = self.world
        world.held.rotate(-self.rng.randrange(len(world.held)))
        effect = world.held.popleft()
        world.refuse = Status.MQ_ERROR_QUEUE_NOT_AVAILABLE if self.rng.random() < 0.1 else None
        if isinstance(effect, Purge):
            # Locks that began after the purge was asked for stand in its way too, at its owner's.
            world.box.left |= world.box.priorities.keys() - set(effect.spared) - self.storing()
            world.do(world.server.purged(effect.purging))
            return
        world.do_now(effect)

    def storing(self) -> set[int]:
        return {each.sequence for each in self.world.held if isinstance(each, Take)}

    def look(self) -> None:
        """What became of the calls, and whether everything still holds."""
        for call, (reader, request) in list(self.calls.items()):
            found = reader.shown(call)
            if found is None:
                continue
            del self.calls[call]
            if isinstance(found, tuple):
                sequence = found[0]
                other = self.held.get(sequence)
                assert other is None or not self.is_held(sequence), (
                    f"message {sequence} was given to two readers"
                )
                assert not any(each.sequence == sequence for each in self.world.taken), (
                    f"message {sequence} was taken before"
                )
                self.held[sequence] = reader, request
        for each in self.world.taken:
            if each.reason is RemovalReason.PURGED:
                assert self.purges
            else:
                assert each.sequence in self.acknowledged, (
                    f"message {each.sequence} left and nobody said that it has it"
                )


@pytest.mark.parametrize("part", range(3))
def test_no_message_is_lost_doubled_or_locked_for_ever(part):
    received = 0
    for seed in range(part * RUNS, part * RUNS + RUNS):
        run = Run(seed)
        for _ in range(STEPS):
            run.step()
        world = run.world
        for reader in run.readers:
            reader.gone()
        while world.held:
            run.release()
        run.look()
        world.refuse = None
        world.hold = ()
        assert world.open == [], "a queue is held for a reader that is gone"
        left = {each.sequence for each in world.taken}
        assert len(left) == len(world.taken), "taken twice"
        there = world.box.priorities.keys() - world.box.left
        last = world.reader("the last one").opened()
        assert sorted(last.all()) == sorted(there), f"seed {seed}"
        received += len(left)
    assert received > 100, "the simulation does nothing"
