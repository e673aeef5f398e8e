"""A token that is not for all queues leaves room for the queues of operators, and of a later start."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_marks_and_queues import rig

from srmp_spark.errors import ApiError
from srmp_spark.queue_manager.queues import administration
from srmp_spark.queue_manager.service import QueueManager
from srmp_spark.store.tables import queues


def test_it_makes_none_where_there_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(manager: QueueManager) -> None:
        room = 3
        monkeypatch.setattr(administration, "QUEUES_OF_TOKENS_MAX", len(manager.catalogue) + room)
        for number in range(room):
            assert await manager.queues.create(
                f"mine-{number}", transactional=None, is_restricted=True
            )
        with pytest.raises(
            ApiError, match="a token for some queues creates none beyond"
        ) as refused:
            await manager.queues.create("mine-3", transactional=None, is_restricted=True)
        assert (refused.value.status, refused.value.code) == (409, "too-many-queues")
        assert "a token for all queues" in refused.value.hint
        assert not await manager.queues.create("mine-0", transactional=None, is_restricted=True), (
            "it is there"
        )
        assert await manager.queues.create("an operator's", transactional=None)

    rig(tmp_path / "d", test)


def test_a_subqueue_that_becomes_a_queue_for_good_counts_like_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader opens subqueues, and a token declares them: together they would make as many queues as they like."""

    async def test(manager: QueueManager) -> None:
        assert await manager.queues.create("private$/orders", transactional=None)
        subqueue = await manager.queues.subqueues.enter("private$/orders;a")
        monkeypatch.setattr(
            administration, "QUEUES_OF_TOKENS_MAX", manager.catalogue.declared_count
        )
        with pytest.raises(ApiError, match="a token for some queues creates none beyond"):
            await manager.queues.create(subqueue.name, transactional=None, is_restricted=True)
        assert not subqueue.state.declared
        monkeypatch.setattr(administration, "QUEUES_MAX", manager.catalogue.declared_count)
        with pytest.raises(ApiError, match="QUEUES_MAX is"):
            await manager.queues.create(subqueue.name, transactional=None)
        monkeypatch.setattr(administration, "QUEUES_MAX", manager.catalogue.declared_count + 1)
        assert not await manager.queues.create(subqueue.name, transactional=None), "it was there"
        assert subqueue.state.declared

    rig(tmp_path / "d", test)


def test_one_queue_does_not_use_up_the_names_of_all_subqueues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(manager: QueueManager) -> None:
        monkeypatch.setattr(queues, "SUBQUEUE_NAMES_OF_A_QUEUE_MAX", 2)
        monkeypatch.setattr(queues, "SUBQUEUE_NAMES_MAX", 3)
        for name in ("private$/orders", "private$/others"):
            await manager.queues.create(name, transactional=None)
        await manager.queues.subqueues.enter("private$/orders;a")
        await manager.queues.subqueues.enter("private$/orders;b")
        with pytest.raises(ApiError, match="SUBQUEUE_NAMES_OF_A_QUEUE_MAX is 2") as refused:
            await manager.queues.subqueues.enter("private$/orders;c")
        assert refused.value.code == "too-many-subqueues"
        await manager.queues.subqueues.enter("private$/others;a")
        with pytest.raises(ApiError, match="SUBQUEUE_NAMES_MAX is 3"):
            await manager.queues.subqueues.enter("private$/others;b")
        await manager.queues.subqueues.enter("private$/orders;a")

    rig(tmp_path / "d", test)
