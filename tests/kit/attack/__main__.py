"""Attack a running queue manager for minutes with requests at every port.

  make attack MINUTES=10
  python -m tests.kit.attack --minutes 5 --seed 4711 --port wsrm --port rpc
  python -m tests.kit.attack --replay tests/attack/findings/FILE.json

With --plant the target has a repaired fault again, which the attack must find. The target of
attack-planted plants all of these bugs, one after the other.

  python -m tests.kit.attack --plant wsrm-other-version
  make attack-planted MINUTES=5

A finding is played again at a new process, shortened for at most ten minutes, and saved. From then
on, make test replays it. Exit codes:

  0  no finding; with --every-plant each bug was found by a finding that belongs to the bug
  1  a finding, with --plant one that belongs to the bug; with --every-plant a bug was missed
  2  with --plant: no finding, or only a finding that does not belong to the bug
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from srmp_spark.testing.queue_manager import ServeFailedError
from tests.kit.attack.battle import Battle, replayed
from tests.kit.attack.findings import load, save
from tests.kit.attack.judge import HEALTHZ_MAX, MEMORY_MAX, Finding
from tests.kit.attack.minimise import minimised
from tests.kit.attack.planted.bugs import BUGS
from tests.kit.attack.steps import Walk
from tests.kit.attack.walkers.every import WALKERS

FOLDER = Path("tests/attack/findings")
MINIMISE_SECONDS = 600.0
"""Longest time, in seconds, to shorten a finding; then the shortest version so far is saved."""
PROGRESS_SECONDS = 10.0
PLANTED_MINUTES = 5.0
"""Minutes within which each planted bug must be found, whatever the seed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; ``--help`` explains the codes."""
    options = _parser().parse_args(arguments)
    # asyncio warns of each write to a connection that the target has closed. In an attack the
    # target should close connections, so the warnings are switched off.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The attack opens thousands of idle connections.
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if options.minutes is None:
        options.minutes = PLANTED_MINUTES if options.plant or options.every_plant else 1.0
    seed = options.seed if options.seed is not None else int.from_bytes(os.urandom(4), "big")
    with tempfile.TemporaryDirectory(prefix="srmp-attack-") as folder:
        if options.replay is not None:
            try:
                walks = load(options.replay)
            except (OSError, ValueError, KeyError, TypeError) as error:
                why = (
                    error.strerror
                    if isinstance(error, OSError)
                    else f"no finding is in it: {type(error).__name__}: {error}"
                )
                _parser().error(
                    f"--replay {options.replay}: {why}; give a file that an attack has "
                    f"saved: {options.save} has those that "
                    "were found, and the line after `saved:` names the newest"
                )
            found = asyncio.run(replayed(walks, Path(folder), plant=options.plant))
            print(f"replayed: {'no finding' if found is None else found}")
            return int(found is not None)
        if options.every_plant:
            return _every_plant(options, seed, Path(folder))
        found, _ = asyncio.run(_attack(options, seed, options.plant, Path(folder)))
        if options.plant:
            return 1 if found is not None and found.kind in BUGS[options.plant].kinds else 2
        return 0 if found is None else 1


def _every_plant(options: argparse.Namespace, seed: int, folder: Path) -> int:
    """Plant one bug after the other, attack each, and print how each was found.

    Return 1 if the attack missed a bug, else 0.
    """
    lines: list[str] = []
    missed = 0
    for name, bug in BUGS.items():
        if options.port and bug.port not in options.port:
            continue
        print(f"== {name}", flush=True)
        found, seconds = asyncio.run(_attack(options, seed, name, folder / name))
        is_found = found is not None and found.kind in bug.kinds
        missed += not is_found
        kind = "nothing" if found is None else found.kind
        faults = ",".join(map(str, bug.faults)) or "-"
        lines.append(
            f"{name:20} {faults:5} {kind:12} {seconds:7.0f}{'' if is_found else '  MISSED'}"
        )
    print("\n".join(("", f"{'bug':20} {'fault':5} {'kind':12} {'seconds':>7}", *lines)))
    print(f"planted {len(lines)}, missed {missed}")
    return int(missed > 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.kit.attack",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--minutes", type=float, metavar="N", help="how long (default: 1; with a planted bug 5)"
    )
    parser.add_argument(
        "--seed", type=int, metavar="K", help="of the random walks (default: another each time)"
    )
    parser.add_argument(
        "--port",
        action="append",
        choices=tuple(WALKERS),
        help="only this port; may be repeated (default: all, with --plant that of the bug)",
    )
    parser.add_argument(
        "--plant",
        default="",
        choices=("", *BUGS),
        metavar="BUG",
        help=f"break one of: {', '.join(BUGS)}",
    )
    parser.add_argument(
        "--every-plant",
        action="store_true",
        help="break each of them in turn, and see that it is found",
    )
    parser.add_argument(
        "--replay", type=Path, metavar="FILE", help="play a finding again, and nothing else"
    )
    parser.add_argument(
        "--save",
        type=Path,
        default=FOLDER,
        metavar="DIR",
        help=f"where findings go, but for those of planted bugs (default: {FOLDER})",
    )
    return parser


async def _attack(
    options: argparse.Namespace, seed: int, plant: str, folder: Path
) -> tuple[Finding | None, float]:
    """Attack one target, with the bug ``plant`` unless it is empty.

    Return the finding, or ``None``, and the number of seconds that passed. Without a planted bug a
    finding is shortened and saved.
    """
    ports = tuple(dict.fromkeys(options.port or ([BUGS[plant].port] if plant else WALKERS)))
    broken = f", with the planted bug {plant}" if plant else ""
    print(f"seed {seed}, ports {', '.join(ports)}, {options.minutes} minutes{broken}", flush=True)
    began = time.monotonic()
    told_at = began

    def progress(battle: Battle) -> None:
        nonlocal told_at
        if time.monotonic() >= told_at + PROGRESS_SECONDS:
            told_at = time.monotonic()
            print(f"{told_at - began:4.0f} s  {_line(battle)}", flush=True)

    battle = Battle(folder / "first", plant=plant)
    try:
        async with battle.fought():
            found = await battle.attack(seed, ports, began + options.minutes * 60, progress)
    except ServeFailedError as error:
        found = Finding("restart", str(error)[-600:])
    seconds = time.monotonic() - began
    print(f"{seconds:4.0f} s  {_line(battle)}  restarts {battle.restarts}")
    print(f"limits: /healthz {HEALTHZ_MAX * 1000:.0f} ms, memory {MEMORY_MAX / 1e6:.0f} MB")
    if found is None:
        print(f"PLANTED BUG NOT FOUND: {plant}; give it more --minutes" if plant else "findings 0")
        return None, seconds
    print(f"findings 1\n{found}")
    if not plant:
        await _keep(options.save, found, battle, folder)
    elif found.kind not in BUGS[plant].kinds:
        print(f"this is not {plant}, which is found as: {', '.join(sorted(BUGS[plant].kinds))}")
    return found, seconds


async def _keep(where: Path, found: Finding, battle: Battle, folder: Path) -> None:
    """Shorten the walks before the finding as far as possible, and save them with the finding."""
    walks: list[Walk] = [walk for port in battle.recent.values() for walk in port]
    numbers = iter(range(1, 1_000_000))

    async def replay(some: Sequence[Walk]) -> Finding | None:
        return await replayed(some, folder / f"replay-{next(numbers)}")

    short = await minimised(walks, found.kind, replay, time.monotonic() + MINIMISE_SECONDS)
    if short is None:
        print("played again, the walks before it led to no such finding; they are saved whole")
    path = save(where, found, short or walks)
    print(f"saved: {path}\nagain: python -m tests.kit.attack --replay {path}")


def _line(battle: Battle) -> str:
    scene = battle.scene
    worst = battle.worst
    ports = " ".join(f"{port}:{count}" for port, count in sorted(scene.requests.items()))
    return (
        f"requests {sum(scene.requests.values())} ({ports})  sequences "
        f"{sum(scene.sequences.values())}  "
        f"worst /healthz {worst['healthz'] * 1000:.0f} ms, good sender "
        f"{worst['srmp'] * 1000:.0f} ms  "
        f"worst memory {battle.target.memory_worst / 1e6:.0f} MB  good messages "
        f"{battle.acknowledged}"
    )


if __name__ == "__main__":
    sys.exit(main())
