"""An operator's purge while remote readers look: nobody is shown what is purged, nor told of it before it is stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from service_kit import QUEUE, OneClient, rig, send

from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.lookup_identifier import rebuilt
from srmp_spark.mqrr.ndr.receive import StartReceiveRequest
from srmp_spark.mqrr.status import Status


@pytest.mark.parametrize("action", [Action.PEEK_CURRENT, Action.RECEIVE])
def test_a_message_that_is_purged_while_it_is_read_is_not_shown(
    tmp_path: Path, action: Action
) -> None:
    """The reader process has answered with it when the purge is stored and the operator was told so."""

    async def test(client: OneClient) -> None:
        await send(client.manager, 1)
        handle = await client.opened()
        link, read, go_on = client.manager.reader, asyncio.Event(), asyncio.Event()
        at_once = link.open

        async def late(command: Any) -> Any:
            found = [piece async for piece in await at_once(command)]
            read.set()
            await go_on.wait()

            async def again() -> AsyncIterator[bytes]:
                for piece in found:
                    yield piece

            return again()

        link.open = late  # type: ignore[method-assign,assignment]
        asked = asyncio.ensure_future(
            client.ask(7, StartReceiveRequest(handle, action=action, request_id=1))
        )
        await asyncio.wait_for(read.wait(), 60)
        assert await client.manager.queues.purge(QUEUE) == 1
        go_on.set()
        assert (await asked).status == Status.MQ_ERROR_IO_TIMEOUT

    rig(tmp_path / "data", test)


def test_nobody_hears_of_a_purge_that_is_not_stored(tmp_path: Path) -> None:
    """A crash would bring the message back. Another queue manager whose End had no answer asks for it, takes "not found" for
    its own removal and makes a row; then it would read the message once more."""

    async def test(client: OneClient) -> None:
        await send(client.manager, 1)
        handle = await client.opened()
        catalogue, commit = client.manager.catalogue, SimpleNamespace(after_commit=[])
        purging = catalogue.purging
        catalogue.purging = lambda _transaction, queue: purging(commit, queue)  # type: ignore[method-assign,arg-type]
        # Its commit is stored, but for what is called then.
        await client.manager.queues.purge(QUEUE)
        look = StartReceiveRequest(
            handle,
            action=Action.LOOKUP_PEEK_CURRENT,
            request_id=1,
            lookup_id=rebuilt(1, priority=0),
        )
        asked = [
            asyncio.ensure_future(client.ask(7, look._replace(request_id=number)))
            for number in (1, 2)
        ]
        await asyncio.sleep(0)
        assert len(client.service._held) == 2
        assert not any(each.done() for each in asked)
        for stored in commit.after_commit:
            stored()
        assert [(await each).status for each in asked] == [Status.MQ_ERROR_MESSAGE_NOT_FOUND] * 2
        assert not client.service._held

    rig(tmp_path / "data", test)
