"""Bad inputs for each parser (T16): refusal or acceptance, the same however they are cut, in 50 ms and 8 × memory.

The first 2,500 of a list of 10,000 here; ``make long`` takes all of it.
``make fuzz MINUTES=…`` goes on with random ones; what it finds is a file of ``corpus/`` and comes again here for ever.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from srmp_spark.errors import RemoteProtocolError
from tests.kit.fuzz.curated import MUTANTS, mutant, mutants, run, saved
from tests.kit.fuzz.judge import Outcome, Target, ViolationError, growth
from tests.kit.fuzz.pieces import check_pieces
from tests.kit.fuzz.targets import all_targets

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "tests" / "data" / "srmp"
CORPUS = Path(__file__).with_name("corpus")
TARGETS = {target.name: target for target in all_targets(SAMPLES)}
COUNT = int(os.environ.get("SRMP_SPARK_MUTANTS", MUTANTS // 4))
"""Mutants of each parser; of a slow one a tenth as many."""
MEMORY_EVERY = 8
"""The peak is measured for one mutant in so many: to trace allocations takes four times as long as to parse."""
SHARE_MIN = 0.05
"""Of the mutants that must be accepted, and that must be refused: a list that is all noise, or all good, tests one half."""
GROWTH_INPUTS = 150
GROWTH_BLOCKS_MAX = 100
"""Blocks that 150 inputs may leave behind when they come for the fifth time: less than one for each."""


@pytest.mark.parametrize("name", TARGETS)
def test_mutants_are_refused_or_accepted(name: str) -> None:
    count = COUNT // 10 if TARGETS[name].is_slow else COUNT
    report = run(TARGETS[name], mutants(TARGETS[name], count), memory_every=MEMORY_EVERY)
    assert report.findings == [], "\n".join(map(str, report.findings[:3]))
    assert report.runs == count
    assert SHARE_MIN * count <= report.accepted <= (1 - SHARE_MIN) * count, report


@pytest.mark.parametrize("name", TARGETS)
def test_what_was_found_before_stays_mended(name: str) -> None:
    report = run(TARGETS[name], (path.read_bytes() for path in saved(CORPUS, TARGETS[name])))
    assert report.findings == [], "\n".join(map(str, report.findings))


def test_every_file_of_the_corpus_belongs_to_a_target() -> None:
    files = [path for path in CORPUS.rglob("*") if path.is_file()]
    assert set(files) == {path for target in TARGETS.values() for path in saved(CORPUS, target)}
    assert files, "what the first runs found is kept here"


@pytest.mark.parametrize("name", TARGETS)
def test_the_same_inputs_again_leave_nothing_behind(name: str) -> None:
    target = TARGETS[name]
    assert (
        growth(target, list(islice(mutants(target), GROWTH_INPUTS)), rounds=5) <= GROWTH_BLOCKS_MAX
    )


def digest(hash_seed: str) -> str:
    code = (
        "import hashlib\nfrom pathlib import Path\nfrom tests.kit.fuzz.curated "
        "import mutants\n"
        "from tests.kit.fuzz.targets import all_targets\nsha = hashlib.sha256()\n"
        f"for target in all_targets(Path({str(SAMPLES)!r})):\n"
        "    for data in mutants(target, 200): sha.update(target.name.encode() + data)\n"
        "print(sha.hexdigest())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    ).stdout.strip()


def test_the_list_is_the_same_in_every_process() -> None:
    assert digest("0") == digest("4711")


# --- the test of the tests: each fault that the rules name is found ---------------------------------------------------------


def lets_an_error_out(data: bytes) -> Outcome:
    return Outcome(True, data.decode("ascii")) if b"\xff" in data else Outcome(True, None)


def is_slow(data: bytes) -> Outcome:
    end = time.thread_time() + (0.06 if len(data) > 2_000 else 0)
    while time.thread_time() < end:
        pass
    return Outcome(True, None)


def is_hungry(data: bytes) -> Outcome:
    return Outcome(True, len(b"x" * (2_000_000 if b"<<" in data else 1)))


def nothing(data: bytes, outcome: Outcome, rng: object) -> None:
    pass


def depends_on_the_cut(pieces: list[bytes]) -> Outcome:
    return Outcome(True, any(b"\r\n" in piece for piece in pieces))


@pytest.mark.parametrize(
    ("parse", "kind"),
    [(lets_an_error_out, "UnicodeDecodeError"), (is_slow, "slow"), (is_hungry, "memory")],
)
def test_a_parser_with_a_fault_is_found(parse: Callable[[bytes], Outcome], kind: str) -> None:
    good = TARGETS["envelope"]
    faulty = Target("faulty", good.seeds, good.tokens, parse, nothing)
    report = run(faulty, mutants(faulty, 250))
    assert {finding.kind for finding in report.findings} == {kind}


def test_a_parser_that_depends_on_the_cut_is_found() -> None:
    good = TARGETS["connection"]
    faulty = Target(
        "faulty",
        good.seeds,
        good.tokens,
        lambda data: depends_on_the_cut([data]),
        lambda data, outcome, rng: check_pieces(depends_on_the_cut, data, outcome, rng),
    )
    report = run(faulty, mutants(faulty, 50))
    assert {finding.kind for finding in report.findings} == {"violation"}


def test_what_a_parser_keeps_is_found() -> None:
    kept: list[bytes] = []

    def keeps(data: bytes) -> Outcome:
        kept.append(bytes(bytearray(data)))
        return Outcome(True, None)

    good = TARGETS["mime"]
    leaking = Target("leaking", good.seeds, good.tokens, keeps, nothing)
    assert growth(leaking, list(islice(mutants(good), GROWTH_INPUTS)), rounds=5) > GROWTH_BLOCKS_MAX


def test_a_layout_that_reads_something_else_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The differential check: a fast way that drops what it does not expect."""
    from tests.kit.fuzz import targets

    def careless(content: bytes, start: int, end: int) -> object:
        message = original(content, start, end)
        return message._replace(priority=0) if message is not None else None

    original = targets.read_windows_envelope
    monkeypatch.setattr(targets, "read_windows_envelope", careless)
    report = run(TARGETS["envelope"], mutants(TARGETS["envelope"], 1_000), memory_every=0)
    assert any("windows_layout" in finding.detail for finding in report.findings)


