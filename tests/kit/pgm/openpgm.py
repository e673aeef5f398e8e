"""OpenPGM's ``pgmpeer`` (``tests/pgm/peers``): builds the program where libpgm is installed."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[3] / "tests" / "pgm" / "peers" / "pgmpeer.c"
ZMQ_PUB, ZMQ_SUB = SOURCE.with_name("zmq_pub.py"), SOURCE.with_name("zmq_sub.py")
DEBIAN_PYTHON = "/usr/bin/python3"
PACKAGES = "libpgm-dev gcc libc6-dev pkg-config nftables iproute2"
BUILD_SECONDS = 120.0


def flags() -> list[str] | None:
    """Return the compiler flags for libpgm, or ``None`` if libpgm or a compiler is missing."""
    if shutil.which("cc") is None or shutil.which("pkg-config") is None:
        return None
    asked = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "openpgm-5.3"],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stdout.split() if asked.returncode == 0 else None


def build() -> Path:
    """Return the path of the ``pgmpeer`` program, which is built once per version of its source.

    The program is kept in the folder for temporary files. Raises :class:`RuntimeError` if OpenPGM
    is missing or the build fails.
    """
    found = flags()
    if found is None:
        raise RuntimeError(f"OpenPGM is missing: apt-get install {PACKAGES}")
    name = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"srmp-spark-peers-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    program = folder / f"pgmpeer-{name}"
    if not program.exists():
        new = program.with_suffix(f".{os.getpid()}")
        command = ["cc", "-O2", "-std=gnu99", str(SOURCE), "-o", str(new), *found]
        made = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS
        )
        if made.returncode != 0:
            raise RuntimeError(f"pgmpeer cannot be built: {made.stderr[-1000:]}")
        new.replace(program)
    return program


def has_zmq() -> bool:
    """Return whether Debian's Python has ZeroMQ with PGM."""
    code = "import sys, zmq; sys.exit(not zmq.has('pgm'))"
    try:
        return (
            subprocess.run([DEBIAN_PYTHON, "-c", code], capture_output=True, check=False).returncode  # noqa: S603
            == 0
        )
    except OSError:
        return False
