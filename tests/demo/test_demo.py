"""The demo's own judgement: it empties only its own folders, and every wrong figure makes it fail."""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path

import pytest

from tests.kit.demo.console import Console
from tests.kit.demo.results import Direction, InResult, OutResult, closing_table
from tests.kit.demo.run import MARKER, fresh
from tests.kit.demo.two_ends import judge as judge_out
from tests.kit.demo.way_in import PLAN
from tests.kit.foreign.ledger import Entry, Landed, Ledger
from tests.kit.foreign.verdict import judge
from tests.kit.oracle import Verdict

QM = "caf195ea-615c-4264-ae08-11a4e60194c0"


def a_run(messages: int = 3) -> tuple[InResult, list[Landed]]:
    """The way in of a demo in which everything went well, and its rows."""
    ledger = Ledger()
    rows = []
    for number in range(1, messages + 1):
        entry = Entry(
            key=(QM, number),
            queue="private$/orders",
            kind="durable",
            body="b",
            first_sent_at=1.0,
            acknowledged_at=2.0,
        )
        ledger.entries[entry.key] = entry
        rows.append(Landed("private$/orders", "e", number, QM, number, "b", None, None))
    kills = [victim for _, victim in PLAN]
    return InResult(messages, ledger, kills, len(PLAN), judge(ledger, rows)), rows


def out_well() -> OutResult:
    """The way out of a demo in which everything went well."""
    return OutResult(
        wanted=5, back=Direction(5, 5, 5), replayed=Direction(9, 9, 9), replay_new=(9, 0), replay_known=(0, 9), receipts=4,
        arrived_at_kill=2, faults={"lost reply": 1},
    )  # fmt: skip


def test_all_well_is_told_so(capsys: pytest.CaptureFixture[str]) -> None:
    way_in, _ = a_run()
    assert closing_table(way_in, out_well())
    printed = capsys.readouterr().out
    assert "WRONG" not in printed
    for name in ("sent", "acknowledged", "landed", "lost", "doubled", "out of order", "receipts"):
        assert f"  {name} " in printed


def test_every_wrong_figure_fails_it(capsys: pytest.CaptureFixture[str]) -> None:
    def table(change: str) -> str:
        way_in, rows = a_run()
        if change == "lost":
            rows.pop()
        elif change == "doubled":
            rows.append(rows[0]._replace(sequence=4))
        elif change == "never sent, or altered":
            rows[0] = rows[0]._replace(body="another")
        elif change == "receipts":
            way_in.ledger.entries[QM, 1].wants_receipt = True
        elif change == "acknowledged":
            way_in.ledger.entries[QM, 1].acknowledged_at = None
        elif change == "refused":
            way_in.ledger.entries[QM, 1].refused = 400
        elif change == "out of order":
            way_in.ledger.entries[
                QM, 1
            ].first_sent_at = 3.0  # sent when the others were answered, and landed before them
        elif change == "killed with -9":
            way_in.kills.pop()
        way_in.verdict = judge(way_in.ledger, rows)
        assert not closing_table(way_in, out_well())
        return capsys.readouterr().out

    for change in (
        "lost", "doubled", "out of order", "never sent, or altered", "receipts", "acknowledged", "refused", "killed with -9",
    ):  # fmt: skip
        wrong = [line for line in table(change).splitlines() if "WRONG" in line]
        assert any(line.startswith(f"  {change} ") for line in wrong), (change, wrong)


@pytest.mark.parametrize(
    ("line", "change"),
    [
        ("sent back", {"wanted": 6}),
        ("sent back", {"wanted": 0, "back": Direction()}),
        ("replayed, an hour", {"replay_new": (9, 1)}),
        ("replayed, an hour", {"replay_new": (8, 0)}),
        ("known at the second", {"replay_known": (0, 8)}),
        ("acknowledged", {"back": Direction(5, 5, 4)}),
        ("arrived", {"replayed": Direction(9, 8, 9)}),
        ("lost", {"back": Direction(5, 5, 5, Verdict(lost=["x"]))}),
        ("doubled", {"replayed": Direction(9, 9, 9, Verdict(doubled=["x"]))}),
        ("out of order", {"back": Direction(5, 5, 5, Verdict(disordered=["x"]))}),
        ("never sent, or altered", {"replayed": Direction(9, 9, 9, Verdict(unexpected=["x"]))}),
        ("stream receipts", {"receipts": 0}),
        ("killed with -9", {"arrived_at_kill": None}),
        ("killed with -9", {"arrived_at_kill": 5}),
        ("faults injected", {"faults": {}}),
    ],
)
def test_every_wrong_figure_of_the_way_out_fails_it(
    capsys: pytest.CaptureFixture[str], line: str, change: dict[str, object]
) -> None:
    way_in, _ = a_run()
    assert not closing_table(way_in, dataclasses.replace(out_well(), **change))
    wrong = [text for text in capsys.readouterr().out.splitlines() if "WRONG" in text]
    assert any(text.startswith(f"  {line} ") for text in wrong), wrong


def test_the_way_out_is_judged_by_bodies_and_their_copies() -> None:
    sent = [("s", b"a"), ("s", b"b"), ("s", b"a"), ("t", b"c")]
    assert judge_out(sent, [b"c", b"a", b"b", b"a"]).clean, "c is of another order"
    assert judge_out(sent, [b"a", b"b", b"c"]).lost == [
        judge_out(sent, [b"a", b"b", b"a", b"a", b"c"]).doubled[0]
    ]
    assert len(judge_out(sent, [b"b", b"a", b"a", b"c"]).disordered) == 1
    assert len(judge_out(sent, [b"a", b"b", b"a", b"c", b"A"]).unexpected) == 1


def test_only_a_folder_of_an_earlier_demo_is_emptied(tmp_path: Path) -> None:
    mine = tmp_path / "demo-data"
    (fresh(mine) / "old").touch()
    assert [path.name for path in fresh(mine).iterdir()] == [MARKER]
    foreign = tmp_path / "precious"
    foreign.mkdir()
    (foreign / "file").touch()
    with pytest.raises(SystemExit, match="not from a demo"):
        fresh(foreign)
    assert (foreign / "file").exists()


def test_a_long_step_says_what_it_waits_for(capfd: pytest.CaptureFixture[str]) -> None:
    """Also while a step has sent the output of its children elsewhere, as the start of a JVM does."""
    printed = ""

    def shows(text: str) -> bool:
        nonlocal printed
        end = time.monotonic() + 20
        while text not in printed and time.monotonic() < end:
            time.sleep(0.02)
            printed += capfd.readouterr().out
        return text in printed

    arrived = 0
    with Console(quiet_seconds=0.1) as console:
        console.say("it begins")
        assert shows("it begins")
        kept, null = os.dup(1), os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        console.wait_for("a JVM starts")
        assert shows("waiting: a JVM starts (")
        os.dup2(kept, 1)
        console.wait_for(lambda: f"{arrived} have arrived")
        assert shows("waiting: 0 have arrived")
        arrived = 7
        assert shows("waiting: 7 have arrived"), "asked again for each line"
    os.close(kept)
    os.close(null)
