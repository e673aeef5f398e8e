"""Which queue a message is for ([MC-MQSRM] 3.1.5.1.3): ``<to>`` decides, not the request line.

The text "disregards" what it cannot deliver and answers 400, on which the sender deletes the message. That is right for
what can never succeed. A name that an operator has merely not configured yet is another matter: ``--unknown-queue retry``
answers 503.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from srmp_spark.canonical_url import canonical_destination
from srmp_spark.errors import ConfigurationError
from srmp_spark.names import (
    FORWARD_QUEUE,
    ORDER_QUEUE,
    OWN_QUEUES,
    VIRTUAL_DIRECTORY,
    LocalHosts,
    QueueAddress,
    base_of_journal,
    parse_queue_url,
    split_url,
)
from srmp_spark.srmp.effects import Refused
from srmp_spark.srmp.forward_room import ForwardRoom
from srmp_spark.srmp.redirection import NO_FORWARDING, Forwarding
from srmp_spark.srmp.stream_name import StreamName, is_foreign, name_of_foreign_queue, name_of_queue

RETRY_AFTER_S = 20
"""What 503 asks for: the default RetransmissionTimeout of Windows ([MC-MQSRM] appendix A <25>)."""
STARTING_RETRY_S = 2
"""What 503 asks for while the sender process has not told what waits since before the start: it does within a second or two."""
SPELLINGS_MAX = 4096
"""How many spellings of ``<to>`` are remembered, then all are forgotten. Parsing one costs more than the rest of a message."""
DESTINATION_KEPT_LENGTH = 512
"""A longer spelling is looked up each time: strangers must not fill the memory with 64 KB names."""
ORDER_QUEUE_UNREAD_MAX = 512 * 1_048_576
"""Bytes of receipts in our order queue that the sender process has not read. Anybody may send receipts, and no quota counts
them; the sender process reads faster than they can come, so this is reached only if it cannot be started for long."""
MULTICAST_PREFIX = "MSMQ:MULTICAST="

_SECTION = "[MC-MQSRM] 3.1.5.1.3"


class MachineUse:
    """What the queues of one queue manager hold together."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0
        """The sum of :attr:`QueueState.bytes_waiting`."""


@dataclass(slots=True, kw_only=True)
class QueueState:
    """What the engine knows of a queue of ours; the service keeps ``paused``, ``bytes_waiting`` and ``count`` up to date."""

    name: str
    """Canonical (INTERFACE.md section 1)."""
    transactional: bool = False
    end: int = 0
    """The sequence of the last row accepted; rows count from 1."""
    multicast: str | None = None
    """``IP:PORT`` of the multicast address that the queue listens on."""
    paused: bool = False
    bytes_waiting: int = 0
    """Bytes that the ``default`` consumer has not received."""
    count: int = 0
    """Messages that the ``default`` consumer has not received."""
    unread_bytes: int = 0
    """Of our order queue: bytes of the receipts that the sender process has not read for good."""
    declared: bool = True
    """False: a subqueue that remote readers made. Messages are moved there, and to a sender it does not exist."""
    machine: MachineUse = field(default_factory=MachineUse)
    """The engine's sum over all queues, this one among them."""
    receipts_only: bool = field(init=False)
    """Our order queue: no application receives from it, so what is no receipt would only fill the disk there."""

    def __post_init__(self) -> None:
        self.receipts_only = self.name == ORDER_QUEUE

    def weigh(self, bytes_waiting: int) -> None:
        """So much waits in the queue now."""
        self.machine.bytes += bytes_waiting - self.bytes_waiting
        self.bytes_waiting = bytes_waiting


class Route(NamedTuple):
    """Where a message goes that is not for the queue which ``<to>`` names, or not for this host."""

    queue: QueueState
    """A queue of ours; what leaves again goes by ``FORWARD_QUEUE``, which takes stream messages and others."""
    stream_name: StreamName
    """What its stream counts by: two destinations of one sender are two streams, wherever both are led. The queue that
    ``<to>`` names here, so that a redirection may come and go in the middle of a stream; of another host the whole URL."""
    forwards: bool
    """It leaves again."""


Found = QueueState | Route | Refused


class Destinations:
    """The queues by name, and ``<to>`` to queue with a memory."""

    def __init__(
        self,
        hosts: LocalHosts,
        unknown_queue: Literal["reject", "retry"],
        forwarding: Forwarding = NO_FORWARDING,
    ) -> None:
        self.queues: dict[str, QueueState] = {ORDER_QUEUE: QueueState(name=ORDER_QUEUE)}
        self._hosts = hosts
        self._unknown_status = 400 if unknown_queue == "reject" else 503
        self._forwarding = forwarding
        if self._forwarding.is_on:
            self.queues[FORWARD_QUEUE] = QueueState(name=FORWARD_QUEUE)
        self._known: dict[str, Found] = {}
        self.forward_room = ForwardRoom()
        """Where messages that are forwarded wait for. The service tells it what the sender process knows."""

    def add(self, queue: QueueState) -> None:
        """Raises :class:`ConfigurationError` if the name or the multicast address is taken."""
        known = self.queues.get(queue.name)
        if known is not None and (queue.name not in OWN_QUEUES or known.end != 0):
            raise ConfigurationError(f"queue {queue.name} exists already; name it once")
        if queue.name == ORDER_QUEUE and queue.transactional:
            raise ConfigurationError(
                f"{ORDER_QUEUE} takes receipts, which are no stream messages: it cannot "
                "be transactional"
            )
        if queue.name == FORWARD_QUEUE and queue.transactional:
            raise ConfigurationError(
                f"{FORWARD_QUEUE} takes messages of both kinds: it cannot be transactional"
            )
        if queue.multicast is not None and any(
            queue.multicast == other.multicast for other in self.queues.values()
        ):
            raise ConfigurationError(
                f"two queues on multicast address {queue.multicast}: give each its own"
            )
        self.queues[queue.name] = queue
        self._known.clear()

    def remove(self, name: str) -> QueueState:
        """Raises :class:`KeyError` for an unknown queue, :class:`ConfigurationError` for our order queue."""
        if name == ORDER_QUEUE:
            raise ConfigurationError(
                f"{ORDER_QUEUE} always exists: peers send stream receipts there"
            )
        if name == FORWARD_QUEUE:
            raise ConfigurationError(
                f"{FORWARD_QUEUE} holds what was accepted to be sent on; purge it to give that up"
            )
        queue = self.queues.pop(name)
        self._known.clear()
        return queue

    def declare(self, name: str) -> None:
        """Let a subqueue that remote readers made take messages as any queue does."""
        self.queues[name].declared = True
        self._known.clear()

    def find(self, destination: str) -> Found:
        """The queue that ``<to>`` names, or the answer that says why there is none."""
        found = self._known.get(destination)
        if found is None:
            found = self._look_up(destination)
            if len(destination) > DESTINATION_KEPT_LENGTH:
                return found
            if len(self._known) >= SPELLINGS_MAX:
                self._known.clear()
            self._known[destination] = found
        return found

    def _look_up(self, destination: str) -> Found:
        """The steps of [MC-MQSRM] 3.1.5.1.3."""
        if destination[: len(MULTICAST_PREFIX)].upper() == MULTICAST_PREFIX:
            return self._look_up_multicast(destination[len(MULTICAST_PREFIX) :])
        try:
            address = parse_queue_url(destination)
        except ValueError as error:
            return Refused(400, "bad-destination", f"<to> names no queue: {error}", _SECTION)
        if address.host not in self._hosts:
            return self._look_up_foreign(destination, address)
        target = self._forwarding.inbound.target(destination)
        if target is not None:
            return self._look_up_redirected(address.queue, target)
        return self._look_up_queue(address.queue)

    def _look_up_foreign(self, destination: str, address: QueueAddress) -> Found:
        """Of another host: refused, or sent on if we are a transparent store-and-forward server."""
        host = address.host
        if not self._forwarding.store_and_forward:
            hint = f"if {host} is this queue manager, add --host-name {host}"
            return Refused(
                400,
                "foreign-host",
                f"<to> is for host {host}, which is not this one; {hint}",
                _SECTION,
            )
        try:
            canonical = canonical_destination(destination)
        except ConfigurationError as error:
            return Refused(400, "bad-destination", f"<to> names no queue: {error}", _SECTION)
        url = split_url(canonical)  # in its one spelling: what is judged is what is called
        if not self._forwarding.allows(url):
            hint = f"to forward it, add --allow-url {address.scheme}://{url.authority}"
            return Refused(
                400,
                "forward-not-allowed",
                f"<to> is for host {host}, which no --allow-url names; {hint}",
                _SECTION,
            )
        if url.query:
            why = (
                "a query in <to> of another host names no queue there, and each would "
                "be an outgoing queue of its own here"
            )
            return Refused(400, "unforwardable", f"it cannot be sent on as it is: {why}", _SECTION)
        return Route(self.queues[FORWARD_QUEUE], name_of_foreign_queue(canonical), forwards=True)

    def may_redirect(self, queue: str) -> bool:
        """Whether messages whose ``<to>`` names ``queue`` under one of our host names may be led elsewhere."""
        return self._forwarding.inbound.may_redirect(f"/{VIRTUAL_DIRECTORY}/{queue}", self._hosts)

    def refuses_new(self, route: Route, sender: str) -> Refused | None:
        """Refuse a new destination to forward to that finds no room. ``sender``: whose share it counts in.

        Where a redirection leads is the operator's own choice and does not count.
        """
        if not is_foreign(route.stream_name):
            return None
        why = self.forward_room.refuses(route.stream_name, sender)
        if why is None:
            return None
        if not self.forward_room.is_counted:
            hint = (
                "it ends by itself; if it does not, `srmp-spark status` says why "
                "nothing is sent or forwarded"
            )
            return Refused(
                503, "too-many-destinations", f"{why}; {hint}", _SECTION, STARTING_RETRY_S
            )
        hint = (
            "it ends by itself when they arrive; `srmp-spark streams` lists them, "
            "`streams drop` gives one up"
        )
        return Refused(503, "too-many-destinations", f"{why}; {hint}", _SECTION, RETRY_AFTER_S)

    def take(self, route: Route, sender: str, sequence: int) -> None:
        """Count the destination of row ``sequence``, which was accepted to be forwarded."""
        if route.forwards and is_foreign(route.stream_name):
            self.forward_room.accepted(route.stream_name, sender, sequence)

    def _look_up_redirected(self, name: str, target: str) -> Found:
        if not self._hosts.is_target_here(target):
            return Route(self.queues[FORWARD_QUEUE], name_of_queue(name), forwards=True)
        found = self._look_up_queue(parse_queue_url(target).queue)
        return (
            found
            if isinstance(found, Refused)
            else Route(found, name_of_queue(name), forwards=False)
        )

    def _look_up_queue(self, name: str) -> QueueState | Refused:
        if name == FORWARD_QUEUE:
            return Refused(
                400,
                "reserved-queue",
                f"{name} is ours: messages come there by forwarding alone",
                _SECTION,
            )
        queue = self.queues.get(name)
        if queue is not None and not queue.declared:
            queue = None
        if queue is None and base_of_journal(name) is not None:
            return Refused(
                400, "journal-queue", f"{name} is a journal: it is read only", "[MS-MQMQ] 2.1.7"
            )
        if queue is None:
            hint = f"add --queue {name}, or create it with PUT /v1/queues"
            retry_after = RETRY_AFTER_S if self._unknown_status == 503 else None
            text = f"there is no queue {name} here; {hint}"
            return Refused(self._unknown_status, "unknown-queue", text, _SECTION, retry_after)
        return queue

    def _look_up_multicast(self, address: str) -> QueueState | Refused:
        for queue in self.queues.values():
            if queue.multicast is not None and queue.multicast == address.strip():
                return queue
        hint = f"add --queue NAME:multicast={address}"
        return Refused(
            400,
            "multicast",
            f"no queue here listens on multicast address {address[:50]}; {hint}",
            _SECTION,
        )
