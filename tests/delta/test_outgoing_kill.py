"""Killed anywhere: the next publisher of sending shows each message that waits once, and each dead letter once."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from outgoing_kit import Sending
from test_publisher_kill import STEPS, Killed, dying_at

from srmp_spark.store.delta.outgoing import outgoing_layout


@pytest.mark.parametrize(
    ("owner", "name"), STEPS, ids=lambda value: getattr(value, "__name__", value)
)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_every_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, after: bool
) -> None:
    monkeypatch.setattr(outgoing_layout, "FILE_ROWS", 2)
    monkeypatch.setattr(outgoing_layout, "COMMIT_BYTES", 12)  # a commit for every few rows
    sending = Sending(tmp_path)
    sending.put(3)
    sending.publisher().publish_once()
    dead: list[bytes] = []
    killed = 0
    serial = 1
    known = set(sending.bodies())
    for nth in itertools.count(1):
        dead.append(min(sending.waiting(), key=lambda body: tuple(map(int, body.split(b".")))))
        sending.bury(serial, serial)
        sending.put(3, journal=True)
        serial += 1
        publisher = sending.publisher()
        try:
            with dying_at(monkeypatch, owner, name, nth, after=after):
                publisher.publish_once()
        except Killed:
            killed += 1
        else:
            break
        bodies = sending.bodies()
        assert len(bodies) == len(set(bodies)), "no version shows a message twice"
        seen = set(bodies) | set(sending.bodies("dead_letter_queue"))
        assert known <= seen, "what was shown once is shown until its end is shown"
        known = set(bodies)
    assert killed >= 1, "the step was never reached: the sweep proves nothing"
    sending.publisher().publish_once()
    assert sending.bodies() == sorted(sending.waiting())
    assert sending.bodies("dead_letter_queue") == sorted(dead)
