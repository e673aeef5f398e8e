"""XML bombs (T17): refused within 50 ms and 10 MiB, no file and no socket opened, any document type refused outright."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from srmp_spark.srmp import limits
from tests.kit.fuzz.xml_bombs import BYTES_MAX, MILLISECONDS_MAX, Bomb, Measured, bombs

BOMBS = list(bombs())


@pytest.fixture(scope="module")
def measured() -> dict[str, list[Measured]]:
    """Name → what it cost on each of its ways in, each in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.kit.fuzz.xml_bombs"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, list[Measured]] = {}
    for line in done.stdout.splitlines():
        each: Measured = json.loads(line)
        found.setdefault(each["name"], []).append(each)
    return found


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb.name)
def test_a_bomb_is_refused_in_50_ms_and_10_mib_and_opens_nothing(
    bomb: Bomb, measured: dict[str, list[Measured]]
) -> None:
    found = measured[bomb.name]
    assert len(found) == (3 if len(bomb.xml) < limits.CONTENT_MAX - 500 else 2)
    for each in found:
        assert each["refused"] or bomb.accepted, each
        assert each["status"] in (200, 400, 413), each
        assert each["milliseconds"] <= MILLISECONDS_MAX, each
        assert each["bytes"] <= BYTES_MAX, each
        assert each["events"] == [], each


def test_the_list_reaches_the_parser_and_goes_past_every_limit() -> None:
    """A bomb that is only too long proves nothing of the parser, one that fits nothing of the limits."""
    fitting = [bomb for bomb in BOMBS if len(bomb.xml) <= limits.ENVELOPE_MAX]
    assert len(fitting) >= 30
    assert sum(len(bomb.xml) > limits.ENVELOPE_MAX // 2 for bomb in fitting) >= 10
    assert sum(len(bomb.xml) > limits.CONTENT_MAX for bomb in BOMBS) >= 8


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("b'x' * (64 * 1024 * 1024)", "bytes"),
        ("sum(range(9_000_000))", "milliseconds"),
        ("open('/dev/null').close()", "events"),
    ],
)
def test_the_measurement_sees_what_it_is_there_for(body: str, kind: str) -> None:
    """The same process with a decoder that wastes memory, wastes time, or opens a file."""
    code = (
        "import json\nfrom tests.kit.fuzz import xml_bombs\n"
        f"def decode(content_type, content): return {body}\n"
        "xml_bombs.decode = decode\n"
        "print(json.dumps(xml_bombs.measure(b'text/xml', b'x')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    found = json.loads(done.stdout)
    passed = {
        "bytes": found["bytes"] <= BYTES_MAX,
        "milliseconds": found["milliseconds"] <= MILLISECONDS_MAX,
        "events": found["events"] == [],
    }
    assert not passed[kind]
