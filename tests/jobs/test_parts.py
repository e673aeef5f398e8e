"""The parts of the sending jobs that need neither Spark nor a queue manager: times, batches, throttle, bar, notes, help."""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srmp_spark.errors import ConfigurationError
from srmp_spark.jobs import backfill, ranges, replay
from srmp_spark.jobs.done import DoneBatches, default_path, scope_of
from srmp_spark.jobs.pace import Bar, Throttle
from srmp_spark.jobs.ranges import Bucket, joined
from srmp_spark.jobs.selection import Selection, parse_time

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-11-22", (2026, 11, 22)),
        ("2026-11-22T10:30", (2026, 11, 22, 10, 30)),
        (" 2026-11-22 10:30:05Z", (2026, 11, 22, 10, 30, 5)),
        ("2026-11-22T10:30:05.5+01:00", (2026, 11, 22, 9, 30, 5, 500_000)),
        ("2026-11-22T10:30:05.1234567Z", (2026, 11, 22, 10, 30, 5, 123_456)),
    ],
)
def test_times_without_a_zone_are_utc(text: str, time: tuple[int, ...]) -> None:
    assert parse_time(text) == datetime(*time, tzinfo=timezone.utc)


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "10:30", "2026-11-22T25:00"])
def test_no_time_says_what_one_looks_like(text: str) -> None:
    with pytest.raises(ConfigurationError, match="for example 2026-11-22T10:00:00Z"):
        parse_time(text)


def flags(*more: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    replay.add_arguments(parser)
    return parser.parse_args(
        ["--table", "t", "--queue-manager", "http://h:1", "--destination", "d", *more]
    )


def test_an_empty_time_span_is_usage() -> None:
    with pytest.raises(
        ConfigurationError, match="the first moment belongs to the rows, the last does not"
    ):
        Selection.of(flags("--from", "2026-11-22", "--to", "2026-11-22T00:00Z"))
    assert Selection.of(flags("--queue", "Private$\\Orders,a*")).queues == ("private$/orders", "a*")
    with pytest.raises(ConfigurationError, match="count from 0"):
        Selection.of(flags("--version", "-1"))


buckets = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(1, 40), st.integers(0, 90)), max_size=30
).map(
    lambda rows: [
        Bucket("q", "e", queue, n * 10, n * 10 + 9, count, size, n)
        for n, (queue, count, size) in enumerate(rows)
    ]
)


@given(buckets, st.integers(1, 100), st.integers(1, 300))
@settings(max_examples=50)
def test_batches_hold_all_rows_in_order_and_keep_their_limits(
    found: list[Bucket], rows: int, size: int
) -> None:
    batches = list(joined(found, rows, size))
    assert sum(batch.rows for batch in batches) == sum(bucket.rows for bucket in found)
    assert sum(batch.bytes for batch in batches) == sum(bucket.bytes for bucket in found)
    for batch in batches:
        inside = [
            b for b in found if b.queue == batch.queue and batch.first <= b.first <= batch.last
        ]
        assert {b.queue for b in inside} == {batch.queue}
        assert len(inside) == 1 or (batch.rows <= rows and batch.bytes <= size)
    assert [batch.first for batch in batches] == sorted(batch.first for batch in batches)
    assert len({batch.name for batch in batches}) == len(batches)


@given(buckets, buckets)
@settings(max_examples=30)
def test_rows_that_came_later_change_the_last_batch_only(
    before: list[Bucket], more: list[Bucket]
) -> None:
    later = [bucket._replace(first=bucket.first + 1000, last=bucket.last + 1000) for bucket in more]
    first = list(joined(before, 50, 200))
    assert list(joined([*before, *later], 50, 200))[: max(0, len(first) - 1)] == first[:-1]


def test_a_changed_row_changes_name_and_fingerprint() -> None:
    one = Bucket("q", "e", "a", 1, 9, 9, 90, 5)
    [before], [after] = joined([one]), joined([one._replace(fingerprint=6)])
    assert before.name != after.name
    assert before.fingerprint != after.fingerprint
    assert len(before.name) <= 200


