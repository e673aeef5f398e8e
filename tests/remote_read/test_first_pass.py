"""How long a stream waits for what is in a remote queue, with subscriptions that the test makes up."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from srmp_spark.client.attempts import Attempt, attempt
from srmp_spark.errors import ApiError, RemoteQueueError
from srmp_spark.spark.reading import first_pass
from srmp_spark.spark.reading.first_pass import FirstPass, Subscribed

ENTRY: dict[str, Any] = {
    "host": "h", "to": "private$/q@h", "mode": "move", "removing": False, "pulled": 0, "lag_seconds": None, "last_error": None,
    "failed_seconds": None,
}  # fmt: skip
QUEUE = Subscribed("h", "private$\\q", "private$/q@h", is_made=False)


@pytest.mark.parametrize(
    ("entry", "since", "wanted"),
    [
        ({}, math.inf, Attempt.UNDER_WAY),
        ({"lag_seconds": 1.0}, 2.0, Attempt.COMPLETE),
        ({"lag_seconds": 3.0}, 2.0, Attempt.UNDER_WAY),
        ({"lag_seconds": 3.0, "failed_seconds": 1.0, "last_error": "x"}, 2.0, Attempt.FAILED),
        ({"lag_seconds": 1.0, "failed_seconds": 5.0, "last_error": "x"}, 2.0, Attempt.COMPLETE),
        (
            {"failed_seconds": 5.0, "last_error": "an old one: it is tried again"},
            2.0,
            Attempt.UNDER_WAY,
        ),
        ({"last_error": "our queue is full"}, 2.0, Attempt.HINDERED),
        ({"mode": None, "last_error": "nobody reads it"}, 2.0, Attempt.FAILED),
        ({"removing": True, "lag_seconds": 0.0}, 2.0, Attempt.FAILED),
    ],
)
def test_what_became_of_a_subscription_since_a_moment(
    entry: dict[str, Any], since: float, wanted: Attempt
):
    assert attempt({**ENTRY, **entry}, since) is wanted


class Made:
    """A queue manager whose status is one thing after the other; the last stays."""

    def __init__(self, *entries: dict[str, Any], in_use: bool = False) -> None:
        self._entries = itertools.chain(entries, itertools.repeat(entries[-1]))
        self._in_use = in_use
        self.removed: list[tuple[str, str]] = []

    def status(self) -> dict[str, Any]:
        return {"subscriptions": [{**ENTRY, **next(self._entries)}]}

    def unsubscribe(self, host: str, queue: str, *, unused: bool) -> None:
        assert unused, "never one that has read something"
        if self._in_use:
            raise ApiError(409, "subscription-in-use", "it was read from")
        self.removed.append((host, queue))


class Clock:
    """Time passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(first_pass, "time", clock)
    return clock


def waited(clock: Clock, made: Made, queue: Subscribed = QUEUE) -> float:
    began = clock.now
    FirstPass(made, [queue], began).wait_or_fail()  # type: ignore[arg-type]
    return clock.now - began


def test_rows_that_come_keep_it_waiting_until_the_queue_was_seen_whole(clock: Clock):
    rows = [{"pulled": n} for n in range(2_000)]
    assert waited(clock, Made(*rows, {"pulled": 2_000, "lag_seconds": 0.0})) == pytest.approx(200.0)


def test_a_queue_that_never_gets_empty_is_not_waited_for_for_ever(clock: Clock):
    assert waited(clock, Made(*({"pulled": n} for n in range(10_000)))) == pytest.approx(
        first_pass.PASS_SECONDS, abs=1
    )


def test_what_is_in_the_way_ends_the_wait_and_not_the_query(
    clock: Clock, caplog: pytest.LogCaptureFixture
):
    """Our queue is full: the query is who empties it."""
    assert waited(clock, Made({"last_error": "our queue is full"})) == pytest.approx(
        first_pass.HINDERED_SECONDS, abs=1
    )
    assert "our queue is full" in caplog.text


def test_neither_a_row_nor_a_failure_is_a_failure_in_the_end(clock: Clock):
    with pytest.raises(RemoteQueueError, match="no answer in 60 s"):
        waited(clock, Made({}))


@pytest.mark.parametrize("in_use", [False, True])
@pytest.mark.parametrize("is_made", [False, True])
def test_only_what_this_query_made_and_nobody_used_is_taken_back(
    clock: Clock, is_made: bool, in_use: bool
):
    made = Made(
        {}, {"failed_seconds": 0.0, "last_error": "MQ_ERROR_QUEUE_NOT_FOUND"}, in_use=in_use
    )
    with pytest.raises(
        RemoteQueueError,
        match="was removed" if is_made and not in_use else "stays and is tried again",
    ):
        waited(clock, made, QUEUE._replace(is_made=is_made))
    assert made.removed == ([("h", "private$\\q")] if is_made and not in_use else [])


def test_a_query_that_goes_on_waits_only_for_what_it_has_just_subscribed_to(clock: Clock):
    """Of the others the log has what came; a restart does not wait."""
    for is_made, seconds in ((False, 0.0), (True, first_pass.FIRST_BATCH_SECONDS)):
        began = clock.now
        FirstPass(Made({}), [QUEUE._replace(is_made=is_made)], began).wait_a_little()  # type: ignore[arg-type]
        assert clock.now - began == pytest.approx(seconds, abs=0.5)


def test_a_query_that_goes_on_says_each_trouble_once(
    clock: Clock, caplog: pytest.LogCaptureFixture
):
    failing = {"failed_seconds": 100.0, "last_error": "it is away"}
    watched = FirstPass(Made(failing, failing, {"lag_seconds": 0.0}, failing), [QUEUE], clock.now)  # type: ignore[arg-type]
    for told in (1, 1, 1, 2):  # the third time it is read, and then away again
        watched.tell()
        watched.tell()  # at once: not asked again
        assert caplog.text.count("it is away") == told
        clock.sleep(first_pass.TELL_SECONDS)


def test_a_failure_from_before_is_not_one_of_this_query(clock: Clock):
    """It is tried again at most half a minute later."""
    old = [{"failed_seconds": 20.0 + n / 10, "last_error": "it was away"} for n in range(100)]
    assert waited(clock, Made(*old, {"pulled": 1, "lag_seconds": 0.0})) == pytest.approx(10.0)
