"""Which queue a message is for ([MC-MQSRM] 3.1.5.1.3): ``<to>`` decides, not the request line.

The specification "disregards" a message that cannot be delivered and answers 400, after which the
sender deletes the message. This is right for a message that can never be delivered. A queue that an
operator has only not configured yet is different: with ``--unknown-queue retry`` the answer is 503,
and the sender keeps the message.
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
    LocalHosts,
    QueueAddress,
    base_of_journal,
    parse_queue_url,
    split_url,
)
from srmp_spark.srmp.forward.forward_room import ForwardRoom
from srmp_spark.srmp.forward.redirection import NO_FORWARDING, Forwarding
from srmp_spark.srmp.receiving.effects import Refused
from srmp_spark.srmp.receiving.stream_name import (
    StreamName,
    is_foreign,
    name_of_foreign_queue,
    name_of_queue,
)

RETRY_AFTER_S = 20
"""Seconds until the next attempt that a 503 asks for: the default RetransmissionTimeout of Windows
([MC-MQSRM] appendix A <25>).
"""
STARTING_RETRY_S = 2
"""Seconds until the next attempt that a 503 asks for during the start.

The sender process needs one or two seconds to report which forwarded messages wait since before the
start.
"""
SPELLINGS_MAX = 4096
"""Number of spellings of ``<to>`` that are cached.

At the limit the cache is emptied. Parsing a spelling costs more than all other work for a message.
"""
DESTINATION_KEPT_LENGTH = 512
"""Longest spelling of ``<to>`` that is cached, in characters.

A longer spelling is parsed each time, so that unauthenticated clients cannot fill the memory with
names of 64 KB.
"""
ORDER_QUEUE_UNREAD_MAX = 512 * 1_048_576
"""Most bytes of receipts in the order queue that the sender process has not read.

At the limit further receipts are answered 503. Any client may send receipts, and no quota limits
them. The sender process reads faster than receipts can arrive, so the limit is reached only if the
sender process cannot run for a long time.
"""
MULTICAST_PREFIX = "MSMQ:MULTICAST="

_SECTION = "[MC-MQSRM] 3.1.5.1.3"


class MachineUse:
    """Counts the bytes that wait in all queues of one queue manager together."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0
        """Sum of :attr:`QueueState.bytes_waiting` over all queues."""


@dataclass(slots=True, kw_only=True)
class QueueState:
    """The state of one queue of this queue manager, as the engine needs it.

    The service (the process around the engine) keeps ``paused``, ``bytes_waiting``, ``count`` and
    ``unread_bytes`` up to date.
    """

    name: str
    """Canonical name of the queue (INTERFACE.md section 1)."""
    transactional: bool = False
    end: int = 0
    """Sequence of the last accepted row. Rows are numbered from 1."""
    multicast: str | None = None
    """``IP:PORT`` of the multicast address that the queue listens on; ``None`` if there is none."""
    paused: bool = False
    bytes_waiting: int = 0
    """Bytes of the messages that the ``default`` consumer has not received."""
    count: int = 0
    """Number of messages that the ``default`` consumer has not received."""
    unread_bytes: int = 0
    """Bytes of the receipts in the order queue that the sender process has not finished reading;
    used for that queue only.
    """
    declared: bool = True
    """Whether the queue was declared.

    An undeclared queue is a subqueue that a remote reader created: messages can be moved to it, and
    for senders it does not exist.
    """
    machine: MachineUse = field(default_factory=MachineUse)
    """The engine's totals over all queues, this queue included."""
    receipts_only: bool = field(init=False)
    """Whether the queue is the order queue, to which peers send stream receipts.

    No application receives from the order queue, so any message that is no receipt would only fill
    the disk.
    """

    def __post_init__(self) -> None:
        self.receipts_only = self.name == ORDER_QUEUE

    def weigh(self, bytes_waiting: int) -> None:
        """Set how many bytes wait in the queue now, and update the total of all queues."""
        self.machine.bytes += bytes_waiting - self.bytes_waiting
        self.bytes_waiting = bytes_waiting


class Route(NamedTuple):
    """The path of a message that goes to another queue than ``<to>`` names, or to another host."""

    queue: QueueState
    """The queue of this queue manager in which the message is stored.

    A message that is forwarded goes to ``FORWARD_QUEUE``, which accepts stream messages and other
    messages.
    """
    stream_name: StreamName
    """Name under which this queue manager knows the message's stream.

    Two destinations of one sender are two streams, even if both are led to the same place. For a
    ``<to>`` on this host the name is the queue that ``<to>`` names, so that a redirection may be
    added or removed in the middle of a stream. For another host the name is the whole URL.
    """
    forwards: bool
    """Whether the message is sent on to another host."""


