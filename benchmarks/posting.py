"""Make load for the SRMP port: with wrk where it is installed, else with our own senders.

wrk is compiled and leaves its core to the measurement. Our own senders (``scale/senders.py``) are
Python: they may be slower than the server under test, so a figure that was taken with them has a
value and is not judged.
"""

from __future__ import annotations

import json
import math
import subprocess
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.common import CLIENT_CORE, PEERS, NotHere, Plan, need, quantile
from benchmarks.scale.senders import senders

NUMBERS_OF_A_RUN = 1_000_000
_runs = iter(range(int(time.time()) % 8000, 10**6))


def first_number() -> int:
    """Return the first message number of a run.

    No earlier run of the last hours used this number or those after it.
    """
    return 1_000_000_000 + next(_runs) % 8000 * NUMBERS_OF_A_RUN


class Load:
    """Posts messages with 1 KB bodies, one in flight on each connection, each with a new number.

    ``lacking`` says why the senders of this repository make the load; it is ``None`` with wrk.
    """

    def __init__(self, plan: Plan) -> None:
        found = plan.peer("wrk", lambda: need("wrk"))
        self.lacking = (
            NotHere(f"{found}; our own senders made the load")
            if isinstance(found, NotHere)
            else None
        )
        self._wrk = found if isinstance(found, str) else None

    def __call__(self, endpoint: str, connections: int, seconds: float) -> dict[str, float]:
        """Post for ``seconds`` to the queue of ``post.lua`` at ``http://HOST:PORT``.

        Return rate, p50 and p99 (ms), requests and seconds.
        """
        if self._wrk is None:
            return _own(endpoint, connections, seconds)
        return _wrk(self._wrk, f"{endpoint}/msmq/private$/simpleq", connections, seconds)

    def fill(self, endpoint: str, connections: int, at_least: int) -> None:
        """Post until ``at_least`` messages are acknowledged in this call."""
        if self._wrk is None:
            _own(endpoint, connections, count=at_least)
            return
        seconds, done = 1.0, 0.0
        while done < at_least:
            done += _wrk(self._wrk, f"{endpoint}/msmq/private$/simpleq", connections, seconds)[
                "requests"
            ]
            seconds = 10.0


def _wrk(
    program: str, target: str, connections: int, seconds: float, body: int = 1024
) -> dict[str, float]:
    # wrk accepts whole seconds only.
    whole = math.ceil(seconds)
    command = ["taskset", "-c", CLIENT_CORE, program, "-t1", f"-c{connections}", f"-d{whole}s"]
    command += ["-s", str(PEERS / "post.lua"), target, "--", str(body), str(first_number())]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    got = json.loads(next(line for line in out.splitlines() if line.startswith("JSON "))[5:])
    if got["bad"]:
        raise RuntimeError(f"{got['bad']} of {got['requests']} requests to {target} failed")
    return {
        "rate": got["requests"] / got["us"] * 1e6,
        "p50": got["p50_us"] / 1e3,
        "p99": got["p99_us"] / 1e3,
        "requests": got["requests"],
        "seconds": got["us"] / 1e6,
    }


def _own(
    endpoint: str, connections: int, seconds: float = 0.0, count: int | None = None
) -> dict[str, float]:
    with TemporaryDirectory() as folder:
        ledger = Path(folder) / "ledger"
        with senders(
            endpoint,
            ledger,
            first=first_number(),
            lineages=1,
            connections=connections,
            seconds=seconds,
            count=count,
        ) as fleet:
            found = fleet.finish()
    if not found.numbers:
        raise RuntimeError(f"no message to {endpoint} was acknowledged")
    took = list(found.took)
    span = max(sent + each for sent, each in zip(found.sent, took, strict=True)) - min(found.sent)
    return {
        "rate": len(took) / span,
        "p50": quantile(took, 0.5) * 1e3,
        "p99": quantile(took, 0.99) * 1e3,
        "requests": len(took),
        "seconds": span,
    }
