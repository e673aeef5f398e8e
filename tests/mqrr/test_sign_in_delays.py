"""How long a sign-in must wait after others failed: :mod:`srmp_spark.signing_in.delays`."""

from __future__ import annotations

from srmp_spark.signing_in.delays import (
    DELAY_MAX_S,
    ENTRIES_MAX,
    FORGET_S,
    FREE_OF_ACCOUNT,
    FREE_OF_ADDRESS,
    KNOWN_MAX,
    SignInDelays,
)

HERE, THERE = "192.0.2.1", "192.0.2.2"
READER = ["EXAMPLE\\reader"]


def guess_for(delays: SignInDelays, seconds: float, address: str = HERE) -> int:
    """How many guesses are judged of one that tries as often as it can."""
    now, judged = 1_000.0, 0
    while now < 1_000.0 + seconds:
        if not delays.seconds_to_wait(address, READER, now):
            judged += 1
            delays.failed(address, READER, now)
        now += 0.5
    return judged


def test_a_few_mistakes_are_free_and_then_each_doubles_the_wait():
    delays = SignInDelays()
    waits = []
    now = 1_000.0
    for _ in range(FREE_OF_ACCOUNT + 8):
        delays.failed(HERE, READER, now)
        waits.append(delays.seconds_to_wait(HERE, READER, now))
        now += waits[-1]
    assert waits[: FREE_OF_ACCOUNT - 1] == [0.0] * (FREE_OF_ACCOUNT - 1)
    assert waits[FREE_OF_ACCOUNT - 1 :] == [1, 2, 4, 8, 16, 32, *[DELAY_MAX_S] * 3]


def test_one_who_guesses_for_an_hour_is_judged_about_sixty_times():
    assert guess_for(SignInDelays(), 3_600) < 75


def test_another_address_does_not_help_to_guess_the_same_account():
    delays = SignInDelays()
    assert guess_for(delays, 300) > 5
    assert guess_for(delays, 30, THERE) <= 1


def test_another_account_does_not_help_the_same_address():
    delays = SignInDelays()
    for number in range(FREE_OF_ADDRESS):
        assert not delays.seconds_to_wait(HERE, [f"A\\user{number}"], 1_000.0)
        delays.failed(HERE, [f"A\\user{number}"], 1_000.0)
    assert delays.seconds_to_wait(HERE, ["A\\yet another"], 1_000.0) > 0


def test_failures_of_others_do_not_lock_out_who_has_signed_in_from_there():
    delays = SignInDelays()
    delays.succeeded(THERE, READER[0])
    guess_for(delays, 300)
    assert delays.seconds_to_wait(HERE, READER, 1_300.0) > 0
    assert delays.seconds_to_wait(THERE, READER, 1_300.0) == 0
    assert guess_for(delays, 3_600, THERE) < 75  # there too one guesses as slowly


def test_failures_are_forgotten():
    delays = SignInDelays()
    guess_for(delays, 60)
    assert delays.seconds_to_wait(HERE, READER, 1_060.0 + FORGET_S + 1) == 0
    delays.failed(HERE, READER, 1_060.0 + FORGET_S + 1)
    assert delays.seconds_to_wait(HERE, READER, 1_060.0 + FORGET_S + 1) == 0


def test_the_tables_are_bounded_and_names_that_are_none_fill_nothing():
    delays = SignInDelays()
    for number in range(1_000):
        delays.failed(HERE, [], 1_000.0 + number)
    assert len(delays) == 1
    for number in range(ENTRIES_MAX + 10):
        delays.failed(f"2001:db8:{number:x}::/64", [], 2_000.0)
    assert len(delays) == ENTRIES_MAX
    for number in range(KNOWN_MAX + 10):
        delays.succeeded(f"2001:db8:{number:x}::/64", READER[0])
    assert len(delays._known) == KNOWN_MAX
