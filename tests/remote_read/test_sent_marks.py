"""Of which messages End was sent, after kill -9 and after a power loss."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from srmp_spark.queue_manager.puller.gateway_side.pulled import PulledKey
from srmp_spark.queue_manager.puller.moving_and_copying import sent_marks
from srmp_spark.queue_manager.puller.moving_and_copying.sent_marks import SentMarks

ONE, TWO, THREE, FOUR = (PulledKey(n, f"{{guid}}\\{n}") for n in (1, 2, 3, 4))


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


@pytest.mark.parametrize(
    "what",
    [
        "another boot",
        "no boot identifier",
        "another directory",
        "no file",
        "cut off",
        "half a mark",
        "zeros",
        "zeros behind",
        "a bit",
        "an earlier build",
    ],
)
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
        data = path.read_bytes()
        broken = {
            "cut off": data[:20], "half a mark": data[:-5], "zeros": bytes(100), "zeros behind": data + bytes(20),
            "a bit": data[:-1] + bytes((data[-1] ^ 1,)), "an earlier build": data[:36] + b"\n" + 5 * data[38:54],
        }  # fmt: skip
        path.write_bytes(broken[what])
    assert SentMarks.open(path, [ONE, TWO], unchanged=unchanged, boot_id=boot).was_sent(TWO)
    assert SentMarks.open(path, [ONE, TWO], boot_id=boot).was_sent(TWO), (
        "killed before it was settled"
    )


def test_an_earlier_build_does_not_believe_a_file_of_this_one(tmp_path: Path, boot: Path):
    """It knew a line feed behind the boot identifier, and marks without a checksum: it would find none of ours."""
    killed_after(tmp_path / "marks", boot, ONE)
    data = (tmp_path / "marks").read_bytes()
    assert data[:36].decode() == boot.read_text().strip()
    assert data[36:37] != b"\n"


class Disk:
    """Takes so many bytes more, and tells at the next write that it is full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room, self.truncates = 1_000_000, True
        write, truncate = os.write, os.ftruncate

        def limited(file: int, data: bytes) -> int:
            if not self.room:
                raise OSError(errno.ENOSPC, "No space left on device")
            taken = write(file, data[: self.room])
            self.room -= taken
            return taken

        def cut(file: int, size: int) -> None:
            if not self.truncates:
                raise OSError(errno.EIO, "Input/output error")
            truncate(file, size)

        monkeypatch.setattr(sent_marks.os, "write", limited)
        monkeypatch.setattr(sent_marks.os, "ftruncate", cut)


@pytest.mark.parametrize("truncates", [True, False])
@pytest.mark.parametrize("room", [1, 19, 20, 30])
def test_a_full_disk_that_takes_a_part_hides_no_mark(
    tmp_path: Path, boot: Path, monkeypatch: pytest.MonkeyPatch, room: int, truncates: bool
):
    """No End leaves, and those that leave later are known to the next process as sent. A message whose End was sent and that
    counts as another reader's would be dropped: the only copy."""
    disk = Disk(monkeypatch)
    marks = SentMarks.open(tmp_path / "marks", [], boot_id=boot)
    marks.sending([ONE])
    disk.room, disk.truncates = room, truncates
    with pytest.raises(OSError, match="No space left"):
        marks.sending([TWO, THREE])
    for known in ([ONE], [ONE, FOUR]):
        (tmp_path / "copy").write_bytes((tmp_path / "marks").read_bytes())
        after = SentMarks.open(tmp_path / "copy", [ONE, TWO, FOUR], boot_id=boot)
        assert all(after.was_sent(key) for key in known)
        disk.room = 1_000_000
        marks.sending([FOUR])
    assert not SentMarks.open(tmp_path / "copy", [ONE, TWO, FOUR], boot_id=boot).was_sent(TWO), (
        "a whole file is believed"
    )


def test_a_write_that_is_cut_short_is_finished(
    tmp_path: Path, boot: Path, monkeypatch: pytest.MonkeyPatch
):
    """A signal, for instance: the rest is written, and only then the End leaves."""
    marks = SentMarks.open(tmp_path / "marks", [], boot_id=boot)
    write = os.write
    monkeypatch.setattr(sent_marks.os, "write", lambda file, data: write(file, data[:7]))
    marks.sending([ONE, TWO])
    again = SentMarks.open(tmp_path / "marks", [ONE, TWO, THREE], boot_id=boot)
    assert [again.was_sent(key) for key in (ONE, TWO, THREE)] == [True, True, False]


def test_the_file_does_not_grow_for_ever(
    tmp_path: Path, boot: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sent_marks, "FORGET_BYTES", 100)
    marks = SentMarks.open(tmp_path / "marks", [], boot_id=boot)
    for n in range(100):
        marks.sending([PulledKey(n, "x")])
        marks.nothing_is_kept()
        assert (tmp_path / "marks").stat().st_size < 200
    marks.sending([ONE])
    assert SentMarks.open(tmp_path / "marks", [ONE], boot_id=boot).was_sent(ONE)
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []
