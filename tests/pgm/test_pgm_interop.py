"""Our PGM and OpenPGM on one wire: a few cases of `make interop-pgm`, in network namespaces of their own, without root."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.kit.pgm import openpgm, two_hosts

lacking = ", ".join(two_hosts.missing_tools()) or ("" if openpgm.flags() else "OpenPGM")
needs_openpgm = pytest.mark.skipif(
    bool(lacking), reason=f"{lacking} is missing: apt-get install {openpgm.PACKAGES}"
)
needs_namespaces = pytest.mark.skipif(
    not lacking and not two_hosts.may_unshare(),
    reason="this kernel allows no user namespaces: unshare -rn fails",
)

CASES = (
    ("raw", "send", "5000", "every 10th"),
    ("raw", "recv", "20000", "5 %"),
    ("udp", "send", "20000", "first RDATA"),
    ("udp", "recv", "1000", "every NCF"),
)


@needs_openpgm
@needs_namespaces
def test_every_apdu_arrives_in_order_whatever_is_lost() -> None:
    command = [sys.executable, "-m", "tests.kit.pgm.interop"]
    for case in CASES:
        command += ["--case", *case]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=250)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["4 of 4 hold"]), (
        done.stdout + done.stderr
    )
