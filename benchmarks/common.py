"""Share code among the benchmarks: plans, figures, the cache folder, processes and CPU time.

Processes are started and ended by id.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PEERS = HERE / "peers"
CACHE = Path(
    os.environ.get("SRMP_PEERS_CACHE")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "srmp-spark-peers"
)
PEERS_PYTHON = CACHE / "py" / "bin" / "python"
"""The interpreter that has confluent-kafka and impacket. The project itself needs neither."""
_CORES = sorted(os.sched_getaffinity(0))
SERVER_CORE, CLIENT_CORE = str(_CORES[0]), str(_CORES[min(1, len(_CORES) - 1)])
"""The first two cores that this process may use.

A machine with one core has the same one twice.
"""
QUEUE = "private$/simpleq"
"""The queue of [MC-MQSRM] 4.5, to which ``post.lua`` writes."""


# The name has no "Error", because a missing program is no error: the figure states it.
class NotHere(Exception):  # noqa: N818
    """Raised when a figure cannot be taken on this machine. The message says what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The way to run a benchmark."""

    rounds: int = 5
    quick: bool = False
    """Run one round of small sizes. It shows that everything runs, and no figure is judged."""
    with_peers: bool = True
    """Run the programs for comparison where they are installed."""
    with_spark: bool = True

    def peer(self, name: str, start: Callable[[], T]) -> T | NotHere:
        """Return the result of ``start`` for the peer ``name``.

        Return the reason instead if the peer is missing or left out; ours then runs without it.
        """
        if not self.with_peers:
            return NotHere(f"{name} is left out (--no-peers)")
        try:
            return start()
        except NotHere as why:
            return why

    def size(self, full: int, quick: int) -> int:
        """Return ``quick`` for a quick run, else ``full``."""
        return quick if self.quick else full


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the result.

    ``ratio`` is value / reference; ``target`` is the condition for ``ok``.
    """

    name: str
    value: float | None
    unit: str
    reference: float | None = None
    reference_name: str = ""
    ratio: float | None = None
    target: str = ""
    ok: bool | None = None
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        out = {
            "value": self.value,
            "unit": self.unit,
            "reference": self.reference,
            "ratio": self.ratio,
            "target": self.target,
        }
        return (
            {key: rounded(value) for key, value in out.items()}
            | {"ok": self.ok}
            | ({"note": self.note} if self.note else {})
        )


def beside(
    name: str,
    unit: str,
    ours: Sequence[float],
    theirs: Sequence[float] | NotHere,
    reference_name: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    note: str = "",
) -> Figure:
    """Return a figure judged by its ratio to the reference.

    The ratio is taken inside each round, so both sides had the same noise. Without the
    reference (``theirs`` says why) the figure has our value, and nothing is judged.
    """
    target = "told beside"
    if at_least is not None:
        target = f"ratio >= {at_least:g}"
    elif at_most is not None:
        target = f"ratio <= {at_most:g}"
    if isinstance(theirs, NotHere):
        why = "; ".join(filter(None, (note, str(theirs))))
        return Figure(
            name=name,
            value=median(ours),
            unit=unit,
            reference_name=reference_name,
            target=target,
            note=why,
        )
    ratio = median([a / b for a, b in zip(ours, theirs, strict=True)])
    ok: bool | None = None
    if at_least is not None or at_most is not None:
        ok = (at_least is None or ratio >= at_least) and (at_most is None or ratio <= at_most)
    return Figure(
        name=name,
        value=median(ours),
        unit=unit,
        reference=median(theirs),
        reference_name=reference_name,
        ratio=ratio,
        target=target,
        ok=ok,
        note=note,
    )


def rounded(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def quantile(values: Sequence[float], q: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def say(*words: object) -> None:
    """Print progress on stderr, because stdout is the result."""
    print(*words, file=sys.stderr, flush=True)


def load() -> str:
    return Path("/proc/loadavg").read_text().split()[0]


@contextlib.contextmanager
def scratch(name: str) -> Iterator[Path]:
    """Provide a fresh folder on the disk of the cache.

    It is no tmpfs, so that syncs have their usual cost.
    """
    base = CACHE / "tmp"
    base.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=base))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def need(program: str) -> str:
    found = shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/local/sbin")
    if not found:
        raise NotHere(
            f"{program} is missing: run benchmarks/peers/setup.sh (as root, for the "
            "Debian packages)"
        )
    return found


