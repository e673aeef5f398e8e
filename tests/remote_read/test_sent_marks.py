"""Of which messages End was sent, after kill -9 and after a power loss."""

from __future__ import annotations

from pathlib import Path

import pytest

from srmp_spark.queue_manager.puller import sent_marks
from srmp_spark.queue_manager.puller.pulled import PulledKey
from srmp_spark.queue_manager.puller.sent_marks import SentMarks

ONE, TWO, THREE = (PulledKey(n, f"{{guid}}\\{n}") for n in (1, 2, 3))


@pytest.fixture
def boot(tmp_path: Path) -> Path:
    (tmp_path / "boot").write_text("11223344-5566-7788-99aa-bbccddeeff00\n")
    return tmp_path / "boot"


def killed_after(path: Path, boot: Path, *keys: PulledKey) -> None:
    marks = SentMarks.open(path, [], boot_id=boot)
    marks.sending(keys)  # never closed: what a kill leaves
    marks.sending(())


def test_a_killed_process_tells_the_next_one(tmp_path: Path, boot: Path):
    killed_after(tmp_path / "marks", boot, ONE, TWO)
    for _ in range(2):  # and that one, killed before it did anything, the one after it
        marks = SentMarks.open(tmp_path / "marks", [ONE, THREE], boot_id=boot)
        assert [marks.was_sent(key) for key in (ONE, THREE)] == [True, False]


@pytest.mark.parametrize("what", ["another boot", "no boot identifier", "another directory", "no file", "cut off", "zeros"])
def test_what_nobody_knows_counts_as_sent_now_and_later(tmp_path: Path, boot: Path, what: str):
    path, unchanged = tmp_path / "marks", True
    killed_after(path, boot, ONE)
    if what == "another boot":
        boot.write_text("00000000-5566-7788-99aa-bbccddeeff00\n")
    elif what == "no boot identifier":
        boot.unlink()
    elif what == "another directory":
        unchanged = False
    elif what == "no file":
        path.unlink()
    else:
        path.write_bytes(bytes(100) if what == "zeros" else path.read_bytes()[:20])
    assert SentMarks.open(path, [ONE, TWO], unchanged=unchanged, boot_id=boot).was_sent(TWO)
    assert SentMarks.open(path, [ONE, TWO], boot_id=boot).was_sent(TWO), "killed before it was settled"


def test_half_a_mark_is_none(tmp_path: Path, boot: Path):
    """Its End was not sent: that comes after the whole write."""
    killed_after(tmp_path / "marks", boot, ONE, TWO)
    data = (tmp_path / "marks").read_bytes()
    (tmp_path / "marks").write_bytes(data[:-5])
    marks = SentMarks.open(tmp_path / "marks", [ONE, TWO], boot_id=boot)
    assert [marks.was_sent(key) for key in (ONE, TWO)] == [True, False]


def test_the_file_does_not_grow_for_ever(tmp_path: Path, boot: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sent_marks, "FORGET_BYTES", 100)
    marks = SentMarks.open(tmp_path / "marks", [], boot_id=boot)
    for n in range(100):
        marks.sending([PulledKey(n, "x")])
        marks.nothing_is_kept()
        assert (tmp_path / "marks").stat().st_size < 200
    marks.sending([ONE])
    assert SentMarks.open(tmp_path / "marks", [ONE], boot_id=boot).was_sent(ONE)
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []
