"""R_OpenQueue, share modes, and what ends a handle from outside ([MS-MQRR] 3.1.4.2, [MS-MQDMPR] 3.1.7.1.5)."""

from __future__ import annotations

import pytest
from server_kit import GUID, Box, World

from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.ndr.methods import (
    ACCESS_MOVE,
    ACCESS_PEEK,
    SHARE_DENY_SHARE,
    HandleRequest,
    OpenRequest,
)
from srmp_spark.mqrr.queue_format import queue_format_of
from srmp_spark.mqrr.server.effects import FindQueue
from srmp_spark.mqrr.status import Status

NONE, DENY, PEEK, RECEIVE = 0, SHARE_DENY_SHARE, ACCESS_PEEK, 1


@pytest.mark.parametrize(
    ("present", "wanted", "refused"),
    [
        ((RECEIVE, DENY), (RECEIVE, DENY), True),
        ((RECEIVE, DENY), (RECEIVE, NONE), True),
        ((RECEIVE, DENY), (PEEK, DENY), True),
        ((RECEIVE, DENY), (PEEK, NONE), False),
        ((PEEK, DENY), (RECEIVE, NONE), True),
        ((PEEK, DENY), (RECEIVE, DENY), True),
        ((PEEK, DENY), (PEEK, DENY), False),
        ((RECEIVE, NONE), (RECEIVE, DENY), True),
        ((RECEIVE, NONE), (PEEK, DENY), True),
        ((RECEIVE, NONE), (RECEIVE, NONE), False),
        ((PEEK, NONE), (RECEIVE, DENY), False),
    ],
)
def test_share_modes(present, wanted, refused):
    """[MS-MQDMPR] 3.1.7.1.5, its three cases."""
    world = World()
    one = world.reader("one").opened(*present)
    answer = world.reader("two").open(*wanted)
    assert (answer == Status.MQ_ERROR_SHARING_VIOLATION) is refused
    one.close()
    assert world.reader("three").open(*wanted) != Status.MQ_ERROR_SHARING_VIOLATION or not refused


def test_what_a_client_says_of_itself_changes_nothing():
    """pClientId, fNonRoutingServer, Major, Minor, BuildNumber, fWorkgroup."""
    box = Box("private$/orders;retry")
    world = World(Box(), box)
    one = world.reader()
    for opnum, access, name in ((2, ACCESS_PEEK, "orders"), (11, ACCESS_MOVE, "orders;retry")):
        asked = OpenRequest(queue_format_of(rf"DIRECT=OS:host\private$\{name}"), access)
        for each in (asked, asked._replace(client_id=GUID), asked._replace(non_routing_server=0), asked._replace(major=99),
                     asked._replace(minor=99), asked._replace(build_number=99), asked._replace(workgroup=1)):  # fmt: skip
            assert not isinstance(one.ask(opnum, each), Status)


def test_an_unknown_queue_a_wrong_access_and_a_wrong_share_mode_are_faults():
    one = World().reader()
    assert one.open(name=r"private$\none") == Status.MQ_ERROR_QUEUE_NOT_FOUND
    assert one.open(access=2) == Status.MQ_ERROR_INVALID_PARAMETER
    assert one.open(share=7) == Status.MQ_ERROR_INVALID_PARAMETER


def test_a_client_that_is_gone_before_its_queue_is_open_leaves_nothing_open():
    world = World()
    one = world.reader()
    world.hold = (FindQueue,)
    assert one.open() is None
    one.gone()
    world.hold = ()
    world.release()
    assert world.open == []


def test_a_deleted_queue_ends_every_wait_and_its_handles_can_only_be_closed():
    world = World()
    world.came(3)
    one, two = world.reader("one").opened(), world.reader("two").opened()
    assert one.get() == 1
    waits = two.start(timeout_ms=60_000)
    world.box.deleted = True
    world.do(world.server.end_use(world.box, Status.MQ_ERROR_QUEUE_DELETED))
    assert two.shown(waits) == Status.MQ_ERROR_QUEUE_DELETED
    assert one.end() == Status.MQ_ERROR_QUEUE_DELETED
    assert two.get() == Status.MQ_ERROR_QUEUE_DELETED
    assert two.ask(4, HandleRequest(two.handle)).status == Status.MQ_ERROR_QUEUE_DELETED
    assert one.close().status == two.close().status == Status.MQ_OK
    assert world.open == []


def test_when_another_receiver_has_taken_over_peeking_goes_on_and_receiving_does_not():
    world = World()
    world.came(3, 3)
    one, looker = world.reader("one").opened(), world.reader("two").peeking()
    assert one.get() == 1
    world.do(world.server.end_use(world.box, Status.MQ_ERROR_STALE_HANDLE, receivers_only=True))
    assert one.end() == Status.MQ_ERROR_STALE_HANDLE
    assert world.taken == []
    assert looker.get(Action.PEEK_CURRENT) == 1
