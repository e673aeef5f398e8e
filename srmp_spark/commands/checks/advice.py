"""Advice about options that are valid and doubtful. ``serve`` logs the same at each start."""

from __future__ import annotations

from collections.abc import Iterator

from srmp_spark.commands.checks.report import Check
from srmp_spark.queue_manager.configuration.serve_config import ServeConfig
from srmp_spark.queue_manager.trust.rpc_accounts import ALL_QUEUES_ADVICE, UNPROTECTED_ADVICE
from srmp_spark.queue_manager.trust.tokens import broad_advice
from srmp_spark.queue_manager.trust.writers import NO_HOST_ADVICE, open_forwarding

NAME = "advice"


def advice_checks(config: ServeConfig) -> Iterator[Check]:
    """Yield a check for each doubtful option. All of them pass, because ``serve`` starts."""
    for token in config.all_tokens().broad():
        because, do = broad_advice(token)
        yield Check(NAME, True, f"token {token.name}: {because}", do)
    if config.rpc is not None and config.rpc_accounts is not None:
        text, _, hint = ALL_QUEUES_ADVICE.partition("; ")
        yield Check(NAME, True, text, hint)
    if config.rpc is not None and config.rpc_auth_level == "connect":
        text, _, hint = UNPROTECTED_ADVICE.partition("; ")
        yield Check(NAME, True, text, hint)
    if config.store_and_forward and not config.allow_url:
        yield Check(NAME, True, "nothing is forwarded", NO_HOST_ADVICE)
    if config.forwarding.is_on and (overlooked := open_forwarding(config.writer)) is not None:
        text, _, hint = overlooked.partition("; ")
        yield Check(NAME, True, text, hint)
