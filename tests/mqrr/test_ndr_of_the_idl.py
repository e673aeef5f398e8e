"""Every stub against the interface definition itself: [MS-MQRR] 6 as text, and a marshaller that knows nothing but alignment.

The golden stubs are another program's; these bytes are derived from the text of the document. A parameter of the wrong width, a
64-bit one that begins where it may not, or one too many shows here.
"""

from __future__ import annotations

import re
import uuid

import pytest

from srmp_spark.mqrr.guids import guid_bytes
from srmp_spark.mqrr.ndr.methods import (
    METHODS,
    CloseQueueResponse,
    CursorResponse,
    EndReceiveRequest,
    EnlistRequest,
    HandleNumberRequest,
    HandleRequest,
    MoveMessageRequest,
    NoParameters,
    OpenForMoveResponse,
    OpenRequest,
    Parameters,
    PortResponse,
    SetClassRequest,
    StatusResponse,
)
from srmp_spark.mqrr.ndr.receive import StartReceiveRequest, StartReceiveResponse
from srmp_spark.mqrr.ndr.stub import ContextHandle
from srmp_spark.mqrr.ndr.transfer_syntax import NDR, NDR64, TransferSyntax
from srmp_spark.mqrr.packets.sections import SectionBuffer
from srmp_spark.mqrr.queue_format import QueueFormat, QueueFormatType

IDL = """
0 DWORD R_GetServerPort()
2 void R_OpenQueue(in QUEUE_FORMAT pQueueFormat, in DWORD dwAccess, in DWORD dwShareMode, in GUID pClientId,
    in LONG fNonRoutingServer, in uchar Major, in uchar Minor, in USHORT BuildNumber, in LONG fWorkgroup, out HANDLE pphContext)
3 HRESULT R_CloseQueue(inout HANDLE pphContext)
4 HRESULT R_CreateCursor(in HANDLE phContext, out DWORD phCursor)
5 HRESULT R_CloseCursor(in HANDLE phContext, in DWORD hCursor)
6 HRESULT R_PurgeQueue(in HANDLE phContext)
7 HRESULT R_StartReceive(in HANDLE phContext, in ULONGLONG LookupId, in DWORD hCursor, in DWORD ulAction, in DWORD ulTimeout,
    in DWORD dwRequestId, in DWORD dwMaxBodySize, in DWORD dwMaxCompoundMessageSize, out DWORD pdwArriveTime,
    out ULONGLONG pSequenceId, out DWORD pdwNumberOfSections, out SECTIONS ppPacketSections)
8 HRESULT R_CancelReceive(in HANDLE phContext, in DWORD dwRequestId)
9 HRESULT R_EndReceive(in HANDLE phContext, in DWORD dwAck, in DWORD dwRequestId)
10 HRESULT R_MoveMessage(in HANDLE phContextFrom, in ULONGLONG ullContextTo, in ULONGLONG LookupId, in XACTUOW pTransactionId)
11 void R_OpenQueueForMove(in QUEUE_FORMAT pQueueFormat, in DWORD dwAccess, in DWORD dwShareMode, in GUID pClientId,
    in LONG fNonRoutingServer, in uchar Major, in uchar Minor, in USHORT BuildNumber, in LONG fWorkgroup,
    out ULONGLONG pMoveContext, out HANDLE pphContext)
12 HRESULT R_QMEnlistRemoteTransaction(in XACTUOW pTransactionId, in DWORD cbPropagationToken, in BYTES pbPropagationToken,
    in QUEUE_FORMAT pQueueFormat)
13 HRESULT R_StartTransactionalReceive(in HANDLE phContext, in ULONGLONG LookupId, in DWORD hCursor, in DWORD ulAction,
    in DWORD ulTimeout, in DWORD dwRequestId, in DWORD dwMaxBodySize, in DWORD dwMaxCompoundMessageSize,
    in XACTUOW pTransactionId, out DWORD pdwArriveTime, out ULONGLONG pSequenceId, out DWORD pdwNumberOfSections,
    out SECTIONS ppPacketSections)
14 HRESULT R_SetUserAcknowledgementClass(in HANDLE phContext, in ULONGLONG LookupId, in USHORT usClass)
15 HRESULT R_EndTransactionalReceive(in HANDLE phContext, in DWORD dwAck, in DWORD dwRequestId)
"""
"""[MS-MQRR] 6 without the binding handle, which is not sent, and without pointers of the top level, which are references."""

