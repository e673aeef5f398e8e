"""Stderr of a job: one line of progress that is rewritten on a terminal, few lines in a pipe, and other lines above it."""

from __future__ import annotations

import fcntl
import io
import logging
import os
import struct
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from srmp_spark.jobs.console import LINE_SECONDS, Console, ConsoleHandler
from srmp_spark.jobs.pace import Bar, Tally

WIDTH = 60


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Screen:
    """The other side of a terminal."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._shown = bytearray()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        with suppress(OSError):  # the end of a terminal
            while got := os.read(self._descriptor, 10_000):
                self._shown += got

    def close(self) -> None:
        self._reader.join()
        os.close(self._descriptor)

    def lines(self) -> list[str]:
        return screen(self._shown.decode())

    def shows(self, lines: list[str]) -> bool:
        """Whether these are its lines, soon."""
        end = time.monotonic() + 10
        while self.lines() != lines and time.monotonic() < end:
            time.sleep(0.01)
        assert self.lines() == lines
        return True


@contextmanager
def a_terminal() -> Iterator[tuple[TextIO, Screen]]:
    """A file that is a terminal of 60 columns, and what it shows."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, WIDTH, 0, 0))
    seen = Screen(ours)
    with os.fdopen(theirs, "w") as file:
        yield file, seen
    seen.close()


def screen(shown: str) -> list[str]:
    """The lines that are left on a screen after ``shown``: a carriage return begins a line again."""
    lines = [""]
    at = 0
    for character in shown.replace("\r\n", "\n"):
        if character == "\n":
            lines.append("")
            at = 0
        elif character == "\r":
            at = 0
        else:
            lines[-1] = lines[-1][:at].ljust(at) + character + lines[-1][at + 1 :]
            at += 1
    return [line.rstrip() for line in lines]


def test_a_terminal_shows_one_line_of_progress_and_the_other_lines_above_it() -> None:
    with a_terminal() as (file, seen):
        console = Console.of(file)
        assert console.is_terminal
        handler = ConsoleHandler(file)
        console.progress("1 row, and a long text", 0.0)
        handler.emit(logging.LogRecord("x", logging.INFO, "x", 1, "a warning", (), None))
        console.progress("2 rows", 0.1)
        console.say("a line of the JVM")
        console.progress("3 rows", 0.2)
        console.end_progress()
        console.say("the end")
        assert seen.shows(["a warning", "a line of the JVM", "3 rows", "the end", ""])


def test_a_line_of_progress_is_never_as_wide_as_the_terminal() -> None:
    """It would wrap, and the next one would not take its place."""
    with a_terminal() as (file, seen):
        Console.of(file).progress("x" * 200, 0.0)
        assert seen.shows(["x" * (WIDTH - 1)])


def test_bar_and_lines_of_many_threads_do_not_tear_each_other() -> None:
    with a_terminal() as (file, seen):
        bar = Bar(100, file)
        texts = [f"thread {n} " + "y" * 20 for n in range(4)]
        threads = [
            threading.Thread(target=lambda t=text: [Console.of(file).say(t) for _ in range(25)])
            for text in texts
        ]
        for thread in threads:
            thread.start()
        for _ in range(100):
            bar.add(1)
        for thread in threads:
            thread.join()
        bar.close()
    lines = seen.lines()
    assert {line for line in lines if line.startswith("thread")} == set(texts)
    assert sum(line.startswith("thread") for line in lines) == 100
    assert sum(line.startswith("[####") for line in lines) == 1


def test_the_tally_on_a_terminal_says_how_fast_and_how_many_wait() -> None:
    clock = Clock()
    with a_terminal() as (file, seen):
        tally = Tally(file, lambda _: None, clock)
        with tally.batch() as done:
            clock.now += 2.0
            tally.show(None)
            done(500)
        clock.now += 3.0
        tally.show(1_000)
        text = "500 rows  1 batch  100 rows/s  1,000 rows wait (10 s)"
        assert seen.shows([text])
        with tally.batch():
            clock.now += 4.0
            assert tally.text(clock.now).endswith("1,000 rows wait (18 s)  a batch runs for 4 s")
        tally.close(0)
        clock.now += 60.0
        assert "  0 rows/s  " in tally.text(clock.now), "of the last seconds, not of all time"


def test_the_speed_is_that_of_the_last_seconds_with_many_small_batches() -> None:
    clock = Clock()
    tally = Tally(io.StringIO(), lambda _: None, clock)
    for rate in (1, 100):
        for _ in range(600):
            clock.now += 0.1
            with tally.batch() as done:
                done(rate)
    assert len(tally._marks) <= 14
    speed = float(tally.text(clock.now).split("  ")[2].split()[0].replace(",", ""))
    assert 900 <= speed <= 1_100


def test_the_tally_in_a_pipe_is_a_line_for_some_seconds_in_which_something_happens() -> None:
    clock, lines = Clock(), []
    tally = Tally(io.StringIO(), lines.append, clock)
    for _ in range(100):
        clock.now += 0.2
        with tally.batch() as done:
            done(10)
        tally.show(0)
    assert 3 <= len(lines) <= 20 / LINE_SECONDS
    busy = len(lines)
    tally.show(0)
    clock.now += LINE_SECONDS
    tally.show(0)
    assert len(lines) in (busy, busy + 1), "the batches since the last line"
    before = len(lines)
    for _ in range(100):
        clock.now += 1.0
        tally.show(0)
    assert len(lines) == before, "nothing happened"
    with tally.batch():
        clock.now += LINE_SECONDS
        tally.show(7)
    assert lines[-1].endswith("a batch runs for 5 s"), "a long batch is no silence"
    tally.close(0)
    assert len(lines) == before + 1
    with tally.batch() as done:
        done(1)
    tally.close(0)
    assert lines[-1].startswith("1,001 rows  101 batches")
    assert lines[-1].endswith("0 rows wait")
