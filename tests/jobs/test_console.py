"""Stderr of a job: one line of progress that is rewritten on a terminal, few lines in a pipe, and other lines above it."""

from __future__ import annotations

import fcntl
import io
import logging
import os
import struct
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from srmp_spark.jobs.console import LINE_SECONDS, Console, ConsoleHandler
from srmp_spark.jobs.pace import Bar, Tally

WIDTH = 60


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def a_terminal() -> Iterator[tuple[TextIO, int]]:
    """A file that is a terminal of 60 columns, and the descriptor that reads what it shows."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, WIDTH, 0, 0))
    with os.fdopen(theirs, "w") as file:
        yield file, ours
    os.close(ours)


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
    with a_terminal() as (file, ours):
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
        assert screen(os.read(ours, 10_000).decode()) == [
            "a warning",
            "a line of the JVM",
            "3 rows",
            "the end",
            "",
        ]


def test_a_line_of_progress_is_never_as_wide_as_the_terminal() -> None:
    """It would wrap, and the next one would not take its place."""
    with a_terminal() as (file, ours):
        Console.of(file).progress("x" * 200, 0.0)
        assert screen(os.read(ours, 10_000).decode()) == ["x" * (WIDTH - 1)]


def test_bar_and_lines_of_many_threads_do_not_tear_each_other() -> None:
    with a_terminal() as (file, ours):
        bar = Bar(100, file)
        texts = [f"thread {n} " + "y" * 20 for n in range(4)]
        shown = bytearray()
        end = threading.Event()

        def read() -> None:
            while not end.is_set():
                shown.extend(os.read(ours, 10_000))

        reader = threading.Thread(target=read)
        reader.start()
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
        end.set()
        Console.of(file).say("last")
        reader.join()
    lines = screen(shown.decode())
    assert {line for line in lines if line.startswith("thread")} == set(texts)
    assert sum(line.startswith("thread") for line in lines) == 100
    assert sum(line.startswith("[####") for line in lines) == 1


def test_the_tally_on_a_terminal_says_how_fast_and_how_many_wait() -> None:
    clock = Clock()
    with a_terminal() as (file, ours):
        tally = Tally(file, lambda _: None, clock)
        with tally.batch() as done:
            clock.now += 2.0
            tally.show(None)
            done(500)
        clock.now += 3.0
        tally.show(1_000)
        text = "500 rows  1 batch  100 rows/s  1,000 rows wait (10 s)"
        assert screen(os.read(ours, 10_000).decode()) == [text]
        with tally.batch():
            clock.now += 4.0
            assert tally.text(clock.now).endswith("1,000 rows wait (18 s)  a batch runs for 4 s")
        tally.close()
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
    tally.close()
    assert len(lines) == before + 1
    with tally.batch() as done:
        done(1)
    tally.close()
    assert lines[-1].startswith("1,001 rows  101 batches")
