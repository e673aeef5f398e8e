"""The demo's own judgement: it empties only its own folders, and every wrong figure makes it fail."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from srmp_spark.testing.foreign.ledger import Entry, Landed, Ledger
from srmp_spark.testing.foreign.verdict import judge

QM = "caf195ea-615c-4264-ae08-11a4e60194c0"


@pytest.fixture(scope="module")
def job() -> ModuleType:
    path = Path(__file__).parents[2] / "jobs" / "demo.py"
    spec = importlib.util.spec_from_file_location("demo_job", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["demo_job"] = module
    spec.loader.exec_module(module)
    return module


def a_run(job: ModuleType, tmp_path: Path, messages: int = 3) -> tuple[object, list[Landed]]:
    """A demo in which everything went well, and its rows."""
    demo = job.Demo(tmp_path, messages, seed=1)
    demo.ledger = Ledger()
    demo.kills = ["queue manager", "Spark query", "queue manager"]
    rows = []
    for number in range(1, messages + 1):
        entry = Entry(
            key=(QM, number), queue="private$/orders", kind="durable", body="b", first_sent_at=1.0, acknowledged_at=2.0
        )
        demo.ledger.entries[entry.key] = entry
        rows.append(Landed("private$/orders", "e", number, QM, number, "b", None, None))
    return demo, rows


def test_all_well_is_told_so(job: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo, rows = a_run(job, tmp_path)
    assert job.closing_table(demo, judge(demo.ledger, rows))
    printed = capsys.readouterr().out
    assert "WRONG" not in printed
    for name in ("sent", "acknowledged", "landed", "lost", "doubled", "out of order", "receipts"):
        assert f"  {name} " in printed


def test_every_wrong_figure_fails_it(job: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def table(change: str) -> str:
        demo, rows = a_run(job, tmp_path / change.replace(" ", "-"))
        if change == "lost":
            rows.pop()
        elif change == "doubled":
            rows.append(rows[0]._replace(sequence=4))
        elif change == "never sent, or altered":
            rows[0] = rows[0]._replace(body="another")
        elif change == "receipts":
            demo.ledger.entries[QM, 1].wants_receipt = True
        elif change == "acknowledged":
            demo.ledger.entries[QM, 1].acknowledged_at = None
        elif change == "refused":
            demo.ledger.entries[QM, 1].refused = 400
        elif change == "out of order":
            demo.ledger.entries[QM, 1].first_sent_at = 3.0  # sent when the others were answered, and landed before them
        elif change == "killed with -9":
            demo.kills.pop()
        assert not job.closing_table(demo, judge(demo.ledger, rows))
        return capsys.readouterr().out

    for change in (
        "lost", "doubled", "out of order", "never sent, or altered", "receipts", "acknowledged", "refused", "killed with -9",
    ):  # fmt: skip
        wrong = [line for line in table(change).splitlines() if "WRONG" in line]
        assert any(line.startswith(f"  {change} ") for line in wrong), (change, wrong)


def test_only_a_folder_of_an_earlier_demo_is_emptied(job: ModuleType, tmp_path: Path) -> None:
    mine = tmp_path / "demo-data"
    (job.fresh(mine) / "old").touch()
    assert [path.name for path in job.fresh(mine).iterdir()] == [job.MARKER]
    foreign = tmp_path / "precious"
    foreign.mkdir()
    (foreign / "file").touch()
    with pytest.raises(SystemExit, match="not from a demo"):
        job.fresh(foreign)
    assert (foreign / "file").exists()
