"""Keep the newest figures in ``figures.json`` and in the table of ``README.md``.

``python -m benchmarks --write`` puts its figures into both. Each figure names its run: the commit,
the day, the machine. A figure that a run could not measure stays as an earlier run measured it.
Figures that were never measured are named below the table.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.common import HERE, ROOT, Figure, NotHere, load, rounded
from benchmarks.registry import ALL

FILE = HERE / "figures.json"
PAGE = HERE / "README.md"
BEGIN = (
    "<!-- The figures: `python -m benchmarks --write` writes what is below, from figures.json. -->"
)
END = "<!-- End of the figures. -->"
VERDICTS = {True: "met", False: "**missed**", None: ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One call of ``python -m benchmarks --write``."""

    commit: str
    """Short name of the commit.

    A plus sign after it means that files of the work tree had changes.
    """
    began: str
    """Time in UTC, to the minute. It is the name of the run."""
    rounds: int
    cores: int
    python: str
    load: str
    """Load average at the start, and the highest between two benchmarks."""

    @classmethod
    def begin(cls, rounds: int) -> Run:
        """Return the run that begins now. Raises :class:`NotHere` outside of a clone."""
        git = ["git", "-C", str(ROOT)]
        try:
            commit = subprocess.run(
                [*git, "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True, check=True
            ).stdout.strip()
            others = [f":(exclude){path.relative_to(ROOT)}" for path in (FILE, PAGE)]
            changed = subprocess.run(
                [*git, "status", "--porcelain", "--", ".", *others],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        except (OSError, subprocess.CalledProcessError):
            raise NotHere(
                "--write names the commit of each figure, so it needs git and a clone of "
                "the repository"
            ) from None
        return cls(
            commit=commit + ("+" if changed else ""),
            began=f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M}",
            rounds=rounds,
            cores=len(os.sched_getaffinity(0)),
            python=platform.python_version(),
            load=f"{load()} to {load()}",
        )

    def seen(self) -> Run:
        """Return the run with the load of this moment."""
        first, _, most = self.load.partition(" to ")
        return replace(self, load=f"{first} to {max(float(most), float(load())):g}")

    def __str__(self) -> str:
        machine = f"{self.cores} cores, load {self.load}, Python {self.python}"
        return f"{self.commit}, {self.began[:10]}, medians of {self.rounds}, {machine}"


@dataclass(slots=True)
class Record:
    """All figures by name, each with the run that measured it."""

    figures: dict[str, tuple[Figure, str]]
    """Name → figure and the name of its run."""
    runs: dict[str, Run]

    @classmethod
    def read(cls, path: Path = FILE) -> Record:
        found = json.loads(path.read_text()) if path.exists() else {"runs": [], "figures": {}}
        figures = {
            name: (Figure(name=name, **each["figure"]), each["run"])
            for name, each in found["figures"].items()
        }
        return cls(figures, {each["began"]: Run(**each) for each in found["runs"]})

    def put(self, figures: Iterable[Figure], run: Run) -> None:
        """Store the figures of ``run``.

        A figure without a value, or that has lost its reference, does not replace an earlier one.
        """
        for figure in figures:
            earlier = self.figures.get(figure.name)
            loses_its_peer = (
                earlier is not None
                and earlier[0].reference is not None
                and figure.reference is None
            )
            if figure.value is not None and not loses_its_peer:
                self.figures[figure.name] = (figure, run.began)
        named = {name for _, name in self.figures.values()}
        self.runs = {
            name: each
            for name, each in sorted((self.runs | {run.began: run}).items())
            if name in named
        }

    def write(self, path: Path = FILE, page: Path = PAGE) -> None:
        """Write the figures to ``path`` and their table to ``page``."""
        figures = {
            name: {"figure": _entry(figure), "run": run}
            for name, (figure, run) in sorted(self.figures.items())
        }
        path.write_text(
            json.dumps(
                {"runs": [asdict(run) for run in self.runs.values()], "figures": figures}, indent=1
            )
            + "\n"
        )
        head, rest = page.read_text().split(BEGIN)
        page.write_text(head + self.section() + rest.split(END)[1])

    def section(self) -> str:
        """Return the section of the page with the figures, including its markers."""
        return f"{BEGIN}\n\n{self.table()}\n{END}"

    def table(self) -> str:
        """Return the table, its runs, and the figures that were never measured, in Markdown."""
        places = {name: place for place, name in enumerate(self.runs, 1)}
        lines = [
            "| figure | ours | compared with | ratio | target | | run |",
            "| --- | --- | --- | --- | --- | --- | --- |",
        ]
        missing = []
        for name in (figure for benchmark in ALL.values() for figure in benchmark.figures):
            if name not in self.figures:
                missing.append(f"`{name}`")
                continue
            figure, run = self.figures[name]
            cells = (
                f"`{name}`",
                number(figure.value, figure.unit),
                _beside(figure),
                number(figure.ratio),
                figure.target,
                VERDICTS[figure.ok],
            )
            lines.append(f"| {' | '.join(cells)} | {places[run]} |")
        lines += [
            "",
            "Runs (commit, day, machine; a plus sign: with changes that are not in the commit):",
            "",
        ]
        lines += [f"{places[name]}. {run}" for name, run in self.runs.items()]
        if missing:
            lines += ["", f"Not measured yet: {', '.join(missing)}."]
        return "\n".join(lines) + "\n"


def _entry(figure: Figure) -> Mapping[str, Any]:
    return {name: rounded(value) for name, value in asdict(figure).items() if name != "name"}


def _beside(figure: Figure) -> str:
    if figure.reference is None:
        return ""
    return f"{figure.reference_name} {number(figure.reference, figure.unit)}"


def number(value: float | None, unit: str = "") -> str:
    """Return a figure as text for people."""
    value = rounded(value)
    text = "" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"
    return f"{text} {unit}" if text and unit else text
