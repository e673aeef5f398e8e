"""The golden stubs of an independent encoder, and what each of them holds."""

from __future__ import annotations

from typing import Any, NamedTuple

from packet_kit import SAMPLES

from srmp_spark.mqrr.ndr.methods import (
    METHODS,
    CloseQueueResponse,
    CursorResponse,
    EndReceiveRequest,
    EnlistRequest,
    HandleRequest,
    MoveMessageRequest,
    OpenForMoveResponse,
    OpenRequest,
    SetClassRequest,
)
from srmp_spark.mqrr.ndr.receive import StartReceiveRequest, StartReceiveResponse
from srmp_spark.mqrr.ndr.stub import NULL_HANDLE, ContextHandle
from srmp_spark.mqrr.ndr.transfer_syntax import NDR, NDR64, TransferSyntax
from srmp_spark.mqrr.packets.sections import SectionBuffer
from srmp_spark.mqrr.queue_format import QueueFormat, QueueFormatType

GUID = "11223344-5566-7788-0102-030405060708"
HANDLE = ContextHandle(0, bytes.fromhex("44332211665588770102030405060708"))
DIRECT = QueueFormat(QueueFormatType.DIRECT, text=r"OS:host1\private$\orders")
_TRANSACTION = bytes(range(1, 17))


def _open(queue: QueueFormat) -> OpenRequest:
    return OpenRequest(queue, access=0x20, client_id=GUID, build_number=7601, workgroup=1)


class Golden(NamedTuple):
    """What a stub holds, and where its referent identifiers are: arbitrary numbers, so they are masked."""

    opnum: int
    response: bool
    value: Any
    referents: tuple[int, ...] = ()
    referents64: tuple[int, ...] = ()


GOLDEN = {
    "OpenQueue.req.direct": Golden(2, False, _open(DIRECT), (8,), (16,)),
    "OpenQueue.req.public": Golden(2, False, _open(QueueFormat(QueueFormatType.PUBLIC, guid=GUID))),
    "OpenQueue.req.private": Golden(2, False, _open(QueueFormat(QueueFormatType.PRIVATE, guid=GUID, number=0x15))),
    "OpenQueue.rsp": Golden(2, True, HandleRequest(HANDLE)),
    "CloseQueue.rsp": Golden(3, True, CloseQueueResponse(NULL_HANDLE, 0)),
    "StartReceive.req": Golden(
        7, False, StartReceiveRequest(HANDLE, 0x0400000000000123, action=0x40000011, request_id=7)
    ),
    "StartReceive.rsp.two": Golden(
        7, True,
        StartReceiveResponse(
            0x65000000, 0x123, (SectionBuffer(1, 12, bytes([1, 2, 3, 4, 5])), SectionBuffer(2, 3, bytes([9, 8, 7]))), 0
        ),
        (20, 40, 56), (24, 56, 80),
    ),
    "StartReceive.rsp.err": Golden(7, True, StartReceiveResponse(0, 0, (), 0xC00E001B)),
    "StartTransactionalReceive.req": Golden(
        13, False,
        StartReceiveRequest(
            HANDLE, 5, timeout_ms=10, request_id=7, max_body_size=1, max_compound_message_size=2, transaction=_TRANSACTION
        ),
    ),
    "MoveMessage.req": Golden(10, False, MoveMessageRequest(HANDLE, 0x1122334455667788, 0x0102030405060708, bytes(16))),
    "OpenQueueForMove.rsp": Golden(11, True, OpenForMoveResponse(0x1122334455667788, HANDLE)),
    "EnlistRemoteTransaction.req": Golden(
        12, False, EnlistRequest(bytes(16), bytes([1, 2, 3, 4, 5]), DIRECT), (40,), (56,)
    ),
    "SetUserAcknowledgementClass.req": Golden(14, False, SetClassRequest(HANDLE, 9, 0xC004)),
    "EndReceive.req": Golden(9, False, EndReceiveRequest(HANDLE, 2, 7)),
    "CreateCursor.rsp": Golden(4, True, CursorResponse(3, 0)),
}  # fmt: skip


class Vector(NamedTuple):
    """One line of the file."""

    name: str
    syntax: TransferSyntax
    stub: bytes

    @property
    def golden(self) -> Golden:
        return GOLDEN[self.name]

    def decode(self) -> Any:
        method = METHODS[self.golden.opnum]
        return (method.decode_response if self.golden.response else method.decode_request)(
            self.stub, self.syntax
        )

    def masked(self, stub: bytes) -> bytes:
        """``stub`` with every referent identifier 1; all must have been there."""
        wide = self.syntax is NDR64
        for at in self.golden.referents64 if wide else self.golden.referents:
            size = 8 if wide else 4
            assert any(stub[at : at + size])
            stub = stub[:at] + (1).to_bytes(size, "little") + stub[at + size :]
        return stub


def vectors() -> list[Vector]:
    lines = (SAMPLES / "ndr_vectors_gomsrpc.txt").read_text().splitlines()
    words = [line.split() for line in lines if not line.startswith("#")]
    return [
        Vector(name, {"ndr": NDR, "ndr64": NDR64}[syntax], bytes.fromhex(data))
        for name, syntax, data in words
    ]
