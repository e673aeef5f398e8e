"""The sender process's side of the processes that read stages (:mod:`.stage_reader`): ask, and survive what they do not.

A reader that dies while it reads a stage is started again and asked a second time: it may have been killed for something else,
for example by the kernel when memory was short. A stage whose second reader dies too is refused, and its client is told so.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from srmp_spark.queue_manager.sender.stage_reader import Question, Readable, Unreadable, Verdict
from srmp_spark.store.outbox.columns import StageSchema
from srmp_spark.store.outbox.errors import BAD_STAGE, BatchError
from srmp_spark.store.outbox.row_hashes import delete_stage
from srmp_spark.store.outbox.stages import CheckedStage

TRIES = 2
"""Readers that a stage may end."""
READ_SECONDS_MAX = 120.0
"""What a reader gets for one stage: a second for 100,000 rows of many columns is usual. Both tries end before the main
process stops waiting (``STAGE_SECONDS``). A reader that takes longer is killed."""
COMMAND = (sys.executable, "-m", "srmp_spark.queue_manager.sender.stage_reader")

log = logging.getLogger(__name__)


class _ReaderEndedError(Exception):
    """A reader ended without an answer."""


class _Reader:
    """One child process."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(  # noqa: S603  # our own module
            [*command, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                "ARROW_DEFAULT_MEMORY_POOL": "system",
            },  # others reserve gigabytes, which the limit counts
        )

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked: an idle one ends by itself."""
        return self._process.poll() is None

    def ask(self, question: Question) -> Verdict:
        """Return its answer. Raises :class:`_ReaderEndedError`."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        line = b""
        try:
            stdin.write(msgspec.json.encode(question) + b"\n")
            stdin.flush()
            if select.select([stdout], [], [], READ_SECONDS_MAX)[0]:
                line = stdout.readline()
            else:
                self._process.kill()
        except BrokenPipeError:
            pass
        if not line.endswith(b"\n"):
            raise _ReaderEndedError(_how_it_ended(self._process.wait()))
        verdict: Verdict = msgspec.json.decode(line, type=Verdict)
        return verdict

    def close(self) -> None:
        """End it; what it reads at the time is given up."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:  # a question that it never took
                    continue


def _how_it_ended(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


class StageReaders:
    """As many readers as are asked at once; any thread may ask."""

    def __init__(self, folder: Path, *, multicast: bool, command: Sequence[str] = COMMAND) -> None:
        """``folder`` holds the stages; ``multicast``: whether it is spoken here."""
        self._folder = folder
        self._multicast = multicast
        self._command = command
        self._idle: list[_Reader] = []
        self._lock = threading.Lock()

    def check(self, file: str, partition: int) -> CheckedStage:
        """Have every row of ``file`` judged by a reader. What is refused is deleted. Raises :class:`BatchError`."""
        path = self._folder / file
        assert path.parent == self._folder, f"{file} is a name, not a path"
        verdict = self._verdict(Question(str(self._folder), file, partition, self._multicast))
        if isinstance(verdict, Readable):
            schema = StageSchema(
                verdict.columns, verdict.order_by, verdict.dead_letter, verdict.dead_letter_queue
            )
            return CheckedStage(file, partition, verdict.rows, verdict.bytes, schema)
        delete_stage(path)
        raise BatchError(
            verdict.status, verdict.code, f"partition {partition}: {verdict.message}", verdict.hint
        )

    def _verdict(self, question: Question) -> Verdict:
        how = ""
        for number in range(1, TRIES + 1):
            reader = self._take()
            try:
                verdict = reader.ask(question)
            except _ReaderEndedError as error:
                how = str(error)
                reader.close()
            except BaseException:
                reader.close()
                raise
            else:
                with self._lock:
                    self._idle.append(reader)
                return verdict
            log.error("sender.stage_reader_ended file=%s try=%d how=%s", question.file, number, how)
        message = f"the stage ended the process that reads stages, {TRIES} times ({how})"
        return Unreadable(
            400,
            BAD_STAGE,
            message,
            "its bytes are no valid Arrow IPC stream: write them with a released Arrow",
        )

    def _take(self) -> _Reader:
        with self._lock:
            while self._idle:
                reader = self._idle.pop()
                if reader.is_alive:
                    return reader
                reader.close()
        return _Reader(self._command)

    def close(self) -> None:
        """End the readers that are idle; one that reads ends with this process."""
        with self._lock:
            for reader in self._idle:
                reader.close()
            self._idle.clear()
