"""The planted bugs by name; each one restores a faulty function or removes a limit.

The function of a bug changes modules or classes of srmp-spark in the running process. It cannot be
undone. The first line of its docstring says what the changed srmp-spark does.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


def sequence_of_another_version() -> None:
    """Accept a request for a sequence also if its version of RM is not the sequence's.

    A request of RM 1.1 that closes a sequence of RM 1.0 then raises an exception.
    """
    from srmp_spark.wsrm.receiving import destination

    _put(destination.RmDestination, "_other_version", lambda *_: None)


def endpoint_that_cannot_be_read() -> None:
    """Store an endpoint with every prefix in scope.

    The stored endpoint has more prefixes than its reader accepts at the next start.
    """
    from srmp_spark.wsrm.codec import xml_writer
    from srmp_spark.wsrm.receiving import destination

    _put(destination, "is_storable", lambda *_: True)
    _put(xml_writer, "_in_use", lambda element: element.scope.all())


def search_for_each_prefix() -> None:
    """Search the whole body with one regular expression for each prefix."""
    from srmp_spark.wsrm.codec import xml_tree

    def prefixes_used(body: bytes, known: Iterable[str]) -> set[str]:
        return {
            p for p in known if p and re.search(rb"(?<![\w.\-])%s:" % re.escape(p.encode()), body)
        }

    _put(xml_tree, "_prefixes_used", prefixes_used)


def sequences_for_one_client() -> None:
    """Let one address use up all sequences of a queue."""
    from srmp_spark.wsrm.receiving import destination

    def no_room_for(self: Any, _owner: str, _now: float) -> int | None:  # noqa: ANN401  # a Destination
        most: int = self.settings.sequences_max
        return most if len(self._sequences) >= most else None

    _put(destination.RmDestination, "_no_room_for", no_room_for)


def connections_of_the_api() -> None:
    """Let the API port accept any number of connections, without a deadline that ends them."""
    from srmp_spark.queue_manager.api.port_side import port
    from srmp_spark.queue_manager.srmp_port import port_limits

    _put(port_limits.ConnectionRoom, "is_full", property(lambda _: False))
    _put(port.ApiProtocol, "sweep", lambda *_: None)


def sequences_in_status() -> None:
    """Let a token for one queue see the sequences of all queues in ``status``.

    Every check of rights in the API succeeds.
    """
    from srmp_spark.queue_manager.api.port_side import http

    _put(http.Request, "allows", lambda *_: True)
    _put(http.Request, "sees", lambda *_: True)


def bodies_of_the_api() -> None:
    """Let every call of the API have a body of 64 MiB with any number of values."""
    from srmp_spark.queue_manager.api.port_side import http

    body = http.Request.body
    _put(http.Request, "body", lambda self, limit=0: body(self, max(limit, http.REQUEST_BODY_MAX)))
    _put(http, "NESTED_MAX", 1 << 40)
    _put(http, "JSON_ITEMS_MAX", 1 << 40)


def cancels_of_nobody() -> None:
    """Ignore cancels of calls that never existed, instead of ending the connection.

    All cancels that one read of the socket brings are handled in one turn of the event loop.
    """
    from srmp_spark.mqrr.rpc import server_connection
    from srmp_spark.queue_manager.remote_read import endpoint

    _put(server_connection.ServerConnection, "_came_late", lambda *_: None)
    _put(endpoint, "PDUS_AT_ONCE", 1 << 40)
    _put(endpoint, "TURN_SECONDS", 1e9)


def answers_that_nobody_reads() -> None:
    """Read messages for a client of remote read that does not receive its answers.

    The messages are read even while the gateway cannot send the answers.
    """
    from srmp_spark.queue_manager.remote_read import readers

    _put(readers.ServedReader, "has_room", lambda _: True)


def connections_of_rpc() -> None:
    """Let connections that hold nothing keep their places in a full RPC port."""
    from srmp_spark.queue_manager.remote_read import endpoint

    _put(endpoint.RpcConnection, "is_signed_in", property(lambda _: True))
    _put(endpoint.RpcConnection, "is_idle", property(lambda _: False))


def gap_of_one_client() -> None:
    """Count messages that one client's sequence holds after a gap as used room of the queue.

    The messages of one client then stop all other clients.
    """
    from srmp_spark.wsrm.receiving import destination

    set_room = destination.RmDestination.set_room

    def with_held(self: Any, room: int) -> Any:  # noqa: ANN401  # a Destination, and what it sends
        return set_room(self, room - sum(len(each.held) for each in self._sequences.values()))

    _put(destination.RmDestination, "set_room", with_held)


def fragments_without_end() -> None:
    """Let each connection of the RPC port hold 4 MiB of fragments before it has signed in."""
    from srmp_spark.mqrr.rpc import limits, server_connection

    first = server_connection.ServerConnection.__init__

    def begin(self: Any, settings: Any, *rest: Any) -> None:  # noqa: ANN401  # a ServerConnection and its settings
        import dataclasses

        first(self, dataclasses.replace(settings, stub_max=limits.STUB_MAX), *rest)

    _put(server_connection.ServerConnection, "__init__", begin)


def first_section_alone() -> None:
    """Store only the first section of a message that arrives in two sections.

    The stored bytes are no complete message packet.
    """
    from srmp_spark.mqrr.packets.sections import whole_packet
    from srmp_spark.queue_manager.puller.gateway_side import remote

    def first(sections: Any) -> Any:  # noqa: ANN401  # sections, and the packet with its bytes
        _, packet = whole_packet(sections)
        return bytes(sections[0].data), packet

    _put(remote, "whole_packet", first)


def empty_fragments() -> None:
    """Let a response of a remote queue manager have any number of fragments.

    Everything that one read of the socket brings is handled in one turn of the event loop.
    """
    from srmp_spark.mqrr.rpc import calls
    from srmp_spark.queue_manager.puller.gateway_side import connection

    _put(calls, "FRAGMENTS_MAX", 1 << 40)
    _put(connection, "PDUS_AT_ONCE", 1 << 40)


def unreadable_at_the_head() -> None:
    """Skip at most 200 unreadable messages at the head of a remote queue.

    If the head of the queue has more unreadable messages, the messages after them are not read.
    """
    from srmp_spark.queue_manager.puller.moving_and_copying import passing

    _put(passing, "UNREADABLE_WALKED_MAX", 200)


def cursor_that_loops() -> None:
    """Walk a remote queue with whatever the cursor returns, also if the cursor does not advance."""
    from srmp_spark.mqrr.actions import Action
    from srmp_spark.mqrr.status import Status
    from srmp_spark.queue_manager.puller.gateway_side.pulled import Pulled
    from srmp_spark.queue_manager.puller.moving_and_copying import copying

    async def walk(self: Any, queue: Any) -> int:  # noqa: ANN401  # a Copier and a RemoteQueue
        cursor, action, before = await queue.cursor(), Action.PEEK_CURRENT, self.moved
        while not isinstance(found := await queue.read(action, cursor=cursor), Status):
            action = Action.PEEK_NEXT
            if isinstance(found, Pulled) and found.key not in self.seen:
                # The original method copies the message in the same way.
                await self._copy((found,))
        await queue.close_cursor(cursor)
        return int(self.moved - before)

    _put(copying.Copier, "walk", walk)


def stages_in_the_sender_process() -> None:
    """Let the sender process read stages itself, without a check of their offsets."""
    from srmp_spark.queue_manager.sender.staging import stage_reader, stage_readers

    _put(stage_readers.StageReaders, "_verdict", lambda _, question: stage_reader.judge(question))
    _believe_offsets()


def readers_without_end() -> None:
    """Give a stage that ended its reader process to another reader process, without a limit."""
    from srmp_spark.queue_manager.sender.staging import stage_readers

    _put(stage_readers, "TRIES", 1 << 40)
    _believe_offsets(is_fatal=True)


def sizes_of_stages() -> None:
    """Let the sender process read stages itself, without a check of decompressed sizes."""
    from srmp_spark.queue_manager.sender.staging import stage_reader, stage_readers
    from srmp_spark.store.outbox import stage_file

    _put(stage_readers.StageReaders, "_verdict", lambda _, question: stage_reader.judge(question))
    _put(stage_file, "check_sizes", lambda _: None)


def _believe_offsets(*, is_fatal: bool = False) -> None:
    """Remove the check of offsets in stages.

    With ``is_fatal`` the process ends with code 139 when a wrong offset raises an error. The end of
    the process imitates the effect of a wrong offset that Arrow does not find.
    """
    from srmp_spark.store.outbox import stage_file

    slices = stage_file.StageFile.slices

    def believing(self: Any, *, validate: bool = False) -> Iterable[Any]:  # noqa: ANN401  # as the method
        try:
            yield from slices(self)
        except IndexError:
            if is_fatal:
                # A traceback in the log would be found first, as another bug.
                os._exit(139)
            raise

    _put(stage_file.StageFile, "slices", believing)


def answers_without_end() -> None:
    """Let an answer of a destination have any length and take any time."""
    from srmp_spark.queue_manager.posting import http_answer
    from srmp_spark.queue_manager.sender.http import connections

    for name in ("ANSWER_HEAD_MAX", "ANSWER_BODY_MAX", "ANSWER_MAX", "INTERIM_ANSWERS_MAX"):
        _put(http_answer, name, 1 << 40)
    _put(connections, "ANSWER_SECONDS", 1e9)


def destinations_in_trouble() -> None:
    """Let destinations that do not answer hold all connections of the sender process forever."""
    from srmp_spark.queue_manager.sender.http import connections, places

    _put(connections, "CONNECTIONS_MAX", 100)
    _put(places, "SHARE", 1)
    _put(places, "SLOW_SECONDS", 1e9)
    _put(connections, "ANSWER_SECONDS", 1e9)


@dataclass(frozen=True, slots=True)
class Bug:
    """A planted bug, with the findings by which the attack must find it.

    ``break_it`` plants the bug in the running process.
    """

    break_it: Callable[[], None]
    port: str
    """The walks that find the bug, as a name for ``--port``."""
    kinds: frozenset[str]
    """The kinds of finding that belong to this bug.

    Another kind is another fault, or a mistake of the attack.
    """
    faults: tuple[int, ...] = ()
    """Numbers in :data:`.faults.FAULTS`; empty if no review proved the fault."""


BUGS: dict[str, Bug] = {
    "wsrm-other-version": Bug(
        sequence_of_another_version, "wsrm", frozenset({"log", "exit"}), (1,)
    ),
    "wsrm-endpoint": Bug(
        endpoint_that_cannot_be_read, "wsrm", frozenset({"set-aside", "restart"}), (2,)
    ),
    "wsrm-prefixes": Bug(
        search_for_each_prefix, "wsrm", frozenset({"starved", "late", "silent", "log"}), (3,)
    ),
    "wsrm-one-client": Bug(sequences_for_one_client, "wsrm", frozenset({"starved"}), (9,)),
    "wsrm-gap": Bug(gap_of_one_client, "wsrm", frozenset({"starved"}), (19,)),
    "api-connections": Bug(connections_of_the_api, "api", frozenset({"connections"}), (4,)),
    "api-status": Bug(sequences_in_status, "api", frozenset({"leak"}), (5,)),
    "api-bodies": Bug(bodies_of_the_api, "api", frozenset({"late", "memory", "answer"}), (8,)),
    "rpc-cancels": Bug(
        cancels_of_nobody, "rpc", frozenset({"starved", "late", "slow", "log"}), (16,)
    ),
    "rpc-answers": Bug(
        answers_that_nobody_reads, "rpc", frozenset({"memory", "late", "slow"}), (18,)
    ),
    "rpc-connections": Bug(connections_of_rpc, "rpc", frozenset({"starved"}), (6,)),
    "remote-sections": Bug(
        first_section_alone, "remote", frozenset({"damaged", "set-aside", "lost", "stuck"}), (15,)
    ),
    "remote-fragments": Bug(empty_fragments, "remote", frozenset({"untold", "log"}), (17,)),
    "remote-unreadable": Bug(unreadable_at_the_head, "remote", frozenset({"stuck"}), (20,)),
    "remote-cursor": Bug(cursor_that_loops, "remote", frozenset({"untold"}), (21,)),
    "stage-reader": Bug(stages_in_the_sender_process, "stages", frozenset({"log"}), (7,)),
    "stage-tries": Bug(readers_without_end, "stages", frozenset({"silent"}), (7,)),
    "stage-sizes": Bug(sizes_of_stages, "stages", frozenset({"memory"}), (7,)),
    "out-troubled": Bug(destinations_in_trouble, "out", frozenset({"stuck"})),
    "rpc-fragments": Bug(fragments_without_end, "rpc", frozenset({"memory", "log"}), (6,)),
}
"""The bugs by their name for ``--plant``."""


def plant(name: str) -> None:
    """Plant the bug ``name`` in this process.

    Raises :class:`LookupError` if the code to change no longer exists, or there is no such bug.
    """
    BUGS[name].break_it()


def _put(where: Any, name: str, what: Any) -> None:  # noqa: ANN401  # a module or a class, and what stands in it
    if not hasattr(where, name):
        raise LookupError(f"{where!r} has no {name}: the bug must be planted elsewhere")
    setattr(where, name, what)