WIDTHS = {"DWORD": 4, "LONG": 4, "HRESULT": 4, "ULONGLONG": 8, "USHORT": 2, "uchar": 1}
SIGNATURE = re.compile(r"(\d+) (\w+) (\w+)\(([^)]*)\)")
DEFINED = {
    int(opnum): (result, name, parameters)
    for opnum, result, name, parameters in SIGNATURE.findall(IDL)
}
NAME = "DIRECT=OS:a\\private$\\b"[len("DIRECT=") :]
BODY, SECOND, TOKEN = b"0123456789abc", b"xy", b"token"
CLIENT = "00112233-4455-6677-8899-aabbccddeeff"
UUID = uuid.UUID(CLIENT).bytes
TRANSACTION = bytes(range(16))


class Marshaller:
    """NDR ([C706] 14) or NDR64 ([MS-RPCE] 2.2.5): a primitive lies at a multiple of its size."""

    def __init__(self, *, wide: bool) -> None:
        self.wide, self.stub = wide, bytearray()
        self.pointer = 8 if wide else 4
        self.referents = 0

    def align(self, to: int) -> None:
        self.stub += bytes(-len(self.stub) % to)

    def number(self, value: int, size: int) -> None:
        self.align(size)
        self.stub += (value % 256**size).to_bytes(size, "little")

    def count(self, value: int) -> None:
        self.number(value, self.pointer)

    def reference(self) -> None:
        self.referents += 1
        self.number(0x20000 + 4 * (self.referents - 1), self.pointer)

    def write(self, kind: str, value: object) -> None:
        if kind in WIDTHS:
            assert isinstance(value, int)
            self.number(value, WIDTHS[kind])
        elif kind in ("HANDLE", "GUID"):  # attributes and a UUID; both align to 4
            self.align(4)
            self.stub += value  # type: ignore[arg-type]
        elif kind == "XACTUOW":  # sixteen unsigned chars
            self.stub += value  # type: ignore[arg-type]
        elif kind == "BYTES":
            self.count(len(TOKEN))
            self.stub += TOKEN
        elif kind == "QUEUE_FORMAT":
            self.direct_name()
        else:
            assert kind == "SECTIONS"
            self.sections()

    def direct_name(self) -> None:
        self.align(self.pointer)
        for byte in (3, 0):
            self.number(byte, 1)
        self.number(0, 2)
        self.align(self.pointer)
        self.number(3, 1)  # the tag of the union, whose arms align to a pointer
        self.align(self.pointer)
        self.reference()
        for count in (len(NAME) + 1, 0, len(NAME) + 1):  # [string]: maximum, offset, actual
            self.count(count)
        self.stub += f"{NAME}\0".encode("utf-16-le")

    def sections(self) -> None:
        self.reference()
        self.count(2)
        for kind, data in ((1, BODY), (2, SECOND)):
            self.align(self.pointer)
            self.number(kind, 4 if self.wide else 2)
            self.align(4)
            for size in (100, len(data)):
                self.number(size, 4)
            self.reference()
        for data in (BODY, SECOND):
            self.count(len(data))
            self.stub += data


