"""Run in a network namespace of its own: an interface is deleted and made anew under a queue manager that multicasts to itself.

    unshare -rn python tests/pgm/interface_session.py FOLDER

Prints what it saw; exit code 1 and a traceback if anything else came.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from multicast_kit import GROUP, LISTENING, last, rows, send, until

from srmp_spark.testing.queue_manager import RunningQueueManager

NAME, ADDRESS = "srmp0", "10.77.0.1"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, timeout=20)


def make() -> None:
    ip("link", "add", NAME, "type", "veth", "peer", "name", "srmp1")
    ip("addr", "add", f"{ADDRESS}/24", "dev", NAME)
    for each in (NAME, "srmp1"):
        ip("link", "set", each, "up")


def main(folder: Path) -> None:
    ip("link", "set", "lo", "up")
    make()
    running = RunningQueueManager(
        folder / "data", queues=[LISTENING], pgm="udp:30121", pgm_interface=NAME
    )
    with running:
        multicast(running, 1)
        until(lambda: last(running) == 3, "three messages came")
        ip("link", "del", NAME)
        until(lambda: "pgm.deaf" in running.stderr(), "the log says that nothing can be heard")
        make()
        until(lambda: "pgm.joined_again" in running.stderr(), "the group was joined again")
        until(lambda: "pgm.sends_again" in running.stderr(), "the sender has sockets again")
        multicast(running, 4)
        until(lambda: last(running) == 6, "and three more")
        bodies = [bytes(each["body"]) for each in rows(running)]
        assert bodies == [b"price %d" % number for number in range(1, 7)], bodies
        assert "Traceback" not in running.stderr()
        print("heard 6 of 6, in order")


def multicast(running: RunningQueueManager, first: int) -> None:
    send(
        running,
        [
            {"destination": f"MULTICAST={GROUP}", "body": b"price %d" % (first + n)}
            for n in range(3)
        ],
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
