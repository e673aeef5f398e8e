"""An operator's decision that is repeated, because its answer did not come, while the first is being stored."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from srmp_spark.errors import ApiError
from srmp_spark.queue_manager.sender.crossing import Operate
from srmp_spark.queue_manager.sender.operations import operate


def test_who_drops_again_is_told_that_nothing_is_there_when_that_is_stored() -> None:
    async def test() -> None:
        stored = asyncio.Event()
        # What `operate` sees between the engine's forgetting a queue and the commit that says so.
        dispatcher: Any = SimpleNamespace(
            sender=SimpleNamespace(get=lambda *key: None), written=stored.wait
        )
        clock: Any = None
        command = Operate("drop", "http://peer.example/msmq/q")
        again = asyncio.ensure_future(operate(dispatcher, clock, command))
        await asyncio.sleep(0.02)
        assert not again.done()
        stored.set()
        with pytest.raises(ApiError, match="nothing waits for") as refused:
            await again
        assert refused.value.status == 404

    asyncio.run(test())
