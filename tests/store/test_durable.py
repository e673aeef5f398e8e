"""Files that a power loss does not take, and what an error leaves of them: nothing."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from srmp_spark.store.database import durable
from srmp_spark.store.database.durable import write_durably


def test_a_file_is_whole_and_alone_in_its_folder(tmp_path: Path) -> None:
    write_durably(tmp_path / "mark", b"1")
    write_durably(tmp_path / "mark", b"22")
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("mark", b"22")]


def test_a_full_disk_leaves_the_old_file_and_no_half_of_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_durably(tmp_path / "mark", b"old")

    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, "no space left on device", str(path))

    monkeypatch.setattr(durable, "sync_file", full)
    with pytest.raises(OSError, match="no space left"):
        write_durably(tmp_path / "mark", b"new")
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("mark", b"old")]