Found = QueueState | Route | Refused


class Destinations:
    """Finds the queue, the route or the refusal for a ``<to>``, and caches the results."""

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
        """Room for destinations of forwarded messages that wait.

        The service reports to this object what the sender process holds.
        """

    def add(self, queue: QueueState) -> None:
        """Add a queue.

        Raises :class:`ConfigurationError` if the name or the multicast address is in use, or if the
        order queue or the forward queue shall be transactional.
        """
        known = self.queues.get(queue.name)
        if known is not None and (queue.name not in OWN_QUEUES or known.end != 0):
            raise ConfigurationError(f"queue {queue.name} exists already; name it once")
        if queue.name == ORDER_QUEUE and queue.transactional:
            raise ConfigurationError(
                f"{ORDER_QUEUE} accepts receipts, which are no stream messages: the queue cannot "
                "be transactional"
            )
        if queue.name == FORWARD_QUEUE and queue.transactional:
            raise ConfigurationError(
                f"{FORWARD_QUEUE} accepts messages of both kinds: the queue cannot be transactional"
            )
        if queue.multicast is not None and any(
            queue.multicast == other.multicast for other in self.queues.values()
        ):
            raise ConfigurationError(
                f"two queues listen on multicast address {queue.multicast}: give each its own"
            )
        self.queues[queue.name] = queue
        self._known.clear()

    def remove(self, name: str) -> QueueState:
        """Remove a queue and return it.

        Raises :class:`KeyError` if the queue is unknown, and :class:`ConfigurationError` for the
        order queue and the forward queue, which cannot be removed.
        """
        if name == ORDER_QUEUE:
            raise ConfigurationError(
                f"{ORDER_QUEUE} always exists: peers send stream receipts there"
            )
        if name == FORWARD_QUEUE:
            raise ConfigurationError(
                f"{FORWARD_QUEUE} holds messages that were accepted to be forwarded; purge it "
                "to discard them"
            )
        queue = self.queues.pop(name)
        self._known.clear()
        return queue

    def declare(self, name: str) -> None:
        """Mark a subqueue that a remote reader created as declared, so that senders may use it.

        Raises :class:`KeyError` if the queue is unknown.
        """
        self.queues[name].declared = True
        self._known.clear()

    def find(self, destination: str) -> Found:
        """Return the queue of a ``<to>``, the route if it is led elsewhere, or the refusal."""
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
        """Return the queue, the route or the refusal for a ``<to>``, without the cache.

        The steps are those of [MC-MQSRM] 3.1.5.1.3.
        """
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
        """Return the route of a ``<to>`` of another host, or refuse it.

        The message is sent on only if this queue manager is a transparent store-and-forward server
        and the allow-list permits the URL.
        """
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
        # The URL is checked in canonical form, because it is called in this form.
        url = split_url(canonical)
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
            return Refused(
                400, "unforwardable", f"the message cannot be forwarded unchanged: {why}", _SECTION
            )
        return Route(self.queues[FORWARD_QUEUE], name_of_foreign_queue(canonical), forwards=True)

    def refuses_new(self, route: Route, sender: str) -> Refused | None:
        """Return the refusal if a new destination of another host has no room, else ``None``.

        ``sender`` is the sender in whose share the destination counts. The target of a redirection
        is the operator's own choice and does not count.
        """
        if not is_foreign(route.stream_name):
            return None
        why = self.forward_room.refuses(route.stream_name, sender)
        if why is None:
            return None
        if not self.forward_room.is_counted:
            hint = (
                "this ends by itself; if not, `srmp-spark status` states why nothing is sent "
                "or forwarded"
            )
            return Refused(
                503, "too-many-destinations", f"{why}; {hint}", _SECTION, STARTING_RETRY_S
            )
        hint = (
            "this ends by itself when they are delivered; `srmp-spark streams` lists them, "
            "`streams drop` discards one"
        )
        return Refused(503, "too-many-destinations", f"{why}; {hint}", _SECTION, RETRY_AFTER_S)

    def take(self, route: Route, sender: str, sequence: int) -> None:
        """Record that row ``sequence`` of ``private$/forward$`` was accepted for ``route``.

        Its destination is counted in the share of ``sender`` (:meth:`.ForwardRoom.accepted`). A
        route to a queue of this queue manager, or by a redirection, is not counted.
        """
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
                f"{name} is reserved for messages that are forwarded; name another queue",
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
            hint = f"srmp-spark queue create {name}, or serve --queue {name}"
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
