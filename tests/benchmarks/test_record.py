"""The figures that were measured last: one file, one table in the page, and the run that each figure is of."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.common import Figure
from benchmarks.record import BEGIN, END, PAGE, Record, Run
from benchmarks.registry import ALL

ROOT = Path(__file__).resolve().parents[2]
EVERY_FIGURE = [figure for benchmark in ALL.values() for figure in benchmark.figures]
RUN = Run(
    commit="0123abcd",
    began="2026-11-26 15:00",
    rounds=5,
    cores=2,
    python="3.11.2",
    load="0.1 to 2.5",
)
LATER = Run(
    commit="89abcdef+",
    began="2026-11-27 09:30",
    rounds=3,
    cores=2,
    python="3.11.2",
    load="0.2 to 1",
)


def figure(
    name: str = "send_eoio", value: float | None = 8123.4, reference: float | None = 15000.0
) -> Figure:
    ratio = None if reference is None or value is None else value / reference
    return Figure(name=name, value=value, unit="messages/s", reference=reference, reference_name="a loop", ratio=ratio,
                  target="ratio >= 0.5", ok=None if ratio is None else ratio >= 0.5)  # fmt: skip


def test_the_table_of_the_page_is_that_of_the_file() -> None:
    assert Record.read().section() in PAGE.read_text(), "python -m benchmarks --write writes both"


def test_every_figure_is_in_the_table_or_named_as_never_measured() -> None:
    section = re.search(f"{re.escape(BEGIN)}(.*){re.escape(END)}", PAGE.read_text(), re.DOTALL)
    assert section is not None
    assert [name for name in EVERY_FIGURE if section[1].count(f"`{name}`") != 1] == []
    assert set(Record.read().figures) <= set(EVERY_FIGURE)
    assert len(set(EVERY_FIGURE)) == len(EVERY_FIGURE)


def test_a_figure_names_its_commit_its_day_and_its_machine() -> None:
    record = Record({}, {})
    record.put([figure()], RUN)
    record.put([figure("ack_p50_1")], LATER)
    table = record.table()
    assert (
        "| `send_eoio` | 8,123 messages/s | a loop 15,000 messages/s | 0.5416 | ratio >= "
        "0.5 | met | 1 |" in table
    )
    assert re.search(r"`ack_p50_1` .* 2 \|", table)
    assert "1. 0123abcd, 2026-11-26, medians of 5, 2 cores, load 0.1 to 2.5, Python 3.11.2" in table
    assert "2. 89abcdef+, 2026-11-27, medians of 3" in table
    assert "Not measured yet: `decode_windows`" in table


@pytest.mark.parametrize("worse", [figure(value=None), figure(reference=None)])
def test_what_a_run_cannot_measure_keeps_its_earlier_figure(worse: Figure) -> None:
    record = Record({}, {})
    record.put([figure()], RUN)
    record.put([worse], LATER)
    assert record.figures == {"send_eoio": (figure(), RUN.began)}
    assert list(record.runs) == [RUN.began], "a run without a figure is forgotten"
    record.put([figure(value=9000.0)], LATER)
    assert list(record.runs) == [LATER.began]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    page, file = tmp_path / "page.md", tmp_path / "figures.json"
    page.write_text(f"before\n{BEGIN}\nan old table\n{END}\nafter\n")
    record = Record({}, {})
    record.put([figure(value=0.5, reference=None)], RUN)
    record.write(file, page)
    again = Record.read(file)
    assert (again.figures, again.runs) == (record.figures, record.runs)
    assert page.read_text() == f"before\n{record.section()}\nafter\n"


def test_the_commit_is_marked_when_files_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "README.md").write_text("the page")
    (tmp_path / "code.py").write_text("1")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "first")
    monkeypatch.setattr("benchmarks.record.ROOT", tmp_path)
    monkeypatch.setattr("benchmarks.record.PAGE", tmp_path / "benchmarks" / "README.md")
    monkeypatch.setattr("benchmarks.record.FILE", tmp_path / "benchmarks" / "figures.json")
    commit = git("rev-parse", "--short=8", "HEAD")
    (tmp_path / "benchmarks" / "README.md").write_text("the page, written by a run")
    assert Run.begin(5).commit == commit
    (tmp_path / "code.py").write_text("2")
    assert Run.begin(5).commit == f"{commit}+"


@pytest.mark.parametrize("other", ["--quick", "--no-peers"])
def test_a_run_that_judges_nothing_is_not_written(other: str) -> None:
    command = [sys.executable, "-m", "benchmarks", "--write", other]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2
    assert "--write records figures" in done.stderr
