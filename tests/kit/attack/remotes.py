"""Hostile remote queue managers, from which the target's subscriptions read.

A remote queue manager is hostile for some steps and honest for the rest. When it is honest, every
readable message must become one row. This rule holds whatever the remote queue manager did before,
and whatever messages stay at the head of its queue. Faults that follow from bytes that were changed
in transit do not count against the reader.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from random import Random
from typing import Any

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.mqrr.packets.sections import SectionBuffer
from srmp_spark.mqrr.rpc.pdu import FIRST_FRAGMENT, WHOLE, PduType, encode_pdu
from srmp_spark.mqrr.rpc.server_events import CallReceived
from tests.kit.attack.judge import Finding
from tests.kit.fuzz.mutators import Mutator
from tests.kit.remote.forms import sections_in
from tests.kit.remote.queue import ForeignQueue
from tests.kit.remote.server import Faults, ForeignServer

START = 7
"""Number of the RPC operation R_StartReceive."""
RESPONSE_HEAD = bytes((0, 0, 0, 0, 1, 0, 0, 0))
"""The head of a response without stub, in the context of NDR64."""
EMPTY_AT_ONCE = 20_000
"""Number of empty fragments that are written together."""
HUGE_FRAGMENTS = 160
"""Number of fragments of 60,000 bytes: together more than twice the limit of one response."""
MUTATOR = Mutator([bytes(16), b"\xff" * 8], [])
BEHAVIOURS = (
    "empty",
    "huge",
    "silent",
    "octets",
    "fault",
    "mutant",
    "faults",
    "thief",
    "loops",
    "away",
    "stranger",
)
"""The behaviours that :meth:`HostileRemote.behave` accepts."""
WORDS = {"loops": ("does not go on", "UNREADABLE_WALKED_MAX"), "empty": ("FRAGMENTS_MAX",)}
"""By behaviour: words, one of which must be in the ``last_error`` of the subscription.

