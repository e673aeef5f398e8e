"""MessageIdHistory: what changed is what a table needs, limits hold, memory is small."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srmp_spark.srmp.receiving import history as history_module
from srmp_spark.srmp.receiving.history import MESSAGE_ID_HISTORY_DAYS, HistoryRun, MessageIdHistory

A, B = "2744e4e1-2b48-43e8-b441-42745f280d53", "dc1cd9a6-8130-4504-88d2-851707fe4632"
DAY = 86_400_000_000


def apply(table: dict[tuple[str, int], HistoryRun], history: MessageIdHistory) -> None:
    upserts, deletes = history.take_changes()
    for key in deletes:
        table.pop(key, None)
    for run in upserts:
        table[run.lineage, run.first] = run


def test_a_steady_sender_is_one_row() -> None:
    history = MessageIdHistory()
    for number in range(1, 101):
        history.add(A, number, number)
    assert history.take_changes() == ([HistoryRun(A, 1, 100, 100)], [])
    history.add(A, 101, 101)
    assert history.take_changes() == ([HistoryRun(A, 1, 101, 101)], [])
    assert history.take_changes() == ([], [])


def test_a_gap_that_closes_deletes_a_row() -> None:
    history = MessageIdHistory()
    for number in (1, 3):
        history.add(A, number, number)
    assert history.take_changes() == ([HistoryRun(A, 1, 1, 1), HistoryRun(A, 3, 3, 3)], [])
    history.add(A, 2, 5)
    assert history.take_changes() == ([HistoryRun(A, 1, 3, 5)], [(A, 3)])


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from([A, B]), st.integers(1, 30)),
        st.tuples(st.just("expire"), st.just(""), st.integers(0, 60)),
        st.tuples(st.just("save"), st.just(""), st.just(0)),
    ),
    max_size=60,
)


@given(OPERATIONS)
def test_a_table_that_follows_the_changes_is_the_history(
    operations: list[tuple[str, str, int]],
) -> None:
    history = MessageIdHistory()
    table: dict[tuple[str, int], HistoryRun] = {}
    for at, (what, lineage, number) in enumerate(operations):
        if what == "add":
            history.add(lineage, number, at * DAY)
        elif what == "expire":
            history.expire((at - number + MESSAGE_ID_HISTORY_DAYS) * DAY)
        else:
            apply(table, history)
            assert sorted(table.values()) == sorted(history.rows())
            history = MessageIdHistory.load(table.values())
            assert sorted(history.rows()) == sorted(table.values())
    apply(table, history)
    assert sorted(table.values()) == sorted(history.rows())
    assert len(history) == len(table)


def test_expiry_is_exact() -> None:
    history = MessageIdHistory()
    history.add(A, 1, 0)
    history.expire(MESSAGE_ID_HISTORY_DAYS * DAY)
    assert history.seen(A, 1)
    history.expire(MESSAGE_ID_HISTORY_DAYS * DAY + 1)
    assert not history.seen(A, 1)
    assert history.newest is None


def test_too_many_runs_evict_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "MESSAGE_ID_RUNS_MAX", 1000)
    history = MessageIdHistory()
    table: dict[tuple[str, int], HistoryRun] = {}
    for number in range(3000):
        history.add(A, number * 2, number)
        assert len(history) <= 1000
    assert not history.seen(A, 0)
    assert all(history.seen(A, number * 2) for number in range(2100, 3000))
    assert history.evicted_count >= 2000
    apply(table, history)
    assert len(table) == len(history)


def test_old_identifiers_are_forgotten_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their rows are deleted in a transaction that messages wait for: a day's worth at once would be seconds."""
    monkeypatch.setattr(history_module, "FORGOTTEN_MAX", 100)
    history = MessageIdHistory()
    for number in range(450):
        history.add(A if number % 3 else B, number * 2, number)
    history.add(B, 5000, DAY)
    history.take_changes()
    slices = []
    for _ in range(20):
        complete = history.expire(MESSAGE_ID_HISTORY_DAYS * DAY + 450)
        slices.append(len(history.take_changes().deletes))
        if complete:
            break
    assert sum(slices) == 450
    assert max(slices) == 100
    assert [run.first for run in history.rows()] == [5000]


def test_room_is_made_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "MESSAGE_ID_RUNS_MAX", 64_000)
    monkeypatch.setattr(history_module, "FORGOTTEN_MAX", 50)
    history = MessageIdHistory.load(
        HistoryRun(A, number * 2, number * 2, number) for number in range(64_000)
    )
    for number in range(64_000, 66_000):
        history.add(A, number * 2, number)
        assert len(history) <= 64_000
        assert len(history.take_changes().deletes) <= 50
    assert history.seen(A, 3000 * 2)
    assert not history.seen(A, 1900 * 2)


