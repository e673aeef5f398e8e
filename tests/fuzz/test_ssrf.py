"""A hundred URLs in the three places of a message: no connection outside of what is allowed, counted by the kernel (T19)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from srmp_spark.queue_manager.posting.url_policy import (
    Allowed,
    UrlPattern,
    UrlPolicy,
    split_receipt_url,
)
from tests.kit.fuzz.any_address import is_possible
from tests.kit.fuzz.ssrf import FLOOD, PLACES, Found
from tests.kit.fuzz.url_shapes import (
    ALLOWED,
    ALLOWED_PATTERN,
    FORBIDDEN,
    NAMES,
    PORT,
    SENDER,
    VICTIM,
)

needs_a_network_of_its_own = pytest.mark.skipif(
    not is_possible(),
    reason="no network namespaces here: run as root, or allow users to make them "
    "(kernel.unprivileged_userns_clone)",
)


def attacked(directory: Path, *patterns: str) -> Found:
    command = [sys.executable, "-m", "tests.kit.fuzz.ssrf", str(directory), *patterns]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found: Found = json.loads(done.stdout)
    return found


@needs_a_network_of_its_own
def test_nobody_is_called_whom_neither_the_sender_s_address_nor_a_pattern_allows(
    tmp_path: Path,
) -> None:
    found = attacked(tmp_path)
    assert found["outside"] == []
    assert found["begun"] - found["ours"] == found["seen"], (
        "a connection was begun to a port where nobody listens"
    )
    assert all(found["places"][place] >= 100 for place in PLACES), (
        "the URLs did not get as far as a receipt"
    )
    # what is allowed is called, so the test can see calls
    assert found["called"][f"{SENDER} POST /msmq/own HTTP/1.1"] >= 3 * 2
    assert found["called"]["203.0.113.5 POST /msmq/pattern HTTP/1.1"] == 2, (
        "a delivery receipt and a stream receipt"
    )
    # a redirect is an answer like any other: tried again later, never followed
    assert found["called"][f"{SENDER} POST /redirect HTTP/1.1"] >= 4
    assert found["rebound"] >= 2, (
        "the name that changed its address was asked for again, and not called"
    )
    # no amplifier
    assert found["per_message"] == 1
    # How many a second: queue_manager/test_receipts_sender.py
    assert 0.5 * FLOOD <= found["flood"] <= FLOOD


@needs_a_network_of_its_own
def test_the_test_sees_a_call_that_should_not_be(tmp_path: Path) -> None:
    found = attacked(tmp_path, f"http://{VICTIM}:*", "http://127.0.0.1:*")
    assert any(VICTIM in each for each in found["outside"])
    assert any("127.0.0.1" in each for each in found["outside"])


def test_the_list() -> None:
    assert len(FORBIDDEN) >= 100
    assert len(set(FORBIDDEN)) == len(FORBIDDEN)


@pytest.mark.parametrize("url", FORBIDDEN)
def test_the_rule_alone_calls_none_of_them_whatever_their_host_resolves_to(url: str) -> None:
    """Where no namespace can be made, this is what is left: the rule, with every address that the name server would say."""
    try:
        parts = split_receipt_url(url)
    except ValueError:
        return
    policy = UrlPolicy([UrlPattern.parse(ALLOWED_PATTERN)])
    said = [
        address
        for answer in NAMES.get(parts.host, [[VICTIM], ["127.0.0.1"], ["169.254.169.254"]])
        for address in answer
    ]
    verdict = policy.decide(parts, [parts.host, *said], peer=SENDER)
    assert not isinstance(verdict, Allowed), verdict


@pytest.mark.parametrize("url", ALLOWED)
def test_the_rule_calls_those_that_are_allowed(url: str) -> None:
    parts = split_receipt_url(url)
    policy = UrlPolicy([UrlPattern.parse(ALLOWED_PATTERN)])
    resolved = NAMES[parts.host][0] if parts.host in NAMES else [parts.host]
    assert policy.decide(parts, resolved, peer=SENDER) == Allowed(
        "203.0.113.5" if "203" in url else SENDER
    )
    assert parts.port == PORT
