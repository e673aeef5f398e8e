"""How often and when messages left: ``attempts``, ``first_sent_at`` and ``last_sent_at`` of the state tables."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from srmp_spark.queue_manager.sender.reporting.sendings import RUNS_MAX, SENT_TOGETHER_US, Sendings
from srmp_spark.srmp.sending.outgoing_effects import OutgoingChanges, QueueKey, SerialRun
from srmp_spark.store.outbox.messages.live import SentRun

KEY = QueueKey("http://a.example/msmq/private$/orders", "stream")
S = 1_000_000


def changes(*finished: tuple[int, int]) -> OutgoingChanges:
    return OutgoingChanges([], [SerialRun(KEY, *run) for run in finished], [], [], 0, 1)


def runs(sendings: Sendings) -> list[SentRun]:
    run = SerialRun(KEY, 1, 10**9)
    return list(sendings.of(changes((1, 10**9)))[run])


def test_what_leaves_in_one_second_is_one_run() -> None:
    sendings = Sendings()
    for serial in range(1, 10_001):
        sendings.note(KEY, serial, serial * 100)
    assert runs(sendings) == [SentRun(1, 10_000, 1, 100, 100)]


def test_a_second_pass_counts_again_and_keeps_the_first_time() -> None:
    sendings = Sendings()
    for serial in range(1, 11):
        sendings.note(KEY, serial, 0)
    for serial in range(4, 7):
        sendings.note(KEY, serial, 30 * S)
    assert runs(sendings) == [
        SentRun(1, 3, 1, 0, 0),
        SentRun(4, 6, 2, 0, 30 * S),
        SentRun(7, 10, 1, 0, 0),
    ]


def test_what_is_finished_is_forgotten() -> None:
    sendings = Sendings()
    for serial in range(1, 11):
        sendings.note(KEY, serial, 0)
    sendings.forget(changes((1, 3), (5, 5)))
    assert runs(sendings) == [SentRun(4, 4, 1, 0, 0), SentRun(6, 10, 1, 0, 0)]
    sendings.forget(changes((1, 10)))
    assert runs(sendings) == []


def test_memory_is_limited() -> None:
    sendings = Sendings()
    for serial in range(1, RUNS_MAX + 11):
        sendings.note(KEY, serial, serial * SENT_TOGETHER_US)
    assert len(runs(sendings)) == RUNS_MAX
    assert runs(sendings)[0].first == 11


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("send"), st.integers(1, 12)),
            st.tuples(st.just("end"), st.integers(1, 12)),
        )
    )
)
def test_runs_say_what_a_counter_per_message_says(steps: list[tuple[str, int]]) -> None:
    sendings, model, now = Sendings(), dict[int, tuple[int, int]](), 0
    for step, serial in steps:
        now += 2 * S
        if step == "send":
            attempts, first = model.get(serial, (0, now))
            model[serial] = attempts + 1, first
            sendings.note(KEY, serial, now)
        else:
            sendings.forget(changes((1, serial)))
            model = {number: facts for number, facts in model.items() if number > serial}
    found = {
        serial: (run.attempts, run.first_sent_at)
        for run in runs(sendings)
        for serial in range(run.first, run.last + 1)
    }
    assert found == model
    ordered = runs(sendings)
    assert all(one.last < two.first for one, two in itertools.pairwise(ordered))
