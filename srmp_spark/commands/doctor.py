"""``doctor``: find out why messages do not arrive, and name the flag to set.

The command asks the API and connects to the SRMP port. With ``--queue`` it posts a real message
marked ``Srmp-Probe: 1``. The queue manager judges the probe like any other message, but does not
store it (204), and no metric of refusals counts it. A sender sees only "400" and deletes its
message; the report shows the reason.

Without ``--url`` each ``--host-name`` of the queue manager is tried at the port where it listens.
With ``--url`` the probe takes the path of the senders: DNS, NAT, a reverse proxy, or a host name
that the queue manager does not know.
"""

from __future__ import annotations

import argparse
import http.client
from collections.abc import Iterator
from typing import Any

from srmp_spark.commands.checks.knock import (
    DEFAULT_PORT,
    authority_of,
    connection_to,
    knock,
    reachable,
)
from srmp_spark.commands.checks.outgoing import outgoing_checks
from srmp_spark.commands.checks.report import Check, report
from srmp_spark.commands.common import (
    Commands,
    add_command,
    add_connection_flags,
    connect,
)
from srmp_spark.errors import ConfigurationError
from srmp_spark.names import UrlParts, local_queue_name, nearest_queue_name, split_url

PROBE_GUID = "00000000-0000-0000-0000-00000000d0c7"
"""Queue manager identifier in the probe. The receiver stores nothing under it."""
DAMAGED_HINT = 'look at docs/troubleshooting.md, "Damaged rows"'

_DESCRIPTION = """\
Find out why messages do not arrive, and which flag or setting to change.

Run it when a sender reports an error, or when its messages disappear: a sender sees only "400",
this report names the reason. It checks the API, the SRMP port, the Delta state, receipts, streams,
subscriptions, and destinations that do not answer. With --queue it also posts a probe, which the
queue manager judges like any message but does not store."""

_EXAMPLES = """\
examples:
  everything that can be seen without a message:
    srmp-spark doctor --table
  would the queue manager accept a message to this queue?
    srmp-spark doctor --queue 'private$/orders' --table
  the same by the host name that senders use, through DNS, NAT and proxies:
    srmp-spark doctor --queue 'private$/orders' --url http://msmq.example --table

output: one JSON object a check, with check, ok, detail and hint. Exit code 1: a check failed"""

