"""Archives of modules with their compiled files: Python takes those, and shows the source in a traceback."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from tests.kit.bytecode import add_bytecode


def test_a_worker_takes_the_compiled_file_and_shows_the_source(tmp_path: Path) -> None:
    archive = tmp_path / "package.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as written:
        written.writestr("package/__init__.py", "")
        written.writestr("package/module.py", "def fail():\n    raise KeyError('here')\n")
        written.writestr("package/data.txt", "as it is")
    assert add_bytecode(archive) == 2
    assert add_bytecode(archive) == 0, "they are there already"
    code = (
        "import traceback, package.module\nprint(package.__file__, package.module.__file__)\n"
        "try: package.module.fail()\nexcept KeyError: traceback.print_exc()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PYTHONPATH": str(archive)},
    )
    assert done.stdout.split() == [
        f"{archive}/package/__init__.pyc",
        f"{archive}/package/module.pyc",
    ]
    assert "raise KeyError('here')" in done.stderr
    with zipfile.ZipFile(archive) as read:
        assert read.read("package/data.txt") == b"as it is"


def test_files_of_another_python_are_compiled_anew(tmp_path: Path) -> None:
    archive = tmp_path / "package.zip"
    with zipfile.ZipFile(archive, "w") as written:
        written.writestr("module.py", "VALUE = 1\n")
        written.writestr("module.pyc", b"\x00\x01\r\n" + bytes(12))
    assert add_bytecode(archive) == 1
    code = "import module; print(module.VALUE, module.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PYTHONPATH": str(archive)},
    )
    assert done.stdout.split() == ["1", f"{archive}/module.pyc"]
