"""Warnings about one thing are written once each, and not more of them than a log can hold."""

from __future__ import annotations

from srmp_spark.queue_manager.log_once import (
    LINES_MAX,
    PERIOD_SECONDS,
    REASONS_MAX,
    TEXT_MAX,
    LogOnce,
)


def test_a_reason_is_written_once_however_often_others_come_in_between() -> None:
    log = LogOnce()
    written = [log.line(reason, now) for now in range(100) for reason in ("one", "another")]
    assert [each for each in written if each is not None] == ["one", "another"]
    assert log.line("one", PERIOD_SECONDS) == "one", "after a while somebody may have missed it"


def test_more_reasons_than_the_budget_are_counted_and_told_with_the_next_line() -> None:
    log = LogOnce()
    written = [log.line(f"reason {number}", number * 0.001) for number in range(10_000)]
    assert sum(each is not None for each in written) == LINES_MAX
    assert (
        log.line("a new one", PERIOD_SECONDS + 20)
        == f"a new one ({10_000 - LINES_MAX} other lines were left out)"
    )
    assert log.line("the next", PERIOD_SECONDS + 20) == "the next"


def test_what_is_remembered_and_written_is_bounded() -> None:
    log = LogOnce()
    for number in range(10 * REASONS_MAX):
        log.line(f"reason {number}", number * PERIOD_SECONDS)
    assert len(log._written) == REASONS_MAX
    line = LogOnce().line("\n" + "\u2028" * 10_000, 0.0)
    assert line is not None
    assert line.isascii()
    assert "\n" not in line
    assert len(line) <= 6 * TEXT_MAX