EXPLANATIONS: dict[str, tuple[str, str]] = {
    "foreign-host": (
        (
            "the host in <to> is not known as this queue manager: a name or address that it "
            "does not have itself (DNS alias, NAT)"
        ),
        "serve --host-name {host}, or --public-url with the URL that senders use",
    ),
    "forward-not-allowed": (
        (
            "the host in <to> is not known as this queue manager, and none that messages are "
            "forwarded to"
        ),
        "serve --host-name {host} if it is this one, --allow-url http://{host} to forward to it",
    ),
    "unforwardable": (
        (
            "the message is for another host, and cannot be sent on as it is: a signature, a "
            "SOAP body, a query, <DeadLetter/>"
        ),
        "the error that the sender was told says which; send it there directly",
    ),
    "too-many-destinations": (
        (
            "the message is for another host, and messages wait for as many others as may be "
            "(FORWARD_DESTINATIONS_MAX)"
        ),
        (
            "srmp-spark streams lists those that do not answer; narrow --allow-url to the "
            "queues that are meant"
        ),
    ),
    "unknown-queue": (
        "there is no queue of that name here",
        (
            "srmp-spark queue create {queue}, or serve --queue {queue}; with --unknown-queue "
            "retry senders keep the message"
        ),
    ),
    "transactional-queue": (
        "the queue is transactional and takes only messages of a stream",
        "send in a transaction, or use a queue without :transactional",
    ),
    "not-transactional": (
        "the queue is not transactional and takes no messages of a stream",
        "serve --queue {queue}:transactional, or send without a transaction",
    ),
    "bad-destination": (
        "<to> is not a queue URL",
        "senders use DIRECT=http://HOST/msmq/private$/NAME",
    ),
    "target": (
        "the request line names no queue",
        "the path must be /msmq/NAME or /msmq/private$/NAME: does a proxy rewrite it?",
    ),
    "malformed": (
        "the message cannot be read",
        "a proxy may have changed it; srmp-spark capture makes a fixture for a bug report",
    ),
    "malformed-http": (
        "the HTTP request cannot be read",
        "a proxy between sender and queue manager may have changed it",
    ),
    "content-encoding": (
        "something between sender and queue manager compresses requests",
        "switch that off for /msmq",
    ),
    "not-a-writer": (
        "the queue takes messages only from its writers",
        (
            "the log has the [[writer]] that would let this sender in; a probe is judged like "
            "a sender at this address"
        ),
    ),
    "stream-sender": (
        "the stream was begun by another authenticated sender",
        (
            "if it is the same one under a new name: srmp-spark streams drop --queue {queue} "
            "--stream ID"
        ),
    ),
    "no-receipts-url": (
        "the first message of a stream names no address for stream receipts",
        "the sender must have an order queue; Windows always names one",
    ),
    "stream-limit": (
        "there are as many streams as there may be, and all of them were used within a day",
        "srmp-spark streams lists them; drop old ones with srmp-spark streams drop",
    ),
    "paused": ("the queue is paused", "srmp-spark queue resume NAME"),
    "quota": (
        "the queue holds more unreceived bytes than its quota",
        "receive from it, or raise --queue-quota-bytes",
    ),
    "machine-quota": (
        "all queues together hold more unreceived bytes than --machine-quota-bytes",
        "srmp-spark queues --table shows which; receive from them, or raise the quota",
    ),
    "order-queue": (
        "the order queue takes stream receipts and no other messages",
        "send to a queue of your own",
    ),
    "order-queue-full": (
        "the order queue holds as many receipts as it may",
        "wait: the sender process reads them; srmp-spark status shows whether it runs",
    ),
    "reserved-queue": (
        "the queue is reserved for messages that are forwarded",
        "send to a queue of your own",
    ),
    "journal-queue": (
        "the queue is a journal, which is read only",
        "send to the queue itself; its journal shows the message when it was received",
    ),
    "multicast": (
        "no queue here listens on the multicast address in <to>",
        "serve --queue NAME:multicast=ADDRESS:PORT",
    ),
    "expired": (
        "the time to reach the queue had passed when the message arrived",
        "compare both clocks, or give messages more time; --expired keep stores them",
    ),
    "invalid-signature": (
        "the XML signature of the message is wrong, and --invalid-signature refuse is set",
        "--invalid-signature keep stores such messages with signature_status invalid",
    ),
    "loop": (
        "the message has come back to a queue manager that forwarded it before",
        "remove the loop from the [[redirect]] tables of the queue managers on its way",
    ),
    "too-many-hops": (
        "more queue managers have forwarded the message than may do so (HOPS_MAX)",
        "look for a loop in the [[redirect]] tables of the queue managers on its way",
    ),
    "token": (
        "the request carries a token that this queue manager does not know",
        "give the sender the token of a [[writer]], or none",
    ),
    "internal": (
        "the queue manager met a bug of its own",
        "its log has the details; please report them",
    ),
    "older-copy": (
        "the data directory is an older copy of what the Delta state holds",
        "put the newer data directory back, or start with an empty one",
    ),
    "disk-full": (
        "too little disk is free below the data directory",
        "free some; messages are accepted again at once",
    ),
    "too-many-connections": (
        "all connections are in use",
        "raise the limit of open files (ulimit -n)",
    ),
    "method": (
        "the request did not arrive as a POST",
        "a proxy or a redirect changed it: senders must reach the port directly",
    ),
    "too-many-bytes": (
        "unfinished requests of all senders hold as many bytes as they may",
        "wait: the sender tries again; look for connections that send and never finish",
    ),
    "slow-head": (
        "the head of the request did not arrive in time (HEAD_SECONDS)",
        "look at the network, or the proxy, between sender and queue manager",
    ),
    "slow-body": (
        "the body of the request arrives more slowly than it may (BODY_RATE_MIN)",
        "look at the network, or the proxy, between sender and queue manager",
    ),
    "half-closed": (
        "the sender ended its side of the connection in the middle of a request",
        "look for a proxy or a firewall that closes connections early",
    ),
    "head-too-long": (
        "the head of the request has more bytes than it may (HEAD_MAX)",
        "find what adds header fields: a proxy, or cookies",
    ),
    "too-many-headers": (
        "the head of the request has more lines than it may (HEAD_LINES_MAX)",
        "find what adds header fields: a proxy",
    ),
    "repeated-header": (
        "a header field that may stand once is there twice",
        "find what adds it: a proxy between sender and queue manager",
    ),
    "target-too-long": (
        "the target of the request is longer than it may be (TARGET_MAX)",
        "use a shorter queue name; no queue of MSMQ needs a longer one",
    ),
    "host-missing": (
        "the request has no header field Host, which HTTP/1.1 requires",
        "a proxy may have removed it",
    ),
    "http-version": (
        "the request has another version than HTTP/1.0 and HTTP/1.1",
        "let the proxy speak HTTP/1.1 to this port",
    ),
    "transfer-encoding": (
        "the body has another transfer coding than chunked, or has one in HTTP/1.0",
        "let the proxy send Content-Length, or chunked over HTTP/1.1",
    ),
    "chunked": (
        "the chunks of the body cannot be read, or have too many bytes together",
        "a proxy may have changed them; let it send Content-Length",
    ),
    "length-missing": (
        "the request has neither Content-Length nor chunks",
        "let the proxy send one of them",
    ),
    "content-too-large": (
        "the body is larger than a message may be (CONTENT_MAX)",
        "send smaller messages: MSMQ has a limit of 4 MiB itself",
    ),
    "expectation": (
        "the request has a header field Expect other than 100-continue",
        "a proxy may have added it",
    ),
    "media-type": (
        "the body is no SOAP message in UTF-8, at the port of --listen-wsrm",
        "send text/xml or application/soap+xml without MTOM",
    ),
}
"""Code of the header ``Srmp-Reason`` → (meaning, advice to the operator of the receiver)."""


