"""An interface is deleted and made anew, as of a virtual machine or a container: the kernel forgets what was joined."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SESSION = Path(__file__).with_name("interface_session.py")


def may_unshare() -> bool:
    """Whether this kernel gives us a network namespace, and there is an ``ip`` to make interfaces with."""
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        return False
    made = subprocess.run(
        ["unshare", "-rn", "ip", "link", "add", "x", "type", "veth"],
        capture_output=True,
        timeout=20,
    )
    return made.returncode == 0


@pytest.mark.skipif(
    not may_unshare(), reason="needs network namespaces and iproute2: unshare -rn ip link add fails"
)
def test_multicast_survives_an_interface_that_is_made_anew(tmp_path: Path) -> None:
    """The listener joins again, the sender opens its sockets again, and the log says both; nothing is lost or comes twice."""
    done = subprocess.run(
        ["unshare", "-rn", sys.executable, str(SESSION), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "heard 6 of 6" in done.stdout
