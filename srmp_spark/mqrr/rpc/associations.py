"""Association groups of a server, and the context handles in them ([MS-RPCE] 3.3.1.1.1).

A client whose call blocks on one connection cancels the call over another connection of the same
group. So a handle must be known to all connections of the group, and to no other connection. When
the last connection of a group is closed, its handles are **run down** ([MS-RPCE] 3.3.1.4.1,
3.3.1.5.7): the values of the handles are returned to their owner, who undoes them (closes a queue,
unlocks messages).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from srmp_spark.errors import LimitExceededError, LocalProtocolError, RemoteProtocolError
from srmp_spark.mqrr.guids import GUID_SIZE
from srmp_spark.mqrr.ndr.stub import ContextHandle
from srmp_spark.mqrr.rpc.limits import ASSOCIATIONS_MAX, HANDLES_MAX

Value = TypeVar("Value")
_SECTION = "[MS-RPCE] 3.3.1.5.7"
_TRIES = 16
"""Number of attempts to find a free identifier.

Random identifiers of 32 bits are practically always free at the first attempt.
"""


class Association(Generic[Value]):
    """The connections of one client that share context handles."""

    __slots__ = ("_handles", "_new_uuid", "connections", "handles_elsewhere", "id", "peer")

    def __init__(self, group_id: int, peer: str, new_uuid: Callable[[], bytes]) -> None:
        self.id = group_id
        self.peer = peer
        """IP address of the client's first connection."""
        self.connections = 0
        self.handles_elsewhere: int | None = None
        """Number of open handles that another process keeps; ``None`` if no other process keeps
        any.
        """
        self._handles: dict[bytes, Value] = {}
        self._new_uuid = new_uuid

    def open(self, value: Value) -> ContextHandle:
        """Create a context handle for ``value``, and return it.

        Raises :class:`LimitExceededError` if ``HANDLES_MAX`` handles are open,
        :class:`LocalProtocolError` if the new UUID is zero or in use.
        """
        if len(self._handles) >= HANDLES_MAX:
            raise LimitExceededError(
                "HANDLES_MAX", HANDLES_MAX, len(self._handles) + 1, section="[MS-RPCE] 3.3.1.4.1"
            )
        uuid = self._new_uuid()
        if len(uuid) != GUID_SIZE or uuid in self._handles or not any(uuid):
            raise LocalProtocolError(
                "a context handle needs 16 random bytes that are neither zero nor in use"
            )
        self._handles[uuid] = value
        return ContextHandle(0, uuid)

    def find(self, handle: ContextHandle) -> Value | None:
        """Return the value of a context handle, or ``None`` if the handle is unknown.

        The fault for an unknown handle is nca_s_fault_context_mismatch.
        """
        return self._handles.get(handle.uuid) if handle.attributes == 0 else None

    def close(self, handle: ContextHandle) -> Value | None:
        """Remove a context handle and return its value, or ``None`` if the handle is unknown."""
        return self._handles.pop(handle.uuid, None) if handle.attributes == 0 else None

    def run_down(self) -> tuple[Value, ...]:
        """Remove all context handles and return their values.

        The caller undoes what the values stand for.
        """
        values = tuple(self._handles.values())
        self._handles.clear()
        return values

    def __len__(self) -> int:
        """Return the number of open handles, with those that another process keeps."""
        return len(self._handles) + (self.handles_elsewhere or 0)

    def __bool__(self) -> bool:
        """Return True always, because an association without handles is one too."""
        return True

    def __repr__(self) -> str:
        return (
            f"<Association {self.id} of {self.peer}: {self.connections} connections, "
            f"{len(self)} handles>"
        )


class Associations(Generic[Value]):
    """All association groups of a server.

    ``new_id`` returns a random number of 32 bits for a group, ``new_uuid`` 16 random bytes for a
    context handle. Both must be random, because a client that guesses one may use it.
    """

    __slots__ = ("_groups", "_new_id", "_new_uuid")

    def __init__(self, *, new_id: Callable[[], int], new_uuid: Callable[[], bytes]) -> None:
        self._groups: dict[int, Association[Value]] = {}
        self._new_id = new_id
        self._new_uuid = new_uuid

    def join(self, group_id: int, peer: str) -> Association[Value]:
        """Return the association for a new connection from ``peer``, and count the connection.

        ``peer`` is the IP address of the client. ``group_id`` 0 creates an association; any other
        number joins the association with this identifier. Raises :class:`RemoteProtocolError` if
        that association does not exist or belongs to another IP address. Raises
        :class:`LimitExceededError` if ``ASSOCIATIONS_MAX`` groups exist, and
        :class:`LocalProtocolError` if ``new_id`` returns no free number.
        """
        if group_id:
            association = self._groups.get(group_id)
            if association is None or association.peer != peer:
                raise RemoteProtocolError(
                    "no association group of this client has this identifier", section=_SECTION
                )
        else:
            if len(self._groups) >= ASSOCIATIONS_MAX:
                raise LimitExceededError(
                    "ASSOCIATIONS_MAX", ASSOCIATIONS_MAX, len(self._groups) + 1, section=_SECTION
                )
            fresh = self._fresh_id()
            association = self._groups[fresh] = Association(fresh, peer, self._new_uuid)
        association.connections += 1
        return association

    def _fresh_id(self) -> int:
        for _ in range(_TRIES):
            found = self._new_id()
            if 0 < found <= 0xFFFFFFFF and found not in self._groups:
                return found
        raise LocalProtocolError(
            "an association group needs a random number of 32 bits, not 0 and not in use"
        )

    def leave(self, association: Association[Value]) -> tuple[Value, ...]:
        """Count one connection of an association as closed; return the handle values to run down.

        If the connection was the last one, the association ends. Otherwise the result is empty.
        """
        association.connections -= 1
        if association.connections > 0:
            return ()
        self._groups.pop(association.id, None)
        return association.run_down()

    def __len__(self) -> int:
        """Return the number of association groups."""
        return len(self._groups)