Without a limit in the target these behaviours would cost endless work.
"""
LIES = frozenset({"octets", "mutant", "stranger"})
"""Behaviours after which it is unknown which messages the reader received."""


class HostileRemote:
    """One remote queue, with the queue of the target that a subscription copies or moves it to.

    The body of a message holds its number, from 1. A message has a *form*
    (:mod:`tests.kit.remote.forms`) that the reader can or cannot read.
    """

    def __init__(self, mode: str) -> None:
        """Prepare the remote queue for a subscription with ``mode``: ``move`` or ``copy``."""
        self.mode = mode
        self.local = f"private$/{mode}d"
        self.server = ForeignServer(seed=1)
        self._forms: dict[int, str] = {}
        self._rows: Counter[int] = Counter()
        self._read_to = 0
        self._judged_after = 0
        """Messages with a number up to this value are not judged."""
        self._lies = False
        self._behaviour = ""

    def config(self) -> str:
        """Return the text of the subscription for the target's configuration file."""
        return (
            f'[[subscription]]\nhost = "127.0.0.1:{self.server.port}"\nqueue = '
            "'private$\\orders'\n"
            f'mode = "{self.mode}"\nto = "{self.local}"\n'
        )

    def start(self) -> None:
        """Start to listen with the remote server."""
        self.server.__enter__()
        self.server.look(self._shape)

    def stop(self) -> None:
        """Stop the remote server and close its port."""
        self.server.__exit__()

    def _shape(self, queue: ForeignQueue) -> None:
        def sections(lookup_id: int) -> tuple[SectionBuffer, ...]:
            number, _ = queue.messages[lookup_id]
            return sections_in(self._forms.get(number, "whole"), queue.packet(lookup_id))

        # The function replaces the method of this one instance.
        queue.sections = sections  # type: ignore[method-assign]

    # --- what it does -----------------------------------------------------------------------------

    def put(self, count: int, form: str, *, at_the_head: bool) -> None:
        """Put ``count`` messages of one form into the queue.

        With ``at_the_head`` they have the highest priority, otherwise the lowest.
        """

        def fill(queue: ForeignQueue) -> None:
            for _ in range(count):
                queue.sequence += 1
                self._forms[queue.sequence] = form
                priority = 7 if at_the_head else 0
                queue.messages[(7 - priority) << 56 | queue.sequence] = queue.sequence, priority

        self.server.look(fill)

    def behave(self, what: str, seed: int) -> None:
        """Start the hostile behaviour ``what``, one of :data:`BEHAVIOURS`.

        The behaviour lasts until :meth:`be_honest`. ``seed`` decides the random answers.
        """
        self.be_honest()
        self._behaviour = what
        self._lies = self._lies or what in LIES
        rng, server = Random(seed), self.server
        if what in ("empty", "huge", "silent", "octets", "fault", "stranger"):
            server.instead = lambda transport, call: self._instead(what, rng, transport, call)
        elif what == "mutant":
            server.through = lambda data: (
                MUTATOR.mutate(data, rng) if data and rng.random() < 0.1 else data
            )
        elif what == "faults":
            server.faults = Faults(before=0.02, after=0.02, end_lost=0.1)
        elif what == "thief":
            server.faults = Faults(thief=0.5)
        elif what == "loops":
            server.look(lambda queue: setattr(queue, "loops", True))
        elif what == "away":
            server.switch_off()

    def be_honest(self) -> None:
        """End the hostile behaviour and continue over new connections as the documents require."""
        server = self.server
        server.instead, server.through, server.faults = (
            lambda transport, call: False,
            lambda data: data,
            Faults(),
        )
        server.look(lambda queue: setattr(queue, "loops", False))
        if self._behaviour:
            server.switch_off()
            self._behaviour = ""
        server.switch_on()

    def _instead(
        self, what: str, rng: Random, transport: asyncio.Transport, call: CallReceived
    ) -> bool:
        if call.opnum != START:
            return False
        if what == "empty":
            _write_for_ever(transport, call.call_id)
        elif what == "huge":
            middle = encode_pdu(PduType.RESPONSE, 0, call.call_id, RESPONSE_HEAD + bytes(60_000))
            transport.write(
                encode_pdu(PduType.RESPONSE, FIRST_FRAGMENT, call.call_id, RESPONSE_HEAD)
            )
            transport.write(middle * HUGE_FRAGMENTS)
        elif what == "octets":
            transport.write(rng.randbytes(rng.choice((1, 16, 5_000))))
        elif what == "stranger":
            transport.write(
                encode_pdu(
                    PduType.RESPONSE,
                    WHOLE,
                    rng.randrange(1 << 31),
                    RESPONSE_HEAD + rng.randbytes(40),
                )
            )
        elif what == "fault":
            status = rng.choice((5, 0x1C01_0002, 0x1C00_0001, 0xC002_1000, 0xC00E_001B)).to_bytes(
                4, "little"
            )
            transport.write(
                encode_pdu(PduType.FAULT, WHOLE, call.call_id, RESPONSE_HEAD + status + bytes(4))
            )
        return True

    # --- what must have become of it --------------------------------------------------------------

    def problem(self, api: str, token: str, epoch: str) -> Finding | None:
        """Return a finding if messages are missing or doubled in the target, else ``None``.

        A missing message may still be in flight, so call this method again later. Raises
        :class:`~srmp_spark.errors.ApiError` or :class:`~srmp_spark.errors.ApiUnreachableError` if
        the API does not return the rows.
        """
        client = QueueManagerClient(api, token, retry_seconds=30)
        end = client.range(self.local, epoch=epoch, after=0).end
        if end > self._read_to:
            with client.rows(self.local, epoch=epoch, after=self._read_to, to=end) as stream:
                self._rows.update(_numbers(stream.as_file()))
            self._read_to = end
        wanted, taken = self.server.look(self._expected)
        doubled = sorted(
            each for each, times in self._rows.items() if times > 1 and each > self._judged_after
        )
        if doubled and not self._lies:
            return Finding("doubled", f"{self.local}: rows of {doubled[:10]}")
        if missing := sorted(taken - self._rows.keys()):
            return Finding(
                "lost",
                f"{self.local}: {missing[:10]} were taken from the remote queue and are no rows",
            )
        if missing := sorted(wanted - self._rows.keys()):
            return Finding(
                "stuck",
                f"{self.local}: {missing[:10]}, which can be read, do not come; "
                f"{self._trouble(client)}",
            )
        return None

    def _expected(self, queue: ForeignQueue) -> tuple[set[int], set[int]]:
        """Return the numbers of the readable messages, and of those that the reader removed.

        Only messages that are judged count. After a behaviour of :data:`LIES` only the newest
        message is judged.
        """
        after = queue.sequence - 1 if self._lies else self._judged_after
        there = {
            number
            for number, _ in queue.messages.values()
            if self._forms.get(number, "whole") in ("whole", "two")
        }
        return {each for each in there if each > after}, {
            each for each in queue.taken_by_us if each > after
        }

    def has_told(self, api: str, token: str, what: str) -> bool:
        """Return whether the subscription's ``last_error`` names the behaviour ``what``.

        The error names it with one of its :data:`WORDS`. Raises the errors of :meth:`problem`.
        """
        told = self._trouble(QueueManagerClient(api, token, retry_seconds=30))
        return any(word in told for word in WORDS[what])

    def _trouble(self, client: QueueManagerClient) -> str:
        entries: list[dict[str, Any]] = client.status()["subscriptions"]
        return "; ".join(str(each["last_error"]) for each in entries if each["to"] == self.local)

    def settled(self) -> None:
        """Exclude the messages so far from later judgements, and remove those that are not locked.

        The removal acts like another reader that receives the unreadable messages.
        """

        def clear(queue: ForeignQueue) -> None:
            self._judged_after = queue.sequence
            for lookup_id in [each for each in queue.messages if each not in queue.locks]:
                del queue.messages[lookup_id]

        self.server.look(clear)
        self._lies = False


def _numbers(file: Any) -> list[int]:  # noqa: ANN401  # a file of Arrow's
    import pyarrow as pa

    found: list[int] = []
    for body in pa.ipc.open_stream(file).read_all().column("body").to_pylist():
        with contextlib.suppress(ValueError):
            found.append(int(bytes(body or b"").removeprefix(b"body ")))
    return found


def _write_for_ever(transport: asyncio.Transport, call_id: int) -> None:
    empty = encode_pdu(PduType.RESPONSE, 0, call_id, RESPONSE_HEAD) * EMPTY_AT_ONCE
    transport.write(encode_pdu(PduType.RESPONSE, FIRST_FRAGMENT, call_id, RESPONSE_HEAD))

    def go_on() -> None:
        if not transport.is_closing():
            if transport.get_write_buffer_size() < len(empty):
                transport.write(empty)
            asyncio.get_running_loop().call_later(0.001, go_on)

    go_on()
