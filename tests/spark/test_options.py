"""INTERFACE.md section 4, options: every wrong one is an error that says what to write instead."""

from __future__ import annotations

import pytest

from srmp_spark.errors import ConfigurationError
from srmp_spark.queue_manager.configuration.options import OPTIONS
from srmp_spark.spark.settings.option_values import duration_s
from srmp_spark.spark.settings.options import SERVE_OPTIONS, check_batch, check_stream, parse

BASE = {"queueManager": "http://127.0.0.1:8081", "queue": "private$/orders"}


def test_the_least_that_is_needed() -> None:
    options = parse(BASE)
    assert options.queue_managers == ("http://127.0.0.1:8081",)
    assert options.queues == ("private$/orders",)
    assert options.consumer == "default"
    assert options.starting.keyword == "unreceived"
    assert options.fail_on_data_loss
    assert not options.include_envelope
    assert (
        options.max_rows is options.max_bytes is options.min_partitions is options.read_mode is None
    )


def test_names_of_options_and_queues_have_no_case() -> None:
    options = parse(
        {
            "QUEUEMANAGER": "http://a:1,http://b:2/",
            "Queue": r"PRIVATE$\Orders, payments,private$/in*",
            "READMODE": "Peek",
        }
    )
    assert options.queue_managers == ("http://a:1", "http://b:2")
    assert options.queues == ("private$/orders", "payments", "private$/in*")
    assert options.read_mode == "peek"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"maxOffsetPerTrigger": "1"}, "did you mean 'maxOffsetsPerTrigger'?"),
        ({"subscribe": "x"}, "unknown option 'subscribe'"),
        ({"path": "/x"}, "has no path"),
        ({"queue": ""}, "option queue is missing"),
        ({"queue": "a,,b"}, "an empty name"),
        ({"queue": "a/b/c"}, "not a queue name"),
        ({"queueManager": ""}, "option queueManager is missing"),
        ({"queueManager": "127.0.0.1:8081"}, "not an http or https URL"),
        ({"queueManager": "http://u:p@127.0.0.1:8081"}, "not HOST or HOST:PORT"),
        ({"queueManager": "http://127.0.0.1:8081/v1"}, "has a path"),
        ({"queueManager": "http://a:1,http://a:1/"}, "one URL twice"),
        ({"dataDir": "/d"}, "exclude each other"),
        ({"listen": "127.0.0.1:80"}, "add dataDir"),
        ({"readMode": "recieve"}, "did you mean 'receive'?"),
        ({"failOnDataLoss": "no"}, "expected true or false"),
        ({"queueManagerTimeout": "0s"}, "more than 0 and at most 1d"),
        ({"queueManagerTimeout": "25h"}, "more than 0 and at most 1d"),
        ({"queueManagerTimeout": "soon"}, "is no duration"),
        ({"includeEnvelope": "1"}, "expected true or false"),
        ({"maxOffsetsPerTrigger": "0"}, "above 0"),
        ({"maxBytesPerTrigger": "1g"}, "above 0"),
        ({"minPartitions": "-1"}, "above 0"),
        ({"consumer": "a b"}, "is no name"),
        ({"consumer": "c" * 101}, "1 to 100 characters"),
        ({"startingOffsets": "earlyest"}, "did you mean 'earliest'?"),
        ({"startingOffsets": "{"}, "no JSON"),
        ({"startingOffsets": "{}"}, "names no queue"),
        ({"startingOffsets": '{"private$/orders": "1"}'}, "whole number"),
        ({"startingOffsets": '{"private$/orders": 1, "PRIVATE$/orders": 2}'}, "twice"),
        ({"startingOffsets": "latest", "startingTimestamp": "0"}, "exclude each other"),
        ({"endingOffsets": "latest", "endingTimestamp": "0"}, "exclude each other"),
        ({"startingTimestamp": "yesterday"}, "is no time"),
        (
            {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"},
            "is more than maxOffsetsPerTrigger",
        ),
        ({"maxTriggerDelay": "5m"}, "no effect without minOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": "5", "maxTriggerDelay": "soon"}, "is no duration"),
        (
            {"minOffsetsPerTrigger": "5", "maxTriggerDelay": "10 parsecs"},
            "for example 500ms, 30s, 15m, 2h, 1d, or 10 seconds",
        ),
        ({"minOffsetsPerTrigger": "5", "maxTriggerDelay": "1 month"}, "is no duration"),
        ({"minOffsetsPerTrigger": "5", "maxTriggerDelay": "-5s"}, "is no duration"),
        ({"startingTimestamp": '{"private$/orders": "yesterday"}'}, "is no time"),
        ({"endingTimestamp": '{"private$/orders": null}'}, "needs a time, got None"),
        ({"startingOffsets": '{"private$/a": 1, "http://qm:1": {"private$/a": 1}}'}, "not both"),
        (
            {"startingOffsets": '{"the first": {"private$/a": 1}}'},
            "neither the GUID of a queue manager",
        ),
        ({"startingOffsets": '{"http://qm:1": {}}'}, "names no queue"),
        ({"startingTimestamp": "2026-11-22T08:00:00"}, "no time zone"),
        ({"endingOffsets": "earliest"}, "is no end"),
        ({"endingOffsets": '{"private$/orders": -2}'}, "whole number"),
    ],
)
def test_what_is_wrong_is_said(changes: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        parse({**BASE, **changes})
    assert text in str(error.value)


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("0", 0),
        ("1790000000123", 1_790_000_000_123_000),
        ("1970-01-01T00:00:01Z", 1_000_000),
        ("1970-01-01T01:00:00.000001+01:00", 1),
        ("2026-11-22T08:00:00.123456Z", 1_795_334_400_123_456),
    ],
)
def test_a_starting_timestamp_is_kafkas_milliseconds_or_rfc_3339(
    text: str, microseconds: int
) -> None:
    assert parse({**BASE, "startingTimestamp": text}).starting.timestamp_us == microseconds


