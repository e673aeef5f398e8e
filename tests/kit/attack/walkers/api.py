"""Walks at the API port.

The walks have restricted and missing tokens, wrong and large bodies, and names of other queues.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from random import Random
from typing import Any

from srmp_spark.queue_manager.srmp_port.port_limits import API_CONNECTIONS_MAX
from tests.kit.attack.judge import Finding, FoundError
from tests.kit.attack.scene import OWN, READER_TOKEN, SECRET, SHARED, WRITER_TOKEN, Scene
from tests.kit.attack.steps import Step
from tests.kit.attack.walkers.playing import MUTATOR, HttpPlayer, how, http_request, idle
from tests.kit.attack.wire import Answer

TOKENS = {"reader": READER_TOKEN, "writer": WRITER_TOKEN, "wrong": "x" * 32, "none": ""}
HOSTS = ("127.0.0.1", "localhost", "[::1]evil", "evil.example", "127.0.0.1:1", "[::1]", "")
ORIGINS = ("", "", "", "", "http://localhost:3000", "null", "https://evil.example")
QUEUES = (
    OWN,
    OWN,
    OWN,
    SECRET,
    SHARED,
    "private$/nobody",
    "a" * 200,
    "private$/low;journal",
    "..",
    "%00",
    "private$/*",
)
TARGETS = (
    ("GET", "/v1/status"),
    ("GET", "/metrics"),
    ("GET", "/v1/queues"),
    ("GET", "/v1/queues/{queue}"),
    ("GET", "/readyz"),
    ("PUT", "/v1/queues/{queue}"),
    ("DELETE", "/v1/queues/{queue}"),
    ("POST", "/v1/queues/{queue}/purge"),
    ("POST", "/v1/queues/{queue}/pause"),
    ("POST", "/v1/queues/{queue}/messages"),
    ("POST", "/v1/queues/{queue}/messages"),
    ("GET", "/v1/queues/{queue}/range?after={n}&timeout={n}"),
    ("GET", "/v1/queues/{queue}/rows?after={n}&to={m}"),
    ("GET", "/v1/queues/{queue}/rows?after=0&to={m}&columns=label"),
    ("GET", "/v1/queues/{queue}/rows?after=0&to={m}&columns={name}"),
    ("GET", "/v1/queues/{queue}/holes"),
    ("GET", "/v1/queues/{queue}/first"),
    ("POST", "/v1/subscriptions/resume"),
    ("GET", "/v1/status?summary=1"),
    ("GET", "/v1/status?queues={queue}&limit={n}&after={name}"),
    ("GET", "/v1/queues?limit={n}"),
    ("POST", "/v1/queues/{queue}/consumers/{name}/register"),
    ("POST", "/v1/queues/{queue}/consumers/{name}/received"),
    ("POST", "/v1/queues/{queue}/consumers/{name}/release"),
    ("POST", "/v1/outbox/app/b/stage?partition=0&attempt={n}"),
    ("POST", "/v1/outbox/app/b/commit"),
    ("POST", "/v1/outgoing/messages"),
    ("POST", "/v1/outgoing/states"),
    ("GET", "/v1/subscriptions"),
    ("GET", "/v1/subscriptions/cutover?host=a&queue=b&wait={n}&walk={m}"),
    ("POST", "/v1/subscriptions/cutover"),
    ("GET", "/v1/subscriptions/received-there?host=a&queue=b&lookup_id={n}&message_id={name}"),
    ("PUT", "/v1/subscriptions"),
    ("POST", "/v1/streams/{queue}/discard"),
    ("POST", "/v1/queues/{queue}/give-up"),
    ("DELETE", "/v1/subscriptions?host=a&queue=b"),
    ("POST", "/v1/outgoing/x/pause"),
    ("PATCH", "/v1/{name}"),
)
NUMBERS = ("0", "1", "2", "-1", "9" * 19, "9" * 40, "x", "1e3", "")
SHAPES = ("none", "register", "messages", "list", "deep", "large", "long", "keys", "nan")
"""Kinds of bodies that :func:`body_of` writes."""
LARGE = 7_900_000
"""Bytes of a large body.

