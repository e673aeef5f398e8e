"""A client that wants to receive in a transaction, at the port: each call is refused, and no message is locked."""

from __future__ import annotations

from remote_kit import Served, bodies, move, opened

from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.lookup_identifier import rebuilt
from srmp_spark.mqrr.ndr.methods import EndReceiveRequest, EnlistRequest, SetClassRequest
from srmp_spark.mqrr.ndr.receive import NO_TRANSACTION, StartReceiveRequest
from srmp_spark.mqrr.queue_format import queue_format_for
from srmp_spark.mqrr.status import Status

TX = b"a transaction id"


def test_every_call_of_a_transaction_is_refused_and_nothing_is_locked(served: Served):
    name = served.queue(transactional=True)
    retry = f"{name};retry"
    served.client.put_queue(retry, transactional=True)
    served.send(name, 0, 0)
    with served.machine() as machine, opened(machine, name, receive=True) as queue:

        def ask(opnum: int, asked: object) -> Status:
            return Status(machine.call(opnum, asked).status)

        enlist = EnlistRequest(TX, b"a token", queue_format_for("host1", name))
        assert ask(12, enlist) == Status.MQ_ERROR_TRANSACTION_ENLIST == 0xC00E0058
        assert ask(12, enlist._replace(transaction=NO_TRANSACTION)) == (
            Status.MQ_ERROR_INVALID_PARAMETER
        )
        start = StartReceiveRequest(queue.handle, request_id=71, transaction=TX)
        assert ask(13, start) == Status.MQ_ERROR_TRANSACTION_SEQUENCE == 0xC00E0051
        peek = start._replace(action=Action.PEEK_CURRENT)
        assert ask(13, peek) == Status.MQ_ERROR_TRANSACTION_USAGE == 0xC00E0050
        first = rebuilt(1, priority=0)
        assert move(queue, retry, lookup_id=first, transaction=TX) == (
            Status.MQ_ERROR_TRANSACTION_SEQUENCE
        )
        reject = SetClassRequest(queue.handle, first, 0xC004)
        assert ask(14, reject) == Status.MQ_ERROR_TRANSACTION_USAGE
        assert ask(15, EndReceiveRequest(queue.handle, 2, 71)) == Status.MQ_ERROR_INVALID_HANDLE
        assert bodies(queue) == ["body 1", "body 2"]
        # A zero XACTUOW is no transaction.
        assert ask(13, start._replace(transaction=NO_TRANSACTION)) == Status.MQ_OK
        assert ask(15, EndReceiveRequest(queue.handle, 2, 71)) == Status.MQ_OK
        assert bodies(queue) == ["body 2"]
    assert (served.waiting(name), served.waiting(retry)) == (1, 0)
