"""Puts secret messages into the target before the attack begins."""

from __future__ import annotations

import http.client

from srmp_spark.testing.foreign.messages import ForeignMessage, post
from tests.kit.attack.scene import CANARY, OWN, SECRET, Scene

OWNER = "5e1f0d5e-1f0d-5e1f-0d5e-1f0d5e1f0d5e"
"""The queue manager that sends to :data:`SECRET`, and to no other queue."""
NEIGHBOUR = "5e1f0d5e-1f0d-5e1f-0d5e-1f0d5e1f0d5f"
"""The queue manager whose message the restricted identities may read."""


def leave_secrets(scene: Scene) -> None:
    """Post two messages to the secret queue, and one of 4 MB to the restricted tokens' queue.

    The identity of the secret messages' sender becomes a secret too. Raises :class:`RuntimeError`
    if the target refuses a message.
    """
    host, port = scene.ports["srmp"]
    scene.secrets.add(OWNER)
    for number in (1, 2):
        _leave(
            scene,
            ForeignMessage(
                to=f"http://{host}:{port}/msmq/{SECRET}",
                lineage=OWNER,
                uniquifier=number,
                label=CANARY,
                sent_at=1_790_000_000,
                body=CANARY.encode() * 20,
            ),
        )
    large = ForeignMessage(
        to=f"http://{host}:{port}/msmq/{OWN}",
        lineage=NEIGHBOUR,
        uniquifier=1,
        sent_at=1_790_000_000,
        body=bytes(4_000_000),
    )
    _leave(scene, large)


def _leave(scene: Scene, message: ForeignMessage) -> None:
    head, _, content = post(message).raw.partition(b"\r\n\r\n")
    connection = http.client.HTTPConnection(*scene.ports["srmp"], timeout=30)
    fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    connection.request("POST", message.queue_path, content, fields)
    answer = connection.getresponse()
    if answer.status != 200:
        raise RuntimeError(
            f"what lies there before was answered {answer.status} "
            f"{answer.headers.get('Srmp-Reason')}"
        )
    connection.close()
