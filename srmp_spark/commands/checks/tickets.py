"""Check that subscriptions which sign in with Kerberos and without a user have a source of tickets.

The machine's Kerberos libraries take tickets from a cache (``kinit``), or from a client keytab.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from srmp_spark.commands.checks.report import Check
from srmp_spark.errors import ConfigurationError
from srmp_spark.private_files import refuse_open_secret
from srmp_spark.queue_manager.configuration.serve_config import ServeConfig

NAME = "kerberos"
KEYTAB_BEGINS = b"\x05\x02"
"""First bytes of a keytab, which name its format."""


def ticket_checks(
    config: ServeConfig, environment: Mapping[str, str] = os.environ
) -> Iterator[Check]:
    """Yield whether there is a cache or a keytab, if a subscription needs one. No ticket is asked.

    ``environment`` may name both, as for the Kerberos libraries.
    """
    needing = [
        each.host.text
        for each in config.subscription
        if each.credentials.level != "none"
        and each.credentials.protocol != "ntlm"
        and not each.credentials.user
    ]
    if needing:
        yield _source(", ".join(dict.fromkeys(needing)), environment)


def _source(hosts: str, environment: Mapping[str, str]) -> Check:
    cache = environment.get("KRB5CCNAME", f"FILE:/tmp/krb5cc_{os.geteuid()}")  # MIT's default
    keytab = environment.get("KRB5_CLIENT_KTNAME", "").removeprefix("FILE:")
    kind, colon, name = cache.partition(":")
    path = Path(name if colon else cache)
    if keytab:
        return _keytab(Path(keytab), hosts)
    if colon and kind not in ("FILE", "DIR"):
        return Check(NAME, True, f"tickets for {hosts} come from {cache}, which is not looked at")
    if os.access(path, os.R_OK, effective_ids=True):
        return Check(NAME, True, f"tickets for {hosts} come from {path}, which is not opened")
    hint = (
        "kinit as the user of serve, or name a client keytab by KRB5_CLIENT_KTNAME, or give the "
        "subscription username and password_file"
    )
    return Check(NAME, False, f"no ticket for {hosts}: {path} cannot be read", hint)


def _keytab(path: Path, hosts: str) -> Check:
    try:
        refuse_open_secret("KRB5_CLIENT_KTNAME", path)
        with path.open("rb") as file:
            is_keytab = file.read(len(KEYTAB_BEGINS)) == KEYTAB_BEGINS
    except ConfigurationError as error:
        text, _, hint = str(error).rpartition(": ")
        return Check(NAME, False, text, hint)
    except OSError as error:
        hint = "name a keytab that the user of serve can read"
        return Check(NAME, False, f"KRB5_CLIENT_KTNAME {path}: {error.strerror}", hint)
    if not is_keytab:
        return Check(NAME, False, f"{path} is no keytab", "make it with ktutil or ktpass")
    return Check(NAME, True, f"tickets for {hosts} come from the keytab {path}")
