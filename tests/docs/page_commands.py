"""Runs the commands of a page as a newcomer types them, and compares what the page says one sees.

A ``bash`` block holds commands. A ``text`` block after it is the output of its last command, where ``…`` stands for anything
and spaces count as one. ``srmp-spark serve`` runs as in a terminal of its own, until the end. Each port of the page becomes a
free one; everything else is run as it stands.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from srmp_spark.testing.foreign.ports import KeptPort

ROOT = Path(__file__).resolve().parents[2]
READY_SECONDS = 60.0
COMMAND_SECONDS = 300.0
"""A command that starts Spark takes minutes on a busy machine."""
SEEN_SECONDS = 60.0
"""How long a command that only looks is asked again until it shows what the page says."""
LOOKS = ("peek", "queues", "streams", "status", "doctor")
DEFAULT_PORTS = (8080, 8081)
"""Of ``serve``, which a page need not write."""

_BLOCK = re.compile(r"^( *)```(bash|text)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_PORT = re.compile(r"((?:127\.0\.0\.1|0\.0\.0\.0|udp):)(\d+)")


class Step(NamedTuple):
    """One command, and what the page shows after it."""

    command: str
    seen: str | None

    @property
    def serves(self) -> bool:
        """Return whether it is a queue manager."""
        return self.command.startswith("srmp-spark serve")

    @property
    def looks(self) -> bool:
        """Return whether it changes nothing."""
        return self.command.split()[:1] == ["srmp-spark"] and self.command.split()[1] in LOOKS


def steps_of(text: str) -> Iterator[Step]:
    """Each command of the ``bash`` blocks of ``text``."""
    steps: list[Step] = []
    for match in _BLOCK.finditer(text):
        content = textwrap.dedent(match[3])
        if match[2] == "text":
            assert steps, "a text block shows the output of the command before it"
            assert steps[-1].seen is None, f"two outputs of {steps[-1].command}"
            steps[-1] = steps[-1]._replace(seen=content)
            continue
        for line in content.replace("\\\n", " ").splitlines():
            command = re.sub(r"\s+# .*$", "", line).strip()
            if command and not command.startswith("#"):
                steps.append(Step(command, None))
    return iter(steps)


def pattern_of(seen: str) -> re.Pattern[str]:
    """What an output must be like to be ``seen``."""
    words = [".*?".join(map(re.escape, word.split("…"))) for word in seen.split()]
    return re.compile(r"\s+".join(words))


class Terminal:
    """A folder with the commands in its path, and the queue managers that run there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self._ports: dict[int, KeptPort] = {port: KeptPort() for port in DEFAULT_PORTS}
        self._running: list[subprocess.Popen[str]] = []
        programs = folder / ".bin"
        programs.mkdir()
        for name, line in (
            ("srmp-spark", f'{sys.executable} -m srmp_spark.cli "$@"'),
            ("python", f'{sys.executable} "$@"'),
        ):
            (programs / name).write_text(f"#!/bin/bash\nexec {line}\n")
            (programs / name).chmod(0o755)
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith("SRMP_SPARK_")
        }
        self._environment = environment | {
            "PATH": f"{programs}:{environment['PATH']}",
            "PYTHONPATH": str(ROOT),
        }

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._running:
            process.send_signal(signal.SIGINT)  # Ctrl-C
        codes = []
        for process in self._running:
            try:
                codes.append(process.wait(60))
            finally:
                process.kill()
                process.communicate()
        if error is None:
            assert codes == [0] * len(codes), codes

    def port(self, number: int) -> int:
        """The port that stands for ``number`` of the page."""
        return self._ports.setdefault(number, KeptPort()).number

    def moved(self, text: str) -> str:
        """``text`` with our ports."""
        return _PORT.sub(lambda match: f"{match[1]}{self.port(int(match[2]))}", text)

    def run(self, step: Step) -> None:
        """Run one command. Raises :class:`AssertionError` if it fails, or shows something else than the page does."""
        seen = None if step.seen is None else pattern_of(self.moved(step.seen))
        if step.serves:
            self._serve(step, seen)
            return
        end = time.monotonic() + (SEEN_SECONDS if step.looks else 0)
        api = {"SRMP_SPARK_API": f"http://127.0.0.1:{self.port(8081)}"}
        while True:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", self.moved(step.command)], cwd=self.folder, env=self._environment | api,
                capture_output=True, text=True, timeout=COMMAND_SECONDS,
            )  # fmt: skip
            assert done.returncode == 0, f"{step.command}\n{done.stdout}{done.stderr}{self._logs()}"
            if seen is None or seen.fullmatch(done.stdout.strip()):
                return
            if time.monotonic() > end:
                raise AssertionError(
                    f"{step.command}\nthe page says:\n{step.seen}\nit "
                    f"was:\n{done.stdout}{self._logs()}"
                )
            time.sleep(0.3)

    def _serve(self, step: Step, seen: re.Pattern[str] | None) -> None:
        ours = {
            "SRMP_SPARK_LISTEN": f"127.0.0.1:{self.port(8080)}",
            "SRMP_SPARK_API": f"127.0.0.1:{self.port(8081)}",
        }
        log = self.folder / f"serve-{len(self._running)}.log"
        with log.open("w") as errors:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {self.moved(step.command)}"], cwd=self.folder, env=self._environment | ours,
                stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip
        self._running.append(process)
        readable, _, _ = select.select([process.stdout], [], [], READY_SECONDS)
        line = process.stdout.readline() if readable else ""
        assert line, f"{step.command}\n{log.read_text()}"
        ready: Mapping[str, object] = json.loads(line)
        assert "queue_manager" in ready
        assert seen is None or seen.fullmatch(line.strip()), (
            f"{step.command}\nthe page says:\n{step.seen}\nit was:\n{line}"
        )

    def _logs(self) -> str:
        return "".join(
            f"\n{path.name}:\n{path.read_text()}"
            for path in sorted(self.folder.glob("serve-*.log"))
        )
