"""Killed anywhere: after kill -9 between any two steps the next publisher neither loses nor doubles a row.

Every call that touches the disk is a place to die: the sync calls, the commit, the shadow. The process is not really
killed, its state in memory is thrown away; what a power loss adds is in ``test_damage.py``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from delta_state_kit import MemoryLog, State
from deltalake import DeltaTable

from srmp_spark.store.database import durable
from srmp_spark.store.delta.tables import data_files, shadow

STEPS = [
    (data_files, "sync_file"),
    (data_files, "sync_directory"),
    (shadow, "sync_file"),
    (shadow, "sync_directory"),
    (shadow, "write_durably"),
    (durable, "sync_file"),
    (durable, "sync_directory"),
    (DeltaTable, "create_write_transaction"),
    (DeltaTable, "update_incremental"),
]


class Killed(BaseException):
    """No handler of the publisher catches it, as none catches signal 9."""


@contextmanager
def dying_at(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, nth: int, *, after: bool
) -> Iterator[list[int]]:
    original: Callable[..., Any] = getattr(owner, name)
    calls = [0]

    def step(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        if calls[0] == nth and not after:
            raise Killed
        result = original(*args, **kwargs)
        if calls[0] == nth:
            raise Killed
        return result

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, step)
        yield calls


@pytest.mark.parametrize(
    ("owner", "name"), STEPS, ids=lambda value: getattr(value, "__name__", value)
)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_every_call(
    state: State,
    log: MemoryLog,
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    after: bool,
) -> None:
    log.put("private$/orders", 3)
    state.publisher(log).publish_once()
    killed = 0
    for nth in itertools.count(1):
        log.put("private$/orders", 2)
        log.put("audit", 1)
        publisher = state.publisher(log)
        try:
            with dying_at(monkeypatch, owner, name, nth, after=after):
                publisher.publish_once()
        except Killed:
            killed += 1
        else:
            break
    assert killed >= 1, "the step was never reached: the sweep proves nothing"
    report = state.publisher(log).publish_once()
    assert state.landed() == log.expected()
    assert report.position == log.position


def test_nothing_is_reported_before_the_syncs(
    state: State, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.put("private$/orders", 3)
    reports = []
    with pytest.raises(Killed), dying_at(monkeypatch, shadow, "sync_file", 1, after=False):
        reports.append(state.publisher(log).publish_once())
    assert reports == []
