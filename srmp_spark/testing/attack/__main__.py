"""Attack a running queue manager for minutes: sequences of requests at every port, judged from outside.

make attack MINUTES=10
python -m srmp_spark.testing.attack --minutes 5 --seed 4711 --port wsrm --port rpc
python -m srmp_spark.testing.attack --plant wsrm-other-version     # a repaired fault, broken again: it must be found
python -m srmp_spark.testing.attack --replay tests/attack/findings/FILE.json

A finding is played again at a new process, made as short as ten minutes allow, and saved; `make test` replays it from then on.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from srmp_spark.testing.attack.battle import Battle, replayed
from srmp_spark.testing.attack.findings import load, save
from srmp_spark.testing.attack.judge import HEALTHZ_MAX, MEMORY_MAX, Finding
from srmp_spark.testing.attack.minimise import minimised
from srmp_spark.testing.attack.planted.bugs import BUGS
from srmp_spark.testing.attack.steps import Walk
from srmp_spark.testing.attack.walkers.every import WALKERS
from srmp_spark.testing.service import ServeFailedError

FOLDER = Path("tests/attack/findings")
MINIMISE_SECONDS = 600.0
"""What a finding may take to be made short."""
PROGRESS_SECONDS = 10.0


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; exit code 1 if there was a finding."""
    options = _parser().parse_args(arguments)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # connections that say nothing, by the thousand
    ports = tuple(dict.fromkeys(options.port or WALKERS))
    seed = options.seed if options.seed is not None else int.from_bytes(os.urandom(4), "big")
    with tempfile.TemporaryDirectory(prefix="srmp-attack-") as folder:
        if options.replay is not None:
            found = asyncio.run(replayed(load(options.replay), Path(folder), plant=options.plant))
            print(f"replayed: {'no finding' if found is None else found}")
            return int(found is not None)
        return asyncio.run(_attack(options, seed, ports, Path(folder)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m srmp_spark.testing.attack", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=1.0, metavar="N", help="how long (default: 1)")
    parser.add_argument("--seed", type=int, metavar="K", help="of the random walks (default: another each time)")
    parser.add_argument("--port", action="append", choices=tuple(WALKERS), help="only this port; may be repeated")
    parser.add_argument("--plant", default="", choices=("", *BUGS), metavar="BUG", help=f"break one of: {', '.join(BUGS)}")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="play a finding again, and nothing else")
    parser.add_argument("--save", type=Path, default=FOLDER, metavar="DIR", help=f"where findings go (default: {FOLDER})")
    return parser


async def _attack(options: argparse.Namespace, seed: int, ports: Sequence[str], folder: Path) -> int:
    print(f"seed {seed}, ports {', '.join(ports)}, {options.minutes} minutes", flush=True)
    began = time.monotonic()
    told_at = began

    def progress(battle: Battle) -> None:
        nonlocal told_at
        if time.monotonic() >= told_at + PROGRESS_SECONDS:
            told_at = time.monotonic()
            print(f"{told_at - began:4.0f} s  {_line(battle)}", flush=True)

    battle = Battle(folder / "first", plant=options.plant)
    try:
        async with battle.fought():
            found = await battle.attack(seed, ports, began + options.minutes * 60, progress)
    except ServeFailedError as error:
        found = Finding("restart", str(error)[-600:])
    print(f"{time.monotonic() - began:4.0f} s  {_line(battle)}  restarts {battle.restarts}")
    print(f"limits: /healthz {HEALTHZ_MAX * 1000:.0f} ms, memory {MEMORY_MAX / 1e6:.0f} MB")
    if found is None:
        print("findings 0")
        return 0
    print(f"findings 1\n{found}")
    if not options.plant:
        await _keep(options.save, found, battle, folder)
    return 1


async def _keep(where: Path, found: Finding, battle: Battle, folder: Path) -> None:
    """Save the finding: the walks before it, as short as they can be."""
    walks: list[Walk] = [walk for port in battle.recent.values() for walk in port]
    numbers = iter(range(1, 1_000_000))

    async def replay(some: Sequence[Walk]) -> Finding | None:
        return await replayed(some, folder / f"replay-{next(numbers)}")

    short = await minimised(walks, found.kind, replay, time.monotonic() + MINIMISE_SECONDS)
    if short is None:
        print("played again, the walks before it led to no such finding; they are saved whole")
    path = save(where, found, short or walks)
    print(f"saved: {path}\nagain: python -m srmp_spark.testing.attack --replay {path}")


def _line(battle: Battle) -> str:
    scene = battle.scene
    worst = battle.worst
    ports = " ".join(f"{port}:{count}" for port, count in sorted(scene.requests.items()))
    return (
        f"requests {sum(scene.requests.values())} ({ports})  sequences {sum(scene.sequences.values())}  "
        f"worst /healthz {worst['healthz'] * 1000:.0f} ms, good sender {worst['srmp'] * 1000:.0f} ms  "
        f"worst memory {battle.target.memory_worst / 1e6:.0f} MB  good messages {battle.acknowledged}"
    )


if __name__ == "__main__":
    sys.exit(main())
