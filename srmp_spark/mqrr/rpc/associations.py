"""Association groups of a server, and the context handles that live in them ([MS-RPCE] 3.3.1.1.1, 3.3.1.4.1, 3.3.1.5.7).

A client whose call blocks on one connection cancels it over another one that names the same group, so a handle must be known to
both, and to no connection of anybody else. When the last connection of a group is gone its handles are **run down**: what they
stood for comes back, for its owner to undo (a queue to close, messages to unlock).
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
"""New identifiers asked for until one is free; random ones of 32 bits are free at the first."""


class Association(Generic[Value]):
    """The connections of one client that share context handles."""

    __slots__ = ("_handles", "_new_uuid", "connections", "handles_elsewhere", "id", "peer")

    def __init__(self, group_id: int, peer: str, new_uuid: Callable[[], bytes]) -> None:
        self.id = group_id
        self.peer = peer
        """The IP address that its first connection came from."""
        self.connections = 0
        self.handles_elsewhere: int | None = None
        """Open handles that another process keeps for this association; ``None``: no other process keeps any."""
        self._handles: dict[bytes, Value] = {}
        self._new_uuid = new_uuid

    def open(self, value: Value) -> ContextHandle:
        """A new handle for ``value``. Raises :class:`LimitExceededError` when there are too many."""
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
        """What a handle stands for; ``None``: none of ours, and the fault is nca_s_fault_context_mismatch."""
        return self._handles.get(handle.uuid) if handle.attributes == 0 else None

    def close(self, handle: ContextHandle) -> Value | None:
        """What a handle stood for, which it no longer does."""
        return self._handles.pop(handle.uuid, None) if handle.attributes == 0 else None

    def run_down(self) -> tuple[Value, ...]:
        """What all handles stood for."""
        values = tuple(self._handles.values())
        self._handles.clear()
        return values

    def __len__(self) -> int:
        """Return the number of open handles, wherever they are kept."""
        return len(self._handles) + (self.handles_elsewhere or 0)

    def __bool__(self) -> bool:
        """Always: an association without handles is one."""
        return True

    def __repr__(self) -> str:
        return (
            f"<Association {self.id} of {self.peer}: {self.connections} connections, "
            f"{len(self)} handles>"
        )


class Associations(Generic[Value]):
    """All association groups of a server. ``new_id`` and ``new_uuid`` are random: who guesses one may use it."""

    __slots__ = ("_groups", "_new_id", "_new_uuid")

    def __init__(self, *, new_id: Callable[[], int], new_uuid: Callable[[], bytes]) -> None:
        self._groups: dict[int, Association[Value]] = {}
        self._new_id = new_id
        self._new_uuid = new_uuid

    def join(self, group_id: int, peer: str) -> Association[Value]:
        """The association of a new connection from ``peer``: a new one for 0, else the one with this identifier.

        Raises :class:`RemoteProtocolError` for one that is not there or belongs to another address, :class:`LimitExceededError`
        when there are too many.
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
        """A connection is gone. What must be run down: nothing, unless it was the last one."""
        association.connections -= 1
        if association.connections > 0:
            return ()
        self._groups.pop(association.id, None)
        return association.run_down()

    def __len__(self) -> int:
        """Association groups."""
        return len(self._groups)
