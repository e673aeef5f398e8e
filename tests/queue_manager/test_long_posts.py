"""``POST messages`` with all that one call may have: other callers have their turns of the loop meanwhile."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from test_marks_and_queues import rig

from srmp_spark.errors import ApiError
from srmp_spark.queue_manager.api.messages import MESSAGES_MAX, MessagesApi
from srmp_spark.queue_manager.api.port_side import json_items as reading
from srmp_spark.queue_manager.api.port_side.base64_text import CHARACTERS_AT_ONCE, decoded_base64
from srmp_spark.queue_manager.api.port_side.http import JSON_ITEMS_MAX
from srmp_spark.queue_manager.api.port_side.json_items import CHUNK_BYTES, json_items
from srmp_spark.queue_manager.queues.own_order import WAITING_MESSAGES_MAX
from srmp_spark.queue_manager.service import QueueManager
from srmp_spark.queue_manager.slices import Slices

TURN_SHARE_MAX = 1 / 8
"""Of the CPU time of the whole call, in its longest turn of the loop: a busy machine makes both longer. It is a thirtieth
with slices, and half without."""


@contextlib.asynccontextmanager
async def turns_of_the_loop(found: list[float]) -> AsyncIterator[None]:
    """Find the CPU time of the longest turn, and that of all turns."""

    async def watch() -> None:
        before = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            found[0] = max(found[0], now - before)
            found[1] += now - before
            before = now

    gc.collect()
    gc.freeze()  # else what other tests of this process left is looked through in a turn
    task = asyncio.create_task(watch())
    await asyncio.sleep(0)
    try:
        yield
    finally:
        await asyncio.sleep(0)
        task.cancel()
        gc.unfreeze()


def pieces_of(text: bytes) -> list[bytes]:
    return [text[at : at + 200_000] for at in range(0, len(text), 200_000)]


async def post(
    manager: QueueManager, queue: str, text: bytes | list[bytes]
) -> list[dict[str, Any]]:
    whole = text if isinstance(text, list) else pieces_of(text)

    async def pieces(_limit: int) -> list[bytes]:
        return whole

    request: Any = SimpleNamespace(parameters={"queue": queue}, pieces=pieces)
    answer = await MessagesApi(manager).post(request)
    return cast("list[dict[str, Any]]", json.loads(answer.body))


def messages(count: int, size: int = 1) -> bytes:
    body = base64.b64encode(b"x" * size).decode()
    return json.dumps([{"body_base64": body, "label": f"n{n}"} for n in range(count)]).encode()


@pytest.mark.parametrize(
    ("queue", "count", "size"),
    [("q", MESSAGES_MAX, 1), ("t", MESSAGES_MAX, 1), ("q", 12, 3_900_000)],
)
def test_the_loop_has_its_turns(tmp_path: Path, queue: str, count: int, size: int) -> None:
    pieces, turns = pieces_of(messages(count, size)), [0.0, 0.0]

    async def test(manager: QueueManager) -> None:
        async with turns_of_the_loop(turns):
            assert len(await post(manager, queue, pieces)) == count

    rig(tmp_path / "d", test, queue=["q", "t:transactional"], host_name=["h"])
    longest, all_turns = turns
    assert longest < all_turns * TURN_SHARE_MAX, (
        f"{longest * 1e3:.0f} ms of {all_turns * 1e3:.0f} ms"
    )


def test_a_long_body_is_decoded_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    whole = base64.b64decode

    def counting(text: str, *, validate: bool) -> bytes:
        steps.append(len(text))
        return whole(text, validate=validate)

    async def test(manager: QueueManager) -> None:
        with monkeypatch.context() as counted:
            counted.setattr(base64, "b64decode", counting)
            await post(manager, "q", messages(2, 3_900_000))

    rig(tmp_path / "d", test, queue=["q"], host_name=["h"])
    assert sum(steps) == 2 * 5_200_000
    assert max(steps) <= CHARACTERS_AT_ONCE


@pytest.mark.parametrize("size", [0, 1, 2, 3 * 65_536, 3 * 65_536 + 1, 400_001])
@pytest.mark.parametrize(
    ("at", "instead"), [(None, ""), (5, "="), (262_143, "="), (262_142, "=="), (7, "é"), (9, "\n")]
)
def test_base64_in_steps_is_what_it_is_as_a_whole(size: int, at: int | None, instead: str) -> None:
    text = base64.b64encode(bytes(range(256)) * (size // 256) + b"x" * (size % 256)).decode()
    if at is not None:
        text = text[:at] + instead + text[at + len(instead) :]

    async def steps() -> bytes:
        async with Slices().work() as work:
            return await decoded_base64(text, work)

    try:
        whole = base64.b64decode(text, validate=True)
    except ValueError:
        with pytest.raises(ValueError, match=r"."):
            asyncio.run(steps())
    else:
        assert asyncio.run(steps()) == whole


def test_posts_at_once_keep_their_order_in_the_stream(tmp_path: Path) -> None:
    async def test(manager: QueueManager) -> None:
        text = messages(3 * WAITING_MESSAGES_MAX)
        found = await asyncio.gather(
            *(post(manager, "t", text) for _ in range(3)), post(manager, "t", messages(1))
        )
        numbers = [[each["stream_sequence"] for each in answer] for answer in found]
        assert all(each == list(range(each[0], each[0] + len(each))) for each in numbers)
        assert sorted(n for each in numbers for n in each) == list(
            range(1, 9 * WAITING_MESSAGES_MAX + 2)
        )
        assert manager.catalogue.find("t").end == 9 * WAITING_MESSAGES_MAX + 1

    rig(tmp_path / "d", test, queue=["t:transactional"], host_name=["h"])


def test_what_was_stored_before_the_disk_is_full_is_said(tmp_path: Path) -> None:
    async def test(manager: QueueManager) -> None:
        task = asyncio.create_task(post(manager, "q", messages(3 * WAITING_MESSAGES_MAX)))
        while not manager.catalogue.find("q").end and not task.done():
            await asyncio.sleep(0)
        manager.gate.close("disk-full", "no room")
        with pytest.raises(ApiError, match="no room") as error:
            await task
        stored = manager.catalogue.find("q").end
        assert 0 < stored < 3 * WAITING_MESSAGES_MAX
        assert f"({stored} were stored)" in error.value.message

    rig(tmp_path / "d", test, queue=["q"], host_name=["h"])


def test_a_bug_in_one_message_keeps_no_room_from_later_callers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("a bug")

    async def test(manager: QueueManager) -> None:
        many = messages(WAITING_MESSAGES_MAX // 2)
        with monkeypatch.context() as broken:
            broken.setattr(manager.acceptor, "take", fails)
            for _ in range(3):
                with pytest.raises(RuntimeError, match="a bug"):
                    await post(manager, "q", many)
        found = await asyncio.wait_for(post(manager, "q", many), 20)
        assert len(found) == WAITING_MESSAGES_MAX // 2

    rig(tmp_path / "d", test, queue=["q"], host_name=["h"])


async def read(text: bytes, piece: int) -> list[object]:
    async with Slices().work() as work:
        return [
            each
            async for each in json_items(
                [text[at : at + piece] for at in range(0, len(text), piece)], work
            )
        ]


LONG = "ä€😀" * CHUNK_BYTES


@pytest.mark.parametrize("piece", [1_000, 3 * CHUNK_BYTES + 1])
@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"label": LONG}),
        json.dumps([{"label": LONG}, {"n": [1, {"a": None}], "x": 1.5}, {}], ensure_ascii=False),
        "\ufeff [" + " " * CHUNK_BYTES + "{} ,\n{} ] ",
        "[" + ",".join(['{"priority":3,"label":"a\\"}{[,"}'] * 9_000) + "]",
    ],
)
def test_long_json_is_what_it_is_as_a_whole(text: str, piece: int) -> None:
    whole = json.loads(text.removeprefix("\ufeff"))
    assert asyncio.run(read(text.encode(), piece)) == (
        whole if isinstance(whole, list) else [whole]
    )


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("[{}", 400, "not JSON"),
        ("[{},]", 400, "not JSON"),
        ("[{}]x", 400, "not JSON"),
        ("{} {}", 400, "not JSON"),
        ("[{} {}]", 400, "not JSON"),
        ('[{"a":NaN}]', 400, "not JSON"),
        ('[{"a":nothing}' + ",{}" * 9_000 + "]", 400, "not JSON"),
        ('[{"a":' + "[" * 5_000 + "]", 400, "not JSON"),
        ('[{"a":"\\ud800"}]', 400, "surrogate"),
        ("[5]", 400, "a message is a JSON object"),
        ("[" + "{}," * (JSON_ITEMS_MAX + 1) + "{}]", 413, "JSON_ITEMS_MAX"),
        ('[{"a":[' + "0," * 100_000 + "0]}]", 413, "values"),
        ('[{"a":"' + "x" * (2 * reading.ITEM_TEXT_MAX + 9) + '"}]', 413, "longer"),
    ],
)
def test_long_json_that_is_wrong(text: str, status: int, said: str) -> None:
    with pytest.raises(ApiError, match=said) as error:
        asyncio.run(read(b" " * CHUNK_BYTES + text.encode(), 50_000))
    assert error.value.status == status


def test_long_json_that_is_no_utf_8() -> None:
    with pytest.raises(ApiError, match="UTF-8"):
        asyncio.run(read(b'[{"a":"' + b"x" * CHUNK_BYTES + b'\xff"}]', 50_000))