def need_file(path: Path, what: str) -> Path:
    if not path.exists():
        raise NotHere(f"{what} is missing: run benchmarks/peers/setup.sh")
    return path


def need_cores(plan: Plan) -> None:
    """Raise :class:`NotHere` where server and client cannot have a core each.

    A quick run may have one core.
    """
    if not plan.quick and len(_CORES) < 2:
        raise NotHere("two cores are needed: server and client are pinned apart")
    need("taskset")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_port(port: int, process: subprocess.Popen[bytes], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(
                f"the process behind port {port} ended early with {process.returncode}"
            )
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"nothing listens on port {port} after {seconds} s")


def start(
    arguments: Sequence[str], core: str | None = None, log: Path | None = None, **kw: Any
) -> subprocess.Popen[bytes]:
    """Start a process in a group of its own, pinned to ``core``."""
    pinned = ["taskset", "-c", core, *arguments] if core else list(arguments)
    out = log.open("ab") if log else subprocess.DEVNULL
    kw.setdefault("stdout", out)
    return subprocess.Popen(pinned, stderr=out, start_new_session=True, **kw)


def stop(process: subprocess.Popen[bytes], seconds: float = 20) -> None:
    """End the group that :func:`start` made, and no other: with TERM, then with KILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
            return


def cpu_seconds(group: int) -> float:
    """Return the CPU seconds of the group's live threads.

    CPU time stays comparable when others use the machine; rates do not.
    """
    total = 0
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError, IndexError):
            if int((folder / "stat").read_text().rsplit(")", 1)[1].split()[2]) != group:
                continue
            for task in (folder / "task").iterdir():
                total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def tree_cpu_seconds(root: int) -> float:
    """Return the CPU seconds of a process and its descendants.

    Descendants that have ended count if another process waited for them.
    """
    ticks, waiting = 0, [root]
    while waiting:
        folder = Path(f"/proc/{waiting.pop()}")
        with contextlib.suppress(OSError):
            ticks += sum(map(int, (folder / "stat").read_text().rsplit(")", 1)[1].split()[11:15]))
            for thread in (folder / "task").iterdir():
                waiting += map(int, (thread / "children").read_text().split())
    return ticks / os.sysconf("SC_CLK_TCK")


class QueueManager:
    """Runs ``srmp-spark serve`` on free ports with a fresh data directory.

    With ``core`` all its processes are pinned to that core.
    """

    def __init__(
        self,
        folder: Path,
        core: str | None = SERVER_CORE,
        *,
        options: Sequence[str] = (),
        started: Callable[[int], object] = lambda group: None,
    ) -> None:
        """Start the process and wait until it is ready.

        ``options`` are further options of ``serve``. ``started`` is called with the process group
        before the queue manager is ready.
        """
        arguments = [
            sys.executable,
            "-m",
            "srmp_spark.cli",
            "serve",
            "--data-dir",
            str(folder / "data"),
            "--listen",
            "127.0.0.1:0",
            "--api",
            "127.0.0.1:0",
            "--host-name",
            "machine2",
            "--queue",
            QUEUE,
            "--queue-quota-bytes",
            str(1 << 40),
            *options,
        ]
        pinned = ["taskset", "-c", core, *arguments] if core else arguments
        self.log = folder / "serve.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                pinned, stdout=subprocess.PIPE, stderr=log, start_new_session=True, cwd=ROOT
            )
        started(self.process.pid)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"serve did not start: {self.log.read_text()[-2000:]}")
        ready = self.ready = json.loads(line)
        self.url: str = ready["listening"]
        self.api: str = ready["api"]
        self.pid: int = ready["pid"]

    @property
    def target(self) -> str:
        return f"{self.url}/msmq/{QUEUE}"

    def end_of(self, queue: str = QUEUE) -> int:
        """Return the last sequence of a queue."""
        import requests

        queues = requests.get(f"{self.api}/v1/status", timeout=10).json()["queues"]
        return int(next(q["last"] for q in queues if q["name"] == queue))

    def close(self) -> None:
        stop(self.process)
