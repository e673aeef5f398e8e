"""Who may write a message table beside whom (srmp_spark.jobs.table_writers)."""

from __future__ import annotations

import pytest

from srmp_spark.jobs.table_writers import TableWriter, may_meet

A, B = "1c4f7a34-0001-4d4c-9e70-000000000001", "1c4f7a34-0002-4d4c-9e70-000000000002"


@pytest.mark.parametrize(
    ("ours", "theirs", "meet"),
    [
        (["private$/a"], ["private$/a"], True),
        (["private$/a", "b"], ["c", "b"], True),
        (["private$/a"], ["private$/b"], False),
        (["private$/*"], ["private$/b"], True),
        (["private$/b"], ["private$/*"], True),
        (["b"], ["private$/*"], False),
        (["private$/a*"], ["private$/b*"], True),
    ],
)
def test_which_queues_may_be_one(ours: list[str], theirs: list[str], meet: bool) -> None:
    assert may_meet(ours, theirs) is meet


@pytest.mark.parametrize(
    ("ours", "theirs", "meet"),
    [
        ({A}, {A}, True),
        ({A}, {B}, False),
        ({A, B}, {B}, True),
        (set(), {B}, True),
        ({A}, set(), True),
        (set(), set(), True),
    ],
)
def test_two_jobs_of_one_queue_meet_where_they_have_a_queue_manager_in_common(
    ours: set[str], theirs: set[str], meet: bool
) -> None:
    """A job of version 0.1 names none, and may read any."""
    one, other = (
        TableWriter(("private$/a",), frozenset(ours)),
        TableWriter(("private$/*",), frozenset(theirs)),
    )
    assert one.may_meet(other) is meet
    assert other.may_meet(one) is meet


@pytest.mark.parametrize("queue_managers", [set(), {A}, {A, B}])
def test_a_name_says_queues_and_queue_managers(queue_managers: set[str]) -> None:
    writer = TableWriter(("b", "private$/a"), frozenset(queue_managers))
    assert TableWriter.of(writer.name) == writer
    assert writer.name.startswith("srmp-ingest:b,private$/a")


def test_the_name_of_a_job_without_queue_managers_is_that_of_version_0_1() -> None:
    assert TableWriter(("private$/a", "b")).name == "srmp-ingest:b,private$/a"
    assert TableWriter.of("srmp-ingest:private$/a") == TableWriter(("private$/a",))
    assert TableWriter.of("nightly") is None


def test_a_job_of_version_0_1_finds_its_queue_in_a_new_name() -> None:
    """As that version reads it: all parts are queues. A queue's name has no slash but behind ``private$``."""
    found = (
        TableWriter(("private$/a",), frozenset({A})).name.removeprefix("srmp-ingest:").split(",")
    )
    assert may_meet(["private$/a"], found)
    assert not may_meet(["private$/b"], found)