def add_commands(commands: Commands[Any]) -> None:
    """Add the command ``doctor`` to ``commands``."""
    parser = add_command(
        commands,
        "doctor",
        words="find out why messages do not arrive",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    parser.add_argument(
        "--queue", metavar="NAME", help="post a probe to this queue; it is judged but not stored"
    )
    parser.add_argument(
        "--url",
        metavar="URL",
        help="the SRMP port as senders reach it, http://HOST[:PORT] (default: the address on "
        "which the queue manager listens)",
    )
    add_connection_flags(parser, shows=True)
    parser.set_defaults(run=_doctor)


def _doctor(args: argparse.Namespace) -> int:
    return report(_checks(args), table=args.table)


def _checks(args: argparse.Namespace) -> Iterator[Check]:
    client = connect(args)
    status = client.status()
    yield Check(
        "api",
        True,
        f"queue manager {status['queue_manager']}, version {status['version']}, at {client.url}",
    )
    ready = bool(status["ready"])
    yield Check(
        "ready",
        ready,
        "accepts messages" if ready else "does not accept messages",
        "" if ready else _gate_hint(status),
    )
    yield from _port_checks(args, status)
    yield from _trouble(status)


def _port_checks(args: argparse.Namespace, status: dict[str, Any]) -> Iterator[Check]:
    """Yield whether messages of a sender reach the SRMP port, and the queue that was named."""
    try:
        url = split_url(args.url) if args.url else reachable(split_url(status["listening"][0]))
    except ValueError as error:
        raise ConfigurationError(f"--url: {error}") from None
    knocked = knock(url)
    yield knocked
    if args.queue is not None and knocked.ok:
        queue = local_queue_name(args.queue)
        described = next((each for each in status["queues"] if each["name"] == queue), None)
        if described is None:
            close = nearest_queue_name(queue, (each["name"] for each in status["queues"]))
            if close:
                yield Check(
                    "queue", False, f"there is no queue {queue}", f"did you mean {close!r}?"
                )
        names = [] if args.url else [name for name in status["host_names"] if name != url.host]
        for host in (url.host, *names):
            yield _probe(
                url, queue, host, transactional=bool(described and described["transactional"])
            )
        if not args.url:
            yield _senders(url, names)


def _trouble(status: dict[str, Any]) -> Iterator[Check]:
    """Yield what ``status`` shows that needs the attention of an operator."""
    # Older queue managers hold no copies.
    if held := status.get("held_copy"):
        yield Check(
            "copy",
            False,
            f"held since {held['since']}, because {held['because']}: {held['what']}",
            held["do"],
        )
    for blocked in status["blocked_urls"]:
        yield Check(
            "receipts",
            False,
            f"{blocked['count']} receipts to {blocked['host']} were not sent: no rule "
            "allows the URL that the messages name",
            blocked_hint(blocked),
        )
    for row in status.get("set_aside", ()):
        yield Check(
            "store",
            False,
            f"row {row['key']!r} of table {row['table']} cannot be read, and was set "
            f"aside: {row['reason']}",
            "its bytes stay in the store: start the release that wrote it, and look at "
            'docs/troubleshooting.md, "Rows that were set aside"',
        )
    yield from state_checks(status)
    # Older queue managers do not report dead letters.
    if dead := status.get("dead_letters"):
        counts = ", ".join(f"{reason} {rows}" for reason, rows in sorted(dead.items()))
        yield Check(
            "dead-letters",
            True,
            f"{sum(dead.values())} messages became dead letters since the outbox was "
            f"made: {counts}",
            "sender.dead in the log counts them by destination and reason; --state has them in "
            "dead_letter_queue, deadLetterQueue in a queue",
        )
    for described in status["queues"]:
        if described["damaged"]:
            yield Check(
                "queue",
                False,
                f"{described['name']} is damaged: {described['damaged']}",
                DAMAGED_HINT,
            )
    for reading in status["subscriptions"]:
        if reading["last_error"] is not None:
            text = f"{reading['queue']} of {reading['host']}: {reading['last_error']}"
            yield Check(
                "subscription", False, text, 'look at docs/troubleshooting.md, "Remote queues"'
            )
    yield from outgoing_checks(status)
    for stream in status["incoming_streams"]:
        if stream["gap_at"] is not None:
            yield Check(
                "stream",
                False,
                f"stream {stream['stream_id']} to {stream['queue']} waits for position "
                f"{stream['gap_at']} "
                f"({stream['reject_count']} messages behind it were refused)",
                "look into the sender's outgoing queue for it; what it deleted will never come",
            )


def state_checks(status: dict[str, Any]) -> Iterator[Check]:
    """Yield the checks of the Delta state: failed publishing, rows that are gone, and the lag.

    ``status`` is the answer of ``/v1/status``. Nothing is yielded if the queue manager publishes no
    state.
    """
    state = status["state"]
    # Older queue managers do not report failures.
    failed = state.get("failed")
    if failed is not None:
        what = "has ended" if failed["ended"] else "fails"
        reason = failed["reason"] or "the reason is told to a token for all queues"
        text = f"publishing of {failed['of']} {what} since {failed['since']}: {reason}"
        yield Check("state", False, text, failed["remedy"])
    for gone in state.get("rows_gone", ()):
        text = (
            f"rows {gone['first']} to {gone['last']} of {gone['queue']} (epoch "
            f"{gone['epoch']}) were taken out of inbox"
        )
        hint = (
            "the log does not have them any more: RESTORE inbox to the version before "
            "they went, or read that version"
        )
        yield Check("state", False, text, hint)
    if failed is None and state["uri"] is not None:
        yield Check(
            "state", True, f"published to {state['uri']}, {state['lag_seconds']:.0f} s behind"
        )


def _senders(url: UrlParts, names: list[str]) -> Check:
    """Return the check that lists the host names of the probes, and how to probe another name.

    A sender may write a host name that neither the flags nor the queue manager know.
    """
    told = f"by {', '.join(names)} too" if names else "by no other name: there is no --host-name"
    name = names[0] if names else "NAME"
    port = "" if url.port == DEFAULT_PORT[url.scheme] else f":{url.port}"
    return Check(
        "senders",
        True,
        f"tried from this host by {url.host}, {told}; a message that names another host "
        "is answered 400 and deleted",
        f"try what the senders write: doctor --url {url.scheme}://{name}{port} --queue …",
    )


def blocked_hint(blocked: dict[str, Any]) -> str:
    """Return advice for one entry of ``blocked_urls``.

    The advice is the ``--allow-url`` flags that permit the receipts. An entry without patterns gets
    the advice to read ``receipt.blocked`` in the log.
    """
    # Older queue managers do not report patterns.
    patterns = blocked.get("patterns", [])
    if patterns:
        return "serve " + " ".join(f"--allow-url {pattern}" for pattern in patterns)
    return (
        "receipt.blocked in the log says why: no --allow-url helps a malformed URL, or "
        "a host without an address there"
    )


def _gate_hint(status: dict[str, Any]) -> str:
    return f"{status['disk_free_bytes']} bytes are free on its disk; /readyz and the log say more"


def _probe(url: UrlParts, queue: str, host: str, *, transactional: bool) -> Check:
    """Send a message that the queue manager judges and does not store; return the check.

    ``host`` is the host name in the message's destination and in the field ``Host``. A
    ``transactional`` probe is the first message of a stream.
    """
    from srmp_spark.message import Message, StreamId, StreamPosition
    from srmp_spark.srmp.codec.encoder import encode

    authority = authority_of(url._replace(host=host))
    where = f"{url.scheme}://{authority}/msmq/{queue}"
    stream = (
        StreamPosition(StreamId(PROBE_GUID, 1), 1, 0, True, f"{where}") if transactional else None
    )
    message = Message(
        destination=where,
        action="MSMQ:srmp-spark doctor",
        lineage=PROBE_GUID,
        has_msmq=True,
        durable=True,
        stream=stream,
        body=b"probe",
    )
    content_type, content = encode(message, boundary="MSMQ - SOAP boundary, 1")
    try:
        connection = connection_to(url)
        headers = {
            "Host": authority.encode("utf-8").decode("latin-1"),
            "Content-Type": content_type.decode("ascii"),
            "SOAPAction": '"MSMQMessage"',
            "Srmp-Probe": "1",
        }
        connection.request(
            "POST",
            f"/msmq/{queue}".replace(" ", "%20").encode("utf-8").decode("latin-1"),
            content,
            headers,
        )
        answer = connection.getresponse()
        answer.read()
        connection.close()
    except (OSError, http.client.HTTPException) as error:
        return Check(
            "probe",
            False,
            f"{where}: {error}",
            "the connection breaks while a message is sent: a proxy or a firewall",
        )
    return judge(answer.status, answer.headers.get("Srmp-Reason"), queue=queue, host=host)


def judge(status: int, reason_header: str | None, *, queue: str, host: str) -> Check:
    """Return the check for the answer to a probe.

    ``status`` and ``reason_header`` are the HTTP status and the field ``Srmp-Reason`` of the
    answer. ``queue`` and ``host`` were probed and appear in the advice.
    """
    if status == 204:
        return Check("probe", True, f"a message to {queue} by host {host} would be accepted")
    reason, _, section = (reason_header or "").partition("; ")
    if not reason:
        return Check(
            "probe",
            False,
            f"answered {status} without a reason",
            "the answer is not from srmp-spark: a proxy refuses the message",
        )
    meaning, hint = EXPLANATIONS.get(
        reason, (f"refused: {reason}", "the section says which rule was broken")
    )
    fate = (
        "the sender deletes the message" if status == 400 else "the sender keeps it and tries again"
    )
    return Check(
        "probe",
        False,
        f"answered {status} {reason} ({section}): {meaning}; {fate}",
        hint.format(queue=queue, host=host),
    )