HANDLE = ContextHandle(0, UUID)
ON_THE_WIRE = bytes(4) + UUID
BIG = 0x0123456789ABCDEF
QUEUE = QueueFormat(QueueFormatType.DIRECT, text=NAME)
SECTIONS = (SectionBuffer(1, 100, BODY), SectionBuffer(2, 100, SECOND))
OPEN = OpenRequest(QUEUE, 1, 0, CLIENT, -1, 6, 1, 7601, 1)
START = StartReceiveRequest(
    HANDLE, lookup_id=BIG, cursor=0x11, action=0x40000010, timeout_ms=0x22, request_id=0x33, max_body_size=0x44,
    max_compound_message_size=0x55,
)  # fmt: skip
VALUES = {
    "pQueueFormat": None, "dwAccess": 1, "dwShareMode": 0, "pClientId": guid_bytes(CLIENT), "fNonRoutingServer": -1,
    "Major": 6, "Minor": 1, "BuildNumber": 7601, "fWorkgroup": 1, "pphContext": ON_THE_WIRE, "phContext": ON_THE_WIRE,
    "phContextFrom": ON_THE_WIRE, "phCursor": 0x66, "hCursor": 0x11, "LookupId": BIG, "ulAction": 0x40000010,
    "ulTimeout": 0x22, "dwRequestId": 0x33, "dwMaxBodySize": 0x44, "dwMaxCompoundMessageSize": 0x55, "pdwArriveTime": 0x77,
    "pSequenceId": BIG >> 8, "pdwNumberOfSections": 2, "ppPacketSections": None, "dwAck": 2, "ullContextTo": BIG + 1,
    "pTransactionId": TRANSACTION, "pMoveContext": BIG + 1, "cbPropagationToken": len(TOKEN), "pbPropagationToken": None,
    "usClass": 0xC004,
}  # fmt: skip
RESULT = 0xC00E0088
OK = StatusResponse(RESULT)
RECEIVED = StartReceiveResponse(0x77, BIG >> 8, SECTIONS, RESULT)
CALLS: dict[int, tuple[Parameters, Parameters]] = {
    0: (NoParameters(), PortResponse(RESULT)),
    2: (OPEN, HandleRequest(HANDLE)),
    3: (HandleRequest(HANDLE), CloseQueueResponse(HANDLE, RESULT)),
    4: (HandleRequest(HANDLE), CursorResponse(0x66, RESULT)),
    5: (HandleNumberRequest(HANDLE, 0x11), OK),
    6: (HandleRequest(HANDLE), OK),
    7: (START, RECEIVED),
    8: (HandleNumberRequest(HANDLE, 0x33), OK),
    9: (EndReceiveRequest(HANDLE, 2, 0x33), OK),
    10: (MoveMessageRequest(HANDLE, BIG + 1, BIG, TRANSACTION), OK),
    11: (OPEN, OpenForMoveResponse(BIG + 1, HANDLE)),
    12: (EnlistRequest(TRANSACTION, TOKEN, QUEUE), OK),
    13: (START._replace(transaction=TRANSACTION), RECEIVED),
    14: (SetClassRequest(HANDLE, BIG, 0xC004), OK),
    15: (EndReceiveRequest(HANDLE, 2, 0x33), OK),
}


def derived(opnum: int, direction: str, *, wide: bool) -> bytes:
    result, _, parameters = DEFINED[opnum]
    marshaller = Marshaller(wide=wide)
    for parameter in re.split(r",\s*", parameters) if parameters else ():
        way, kind, name = parameter.split()
        if direction in way.replace("inout", "in out").split():
            marshaller.write(kind, VALUES[name])
    if direction == "out" and result != "void":
        marshaller.number(RESULT, WIDTHS[result])
    return bytes(marshaller.stub)


@pytest.mark.parametrize("syntax", [NDR, NDR64], ids=["NDR", "NDR64"])
@pytest.mark.parametrize("opnum", DEFINED)
def test_a_stub_is_what_the_interface_definition_says(opnum: int, syntax: TransferSyntax):
    request, response = CALLS[opnum]
    asked = derived(opnum, "in", wide=syntax is NDR64)
    answered = derived(opnum, "out", wide=syntax is NDR64)
    assert request.encode(syntax).hex(" ") == asked.hex(" ")
    assert response.encode(syntax).hex(" ") == answered.hex(" ")
    assert METHODS[opnum].decode_request(asked, syntax) == request
    assert METHODS[opnum].decode_response(answered, syntax) == response


def test_the_definition_and_the_codec_have_the_same_methods():
    assert {opnum: name for opnum, (_, name, _) in DEFINED.items()} == {
        n: each.name for n, each in METHODS.items()
    }


@pytest.mark.parametrize("syntax", [NDR, NDR64], ids=["NDR", "NDR64"])
@pytest.mark.parametrize("opnum", [7, 13])
def test_a_sequence_identifier_has_eight_bytes_at_a_multiple_of_eight(
    opnum: int, syntax: TransferSyntax
):
    """[MS-MQRR] 3.1.4.7: ULONGLONG behind a DWORD, of which seven bytes are used."""
    stub = StartReceiveResponse(1, (1 << 56) - 1, (), RESULT).encode(syntax)
    assert stub[:16] == bytes.fromhex("01000000 00000000 ffffffffffffff00")
    assert METHODS[opnum].decode_response(stub, syntax).sequence_id == (1 << 56) - 1
    behind = 4 + 4 + 8 if syntax is NDR64 else 4 + 4  # no sections, and a NULL pointer
    assert stub[16:] == bytes(behind) + RESULT.to_bytes(4, "little")
