"""The sender process's side of the reader processes of stages (:mod:`.stage_reader`).

A reader that dies while it reads a stage is started again and asked a second time. The reader may
have been killed for another reason, for example by the kernel when memory was short. A stage whose
second reader dies too is refused, and its client receives the reason.
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

from srmp_spark.logs.form import form_of_this_process
from srmp_spark.queue_manager.sender.staging.stage_reader import (
    Question,
    ReadableStage,
    UnreadableStage,
    Verdict,
)
from srmp_spark.store.outbox.columns import StageSchema
from srmp_spark.store.outbox.errors import BAD_STAGE, BatchError
from srmp_spark.store.outbox.stage_paths import GOOD_ENDING, beside, delete_stage
from srmp_spark.store.outbox.staging.bad_rows import BadRows
from srmp_spark.store.outbox.staging.stages import CheckedStage

TRIES = 2
"""Reader processes that one stage may end; then it is refused."""
READ_SECONDS_MAX = 120.0
"""Longest time of a reader for one stage, in seconds. A reader that takes longer is killed.

Usual is a second for 100,000 rows of many columns. Both tries end before the main process stops
waiting (:data:`.sender.link.STAGE_SECONDS`).
"""
COMMAND = (sys.executable, "-m", "srmp_spark.queue_manager.sender.staging.stage_reader")

log = logging.getLogger(__name__)


class _ReaderEndedError(Exception):
    """Raised when a reader ended without an answer."""


class _Reader:
    """One child process that reads stages, one after another."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(  # noqa: S603  # our own module
            [*command, str(os.getpid()), msgspec.json.encode(form_of_this_process())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                # Other pools reserve gigabytes, which count for the memory limit.
                "ARROW_DEFAULT_MEMORY_POOL": "system",
            },
        )

    @property
    def is_alive(self) -> bool:
        """Return whether the process still runs and can be asked.

        An idle process ends by itself.
        """
        return self._process.poll() is None

    def ask(self, question: Question) -> Verdict:
        """Send a question to the process and return its verdict.

        Raises :class:`_ReaderEndedError` if the process ends without an answer, or takes longer
        than READ_SECONDS_MAX.
        """
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
        """Kill the process at once, even if it is reading a stage, and wait until it has ended."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    # The reader never read a question.
                    continue


def _how_it_ended(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


class StageReaders:
    """Starts a reader process for each simultaneous question, and uses idle ones again.

    Any thread may ask.
    """

    def __init__(self, folder: Path, *, multicast: bool, command: Sequence[str] = COMMAND) -> None:
        """Prepare to read stages of ``folder``; no process is started yet.

        ``multicast`` states whether this queue manager sends multicast.
        """
        self._folder = folder
        self._multicast = multicast
        self._command = command
        self._idle: list[_Reader] = []
        self._lock = threading.Lock()

    def check(
        self, file: str, partition: int, application: str = "", batch: str = ""
    ) -> CheckedStage:
        """Let a reader check every row of ``file``, and return the checked stage.

        ``file`` is a name in the folder, and ``partition`` is the number of the Spark partition.
        The names are for letters about bad rows. The stage may have another file, without bad rows,
        and ``file`` is deleted then. If the stage is refused, delete it and raise
        :class:`BatchError`.
        """
        path = self._folder / file
        assert path.parent == self._folder, f"{file} is a name, not a path"
        verdict = self._verdict(
            Question(str(self._folder), file, partition, self._multicast, application, batch)
        )
        if isinstance(verdict, ReadableStage):
            schema = StageSchema(
                verdict.columns,
                verdict.order_by,
                verdict.dead_letter,
                verdict.dead_letter_queue,
                verdict.on_bad_row,
            )
            bad = BadRows(verdict.bad_rows, verdict.first_bad) if verdict.bad_rows else None
            if verdict.file != file:
                delete_stage(path)
            return CheckedStage(verdict.file, partition, verdict.rows, verdict.bytes, schema, bad)
        delete_stage(path)
        delete_stage(beside(path, GOOD_ENDING))
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
        return UnreadableStage(
            400,
            BAD_STAGE,
            message,
            "the bytes are no valid Arrow IPC stream: write the stage with a released "
            "version of Arrow",
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
        """Kill the idle readers. A reader that is reading ends with this process."""
        with self._lock:
            for reader in self._idle:
                reader.close()
            self._idle.clear()