def test_room_is_made_sender_by_sender_several_runs_of_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are neighbours in the table. One run of a sender with each message would be a second page written for each."""
    monkeypatch.setattr(history_module, "MESSAGE_ID_RUNS_MAX", 4000)
    names = [f"{number:08x}-0000-4000-8000-000000000000" for number in range(100)]
    history = MessageIdHistory.load(
        HistoryRun(name, run * 2, run * 2, run) for name in names for run in range(40)
    )
    touched: list[str] = []
    for number in range(40, 42):
        for name in names:
            history.add(name, number * 2, number)
            assert len(history) <= 4000
            touched += dict.fromkeys(lineage for lineage, _ in history.take_changes().deletes)
    assert history.evicted_count >= 200
    assert len(touched) * 2 <= history.evicted_count
    assert touched == sorted(touched), "in the order of the table"


def test_the_search_for_what_is_old_stops_after_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages wait for it, whether it finds something or not."""
    monkeypatch.setattr(history_module, "LOOKED_AT_MAX", 400)
    names = [f"{number:08x}-0000-4000-8000-000000000000" for number in range(100)]
    history = MessageIdHistory.load(
        HistoryRun(name, run * 2, run * 2, run) for name in names for run in range(40)
    )
    for name in names:
        history.add(name, 1, 40)  # 0 to 2 are one run now, and no longer what was oldest
    history.take_changes()
    forgotten = []
    while not history.expire(MESSAGE_ID_HISTORY_DAYS * DAY + 3):
        forgotten.append(len(history.take_changes().deletes))
    forgotten.append(len(history.take_changes().deletes))
    assert len(forgotten) == 12, "nine senders at once, of 39 runs each"
    assert sum(forgotten) == 100
    assert all(run.last_received_at >= 3 for run in history.rows())


def test_of_two_times_the_later_one_counts() -> None:
    """A restore reads queue after queue, and not in the order in which the messages came."""
    history = MessageIdHistory()
    history.add(A, 1, 5)
    history.add(A, 2, 1)
    history.expire(MESSAGE_ID_HISTORY_DAYS * DAY + 4)
    assert history.seen(A, 1)


def test_the_lineages_forgotten_are_those_that_were_silent_for_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An old run of a sender that is heard every day is worth more than that of one that never came again."""
    monkeypatch.setattr(history_module, "MESSAGE_ID_LINEAGES_MAX", 100)
    history = MessageIdHistory()
    history.add(A, 1, 0)
    for number in range(1, 400):
        history.add(f"{number:08x}-0000-4000-8000-000000000000", 1, number)
        history.add(A, number * 2 + 1, number)
    assert history.seen(A, 1)
    assert history.seen(f"{399:08x}-0000-4000-8000-000000000000", 1)
    assert not history.seen(f"{1:08x}-0000-4000-8000-000000000000", 1)


def test_all_of_one_moment_the_newest_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the history has steps of ten milliseconds, in which a hundred strangers may come."""
    monkeypatch.setattr(history_module, "MESSAGE_ID_LINEAGES_MAX", 100)
    monkeypatch.setattr(history_module, "MESSAGE_ID_RUNS_MAX", 100)
    history = MessageIdHistory()
    for number in range(300):
        name = f"{number:08x}-0000-4000-8000-000000000000"
        history.add(name, 1, 7)
        assert history.seen(name, 1), "its repeat would be a second row"


def test_rows_that_come_out_of_order_are_taken_all_the_same() -> None:
    """SQLite sorts numbers beyond 63 bits first; Delta does not sort at all."""
    rows = [HistoryRun(A, 2**63, 2**64 - 1, 1), HistoryRun(A, 9, 9, 2), HistoryRun(B, 1, 1, 3), HistoryRun(A, 1, 4, 4),
            HistoryRun(A, 5, 5, 5)]  # fmt: skip
    history = MessageIdHistory.load(rows)
    assert sorted(history.rows()) == [
        HistoryRun(A, 1, 5, 5), HistoryRun(A, 9, 9, 2), HistoryRun(A, 2**63, 2**64 - 1, 1), HistoryRun(B, 1, 1, 3)
    ]  # fmt: skip
    assert len(history) == 4


def test_too_many_lineages_evict_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that invents a source GUID for each message."""
    monkeypatch.setattr(history_module, "MESSAGE_ID_LINEAGES_MAX", 100)
    history = MessageIdHistory()
    for number in range(500):
        history.add(f"{number:08x}-0000-4000-8000-000000000000", 1, number)
        assert len(history) <= 101
    assert history.seen(f"{499:08x}-0000-4000-8000-000000000000", 1)


def test_a_run_costs_24_bytes() -> None:
    tracemalloc.start()
    history = MessageIdHistory()
    for number in range(100_000):
        history.add(A, number * 3, number)
        if number % 100 == 0:
            history.take_changes()
    history.take_changes()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 100_000 * 32, f"{used / 100_000:.0f} bytes a run"


def test_repr_is_for_people() -> None:
    history = MessageIdHistory()
    history.add(A, 1, 0)
    assert repr(history) == "<MessageIdHistory lineages=1 runs=1 evicted=0>"