The size is below the limit of one request, and expensive for a reader that builds objects of it.
"""
ALLOWED = HttpPlayer.allowed | {201, 204, 409, 410, 421, 422, 507}


class ApiWalker:
    """Plans walks at the API port."""

    port = "api"
    at_once = 1
    is_awaited = False

    def plan(self, rng: Random) -> Sequence[Step]:
        """Return 4 to 30 steps with calls of the API, most of them with the same token."""
        home = rng.choice(("reader", "reader", "writer", "none"))
        return [self._step(rng, home) for _ in range(rng.choice((4, 10, 30)))]

    def _step(self, rng: Random, home: str) -> Step:
        kind = rng.choices(("call", "idle", "many"), (100, 4, 3))[0]
        if kind == "idle":
            return idle(rng)
        method, target = rng.choice(TARGETS)
        given: dict[str, Any] = {
            **how(rng),
            "method": method,
            "target": target,
            "queue": rng.choice(QUEUES),
            "n": rng.choice(NUMBERS),
            "m": rng.choice(NUMBERS),
            "name": rng.choice(("default", f"c{rng.randrange(400)}", "x" * 300)),
            "token": home if rng.random() < 0.8 else rng.choice(tuple(TOKENS)),
            "origin": rng.choice(ORIGINS),
            "host": HOSTS[0] if rng.random() < 0.8 else rng.choice(HOSTS),
            "type": rng.choice(("json", "json", "json", "text")),
            "shape": "none"
            if method == "GET"
            else rng.choices(SHAPES, (6, 20, 20, 3, 3, 3, 3, 3, 3))[0],
        }
        if kind == "many":
            heavy = {
                "shape": rng.choice(("large", "long", "keys")),
                "target": "/v1/queues/{queue}/consumers/{name}/register",
            }
            # The port reads the body only of a request that is allowed.
            served = {
                "token": "reader",
                "origin": "",
                "host": HOSTS[0],
                "type": "json",
            }
            return Step(
                "many",
                {
                    **given,
                    **heavy,
                    **served,
                    "method": "POST",
                    "queue": OWN,
                    "count": rng.choice((4, 12)),
                },
            )
        if rng.random() < 0.15:
            given["mutated"] = rng.randrange(1 << 30)
        return Step("call", given)

    def player(self, scene: Scene) -> ApiPlayer:
        """Return a player for one walk."""
        return ApiPlayer(scene)


class ApiPlayer(HttpPlayer):
    """Plays walks at the API port."""

    port = "api"
    connections_max = API_CONNECTIONS_MAX
    allowed = ALLOWED

    async def play(self, step: Step) -> None:
        """Play one step. Raises :class:`FoundError` for a finding."""
        given = step.given
        if step.kind == "idle":
            await self.stay_idle(given)
        elif step.kind == "many":
            each = self._raw(given)
            await asyncio.gather(*(self.pipeline([each], given) for _ in range(given["count"])))
        else:
            await self._call(given)

    async def _call(self, given: Any) -> None:  # noqa: ANN401  # a mapping of JSON values
        raw = self._raw(given)
        if "mutated" in given:
            raw = MUTATOR.mutate(raw, Random(given["mutated"]))
        sent = (
            f"{given['method']} {given['target']} of {given['token']} with a body of "
            f"kind {given['shape']}"
        )
        answer = await self.request(raw, given, sent)
        if answer is None:
            return
        self.scene.check_secrets(self.port, answer.content)
        if answer.status == 503 and b'"internal"' in answer.content:
            raise FoundError(Finding("answer", f"api says that it has a bug to {sent}"))
        if given["queue"] == SECRET and "mutated" not in given:
            self._check_rights(given["target"], answer, sent)
        if (
            given["token"] in ("none", "wrong")
            and answer.status in (200, 201, 204)
            and given["target"].startswith("/v1")
        ):
            raise FoundError(Finding("rights", f"{sent} was allowed"))

    @staticmethod
    def _check_rights(target: str, answer: Answer, sent: str) -> None:
        """Check the answer to a call for :data:`SECRET`, which no token of the walk may access.

        Raises :class:`FoundError` if the call was allowed.
        """
        if answer.status not in (200, 201, 204) or "{queue}" not in target:
            return
        # The name is only a filter there. A page without the queue reveals nothing.
        if "queues={queue}" in target and SECRET.encode() not in answer.content:
            return
        raise FoundError(Finding("rights", f"{sent} was allowed for {SECRET}"))

    def _raw(self, given: Any) -> bytes:  # noqa: ANN401  # a mapping of JSON values
        port = self.scene.ports["api"][1]
        host = given["host"]
        host = f"{host}:{port}" if host in ("127.0.0.1", "localhost", "[::1]") else host
        headers = {
            "Host": host,
            "Content-Type": "application/json" if given["type"] == "json" else "text/plain",
        }
        if given["origin"]:
            headers["Origin"] = given["origin"]
        if TOKENS[given["token"]]:
            headers["Authorization"] = f"Bearer {TOKENS[given['token']]}"
        values = {
            "queue": given["queue"].replace("/", "%2F"),
            "n": given["n"],
            "m": given["m"],
            "name": given["name"],
        }
        return http_request(
            given["method"], given["target"].format(**values), body_of(given["shape"]), headers
        )


def body_of(shape: str) -> bytes:
    """Return a body of the kind ``shape``, one of :data:`SHAPES`. The kind ``none`` is empty."""
    if shape == "register":
        return json.dumps({"epoch": "e", "from": 1, "holder": "attack"}).encode()
    if shape == "messages":
        return json.dumps({"messages": [{"body_base64": "eA==", "label": "x"}] * 3}).encode()
    if shape == "list":
        return b"[1,2,3]"
    if shape == "deep":
        return b"[" * 50_000 + b"]" * 50_000
    if shape == "large":
        return b'{"a":[' + b"[]," * (LARGE // 3) + b"[]]}"
    if shape == "long":
        return b'{"holder":"' + b"h" * LARGE + b'"}'
    if shape == "keys":
        return b"{" + b",".join(b'"%d":{}' % n for n in range(LARGE // 14)) + b"}"
    return b'{"first":NaN,"epoch":1e999}' if shape == "nan" else b""