def test_the_throttle_keeps_the_rate_and_does_not_make_up_for_a_pause() -> None:
    clock = [100.0]
    throttle = Throttle(
        50, now=lambda: clock[0], sleep=lambda s: clock.__setitem__(0, clock[0] + s)
    )
    for _ in range(5):
        throttle.before(100)
    assert clock[0] == pytest.approx(108.0), "the fifth hundred waits for the four before it"
    clock[0] += 1000
    for _ in range(2):
        throttle.before(100)
    assert clock[0] == pytest.approx(1110.0)
    throttle = Throttle(
        None, now=lambda: clock[0], sleep=lambda s: pytest.fail("no rate, no pause")
    )
    assert throttle.before(10**9)


def test_a_signal_ends_the_longest_pause() -> None:
    clock = [0.0]
    throttle = Throttle(
        0.001, now=lambda: clock[0], sleep=lambda s: clock.__setitem__(0, clock[0] + s)
    )
    assert throttle.before(1)
    assert not throttle.before(1, lambda: clock[0] > 3)
    assert clock[0] <= 4


def test_the_bar_on_a_terminal_and_in_a_log() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    clock = [0.0]
    bar = Bar(2000, screen := Terminal(), now=lambda: clock[0])
    bar.skip(1000)
    clock[0] = 10.0
    bar.add(500)
    assert (
        screen.getvalue().split("\r")[-1]
        == "[" + "#" * 22 + "." * 8 + "]  75%  1,500/2,000 rows  50 rows/s  10 s left"
    )
    assert max(map(len, screen.getvalue().split("\r"))) <= 80
    bar = Bar(100, log := io.StringIO(), now=lambda: clock[0])
    for _ in range(100):
        clock[0] += 0.1
        bar.add(1)
    assert 2 <= len(log.getvalue().splitlines()) <= 4
    assert "100%" in log.getvalue().splitlines()[-1]


def test_notes_survive_and_a_line_that_was_cut_off_is_none(tmp_path: Path) -> None:
    path = tmp_path / "new" / "notes.jsonl"
    done = DoneBatches(path, "mine")
    done.add("b1", "f1")
    with path.open("a") as file:
        file.write('["mine", "b2", "f')
    again = DoneBatches(path, "mine")
    again.add("b3", "f3")
    assert ("b1", "f1") not in DoneBatches(path, "another"), "one file may serve several runs"
    final = DoneBatches(path, "mine")
    assert [
        ("b1", "f1") in final,
        ("b2", "f") in final,
        ("b3", "f3") in final,
        ("b1", "f2") in final,
    ] == [
        True,
        False,
        True,
        False,
    ]


def test_notes_are_of_one_application_destination_and_epoch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    names = {"application": "a", "destination": "d", "queue_manager": "q", "epoch": "e"}
    scopes = {scope_of(**names)} | {scope_of(**{**names, name: "other"}) for name in names}
    assert len(scopes) == 5
    assert all(default_path(scope).is_relative_to(tmp_path) for scope in scopes)


@pytest.mark.parametrize("module", [replay, backfill])
def test_help_teaches(module: object, capsys: pytest.CaptureFixture[str]) -> None:
    """Examples that run as they stand but for names of hosts and paths."""
    with pytest.raises(SystemExit) as ended:
        module.main(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert "examples:" in text
    assert "--yes" in text
    assert max(map(len, text.splitlines())) <= 100
    if module is replay:
        assert "--from T is included, --to T is not" in text
    else:
        assert "*.jsonl" in text


@pytest.mark.parametrize("job", ["ingest", "replay", "backfill"])
def test_the_command_is_the_job(job: str) -> None:
    """Everything but the usage, which begins with the name of the program."""
    shown = [
        subprocess.run(
            [sys.executable, *command, "--help"],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        ).stdout
        for command in (["-m", "srmp_spark.cli", job], [f"jobs/{job}.py"])
    ]
    bodies = [text.partition("\n\n")[2] for text in shown]
    assert bodies[0] == bodies[1] != ""


def test_limits_stay_below_those_of_the_outbox() -> None:
    from srmp_spark.store.outbox import limits

    assert ranges.BATCH_ROWS <= limits.STAGE_ROWS_MAX
    assert ranges.BATCH_BYTES * 2 <= limits.STAGE_BYTES_MAX