def test_an_embedded_queue_manager_takes_the_flags_of_serve() -> None:
    options = parse(
        {
            "dataDir": "/d",
            "listen": "127.0.0.1:0",
            "queues": "orders:transactional, private$/in, a:b",
            "allowUrl": "http://a:*,http://b",
            "stateInterval": "2",
        }
    )
    assert options.queues == ("orders", "private$/in", "a:b"), (
        "read what is served, unless queue says otherwise"
    )
    assert options.serve_flags == (
        ("listen", "127.0.0.1:0"),
        ("queue", "orders:transactional"),
        ("queue", "private$/in"),
        ("queue", "a:b"),
        ("allow-url", "http://a:*"),
        ("allow-url", "http://b"),
        ("state-interval", "2"),
    )


def test_who_joins_an_embedded_queue_manager_names_the_queue_only() -> None:
    options = parse({"dataDir": "/d", "queue": "orders"})
    assert (options.data_dir, options.serve_flags, options.queues) == ("/d", (), ("orders",))
    with pytest.raises(ConfigurationError, match="option queue is missing"):
        parse({"dataDir": "/d"})


def test_every_flag_of_serve_is_an_option() -> None:
    """A flag that `serve` learns must be reachable from Spark; those left out are set by the source itself."""
    flags = {option.key.replace("_", "-") for option in OPTIONS} | {"config"}
    assert flags - set(SERVE_OPTIONS.values()) == {"data-dir", "exit-when-unused"}
    assert set(SERVE_OPTIONS.values()) <= flags


def test_the_token_stands_in_no_repr(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "geheim" not in repr(parse({**BASE, "token": "geheim"}))
    monkeypatch.setenv("SRMP_SPARK_TOKEN", "from the environment")
    assert parse(BASE).token == "from the environment"


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "maxBytesPerTrigger"])
def test_a_batch_has_no_triggers(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} has no effect"):
        check_batch(parse({**BASE, name: "5"}))


def test_a_batch_only_peeks() -> None:
    check_batch(parse({**BASE, "readMode": "peek"}))
    with pytest.raises(ConfigurationError, match="only peeks"):
        check_batch(parse({**BASE, "readMode": "receive"}))


def test_a_batch_cannot_begin_at_the_end() -> None:
    for latest in ("latest", '{"private$/orders": -1}'):
        with pytest.raises(ConfigurationError, match="read nothing"):
            check_batch(parse({**BASE, "startingOffsets": latest}))


def test_a_stream_has_no_end() -> None:
    with pytest.raises(ConfigurationError, match="endingOffsets has no effect"):
        check_stream(parse({**BASE, "endingOffsets": "latest"}))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5), ("10s", 10), ("15m", 900), ("15min", 900), ("2h", 7200), ("1d", 86400), ("900000", 900),
        ("250us", 0.00025),
        ("10 seconds", 10), ("10  SECONDS", 10), ("1 second", 1), ("1 minute 30 seconds", 90), ("interval 2 hours", 7200),
        ("10seconds", 10), ("1 week", 604800),
    ],
)  # fmt: skip
def test_a_duration_is_understood_as_spark_writes_it(text: str, seconds: float) -> None:
    """As options (``JavaUtils.timeStringAsMs``) and as the text of a trigger."""
    assert duration_s("maxTriggerDelay", text) == pytest.approx(seconds)