def test_a_refusal_must_be_one_short_line_with_a_status(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.kit.fuzz import targets

    for error in (
        RemoteProtocolError("x" * 500),
        RemoteProtocolError("two\nlines"),
        RemoteProtocolError("x", status_hint=200),
        RemoteProtocolError("x", section=""),
    ):
        with pytest.raises(ViolationError):
            targets._refused(error)


# --- the long run ----------------------------------------------------------------------------------------------------------


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "tests.kit.fuzz", *arguments]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, cwd=ROOT)


def test_the_long_run_goes_on_with_random_mutants_led_by_coverage(tmp_path: Path) -> None:
    done = command(
        "--minutes",
        "0.05",
        "--jobs",
        "1",
        "--seed",
        "1",
        "--target",
        "mime",
        "--corpus",
        str(tmp_path),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1].split()
    assert last[0] == "mime"
    assert int(last[1]) > 50
    assert int(last[3]) > 100, "steps from line to line"
    assert list(tmp_path.iterdir()) == []


def test_a_finding_is_shrunk_saved_and_judged_again(tmp_path: Path) -> None:
    """In this process, with a planted fault in one of its targets."""
    code = (
        "from tests.kit.fuzz import long_run, targets\n"
        "from tests.kit.fuzz.judge import Target\nimport queue, time, sys\nfrom "
        "pathlib import Path\n"
        "def parse(data):\n    if b'Content-Id' in data and b'\\x00' in data: raise "
        "KeyError('planted')\n"
        "    return targets.parse_mime(data)\n"
        "good = next(t for t in targets.all_targets(Path('tests/data/srmp')) if t.name == 'mime')\n"
        "planted = Target('mime', good.seeds, good.tokens, parse, good.check, good.files)\n"
        "long_run.all_targets = lambda samples: [planted]\n"
        "out = queue.Queue()\n"
        "worker = long_run._Worker(0, ['mime'], Path('tests/data/srmp'), "
        "Path(sys.argv[1]), 1, bytearray(100_000))\n"
        "worker.run(time.time() + 4, out)\n"
        "found = [f for m in list(out.queue) for f in m.findings]\n"
        "print(long_run.save(Path(sys.argv[1]), min(found, key=lambda f: len(f.data))))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=100,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    path = Path(done.stdout.strip())
    assert path.parent.name == "mime"
    assert path.name.startswith("keyerror-")
    assert len(path.read_bytes()) < 60, "what has nothing to do with the fault is gone"
    again = command("--target", "mime", "--file", str(path))
    assert again.returncode == 0, "the fault was planted in the other process only"


def test_one_mutant_can_be_shown() -> None:
    done = command("--target", "envelope", "--number", "4711")
    assert done.returncode == 0
    assert repr(mutant(TARGETS["envelope"], 4711)) in done.stdout


def test_names_of_files_are_digests_of_their_content() -> None:
    for path in CORPUS.rglob("*.bin"):
        assert path.stem.rpartition("-")[2] == hashlib.sha256(path.read_bytes()).hexdigest()[:16]
