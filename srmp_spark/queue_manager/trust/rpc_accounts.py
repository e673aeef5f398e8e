r"""Parse the accounts of the RPC port and their rights (``[[rpc_account]]``).

    [[rpc_account]]
    name = 'EXAMPLE\reader'                     # a domain of . is any
    password_file = "/etc/srmp-spark/reader.password"  # or nt_hash_file: 32 hexadecimal digits
    queues = ["private$/orders"]                # names or globs; default ["*"]
    verbs = ["peek", "receive"]                 # peek, receive, purge

An account with ``receive`` may peek too, as in Windows. Accounts of the file of ``--rpc-accounts``
may do everything with every queue.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from srmp_spark.errors import ConfigurationError
from srmp_spark.names import base_of_subqueue, queue_matches
from srmp_spark.private_files import refuse_open_secret
from srmp_spark.queue_manager.trust.queue_patterns import parse_pattern
from srmp_spark.signing_in.accounts import ACCOUNTS_MAX, Account, Accounts, is_account_name
from srmp_spark.signing_in.ntlm_crypto import nt_hash

RpcVerb = Literal["peek", "receive", "purge"]
"""Rights of an account.

``peek``: look at messages. ``receive``: receive, move and peek. ``purge``: empty a queue that is
open to receive.
"""
RPC_VERBS: tuple[RpcVerb, ...] = get_args(RpcVerb)
EVERYTHING = "*"
"""Value in ``queues`` that means every queue, also the queue manager's own ones.

No other glob matches these.
"""
SECRET_FILE_MAX = 4_096
"""Most bytes that are read of the file of a password. The rest is not read."""

_KEYS = ("name", "password_file", "nt_hash_file", "queues", "verbs")
_NT_HASH = re.compile(r"[0-9a-fA-F]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcAccount:
    """An account that may sign in at the RPC port, and its rights."""

    account: Account
    queues: tuple[str, ...] = (EVERYTHING,)
    verbs: frozenset[RpcVerb] = frozenset(RPC_VERBS)

    def allows(self, verb: RpcVerb, queue: str) -> bool:
        """Return whether the account has the right ``verb`` to ``queue``, a canonical name.

        A subqueue has the rights of its queue.
        """
        has_verb = verb in self.verbs or (verb == "peek" and "receive" in self.verbs)
        return has_verb and (
            EVERYTHING in self.queues
            or queue_matches(queue, self.queues)
            or self._has_base_of(queue)
        )

    def _has_base_of(self, queue: str) -> bool:
        base = base_of_subqueue(queue)
        return base is not None and queue_matches(base, self.queues)


ALL_QUEUES_ADVICE = (
    "--rpc-accounts gives each account every queue; [[rpc_account]] names queues and verbs"
)
"""Advice to an operator who gives ``--rpc-accounts``."""
UNPROTECTED_ADVICE = (
    "--rpc-min-auth connect neither signs nor seals calls: a server in between can "
    "relay a sign-in and change what follows; privacy protects them"
)
"""Advice to an operator who gives ``--rpc-min-auth connect``."""


class RpcAccounts:
    """All accounts of the RPC port, by name, and what each may do."""

    def __init__(self, of_all_queues: Accounts | None, accounts: Iterable[RpcAccount]) -> None:
        """Combine both kinds of accounts. ``of_all_queues`` are those of ``--rpc-accounts``.

        Raises :class:`ConfigurationError` if two accounts have the same name.
        """
        listed = [RpcAccount(account=each) for each in of_all_queues or ()]
        self._by_name: dict[str, RpcAccount] = {}
        for each in (*listed, *accounts):
            name = each.account.name.lower()
            if name in self._by_name:
                raise ConfigurationError(
                    f"rpc_account: {each.account.name} is listed twice, or in "
                    "--rpc-accounts too; leave one of them"
                )
            self._by_name[name] = each
        self.accounts = Accounts(each.account for each in self._by_name.values())

    def allows(self, identity: str | None, verb: RpcVerb, queue: str) -> bool:
        """Return whether the account ``identity`` has the right ``verb`` to ``queue``.

        ``None`` is a client that did not sign in. It may do everything, because the caller asks for
        it only if no sign-in is demanded.
        """
        if identity is None:
            # This is --rpc-min-auth none, which excludes [[rpc_account]]: every client may do
            # everything.
            return True
        account = self._by_name.get(identity.lower())
        return account is not None and account.allows(verb, queue)

    def __bool__(self) -> bool:
        return bool(self._by_name)

    def __repr__(self) -> str:
        return f"<RpcAccounts {len(self._by_name)}>"


def parse_rpc_accounts(where: str, value: Any) -> tuple[RpcAccount, ...]:  # noqa: ANN401  # a TOML value may be anything
    """Parse the entries of ``[[rpc_account]]`` from their TOML values.

    ``where`` names the key in errors. Raises :class:`ConfigurationError` for a wrong entry, more
    than ACCOUNTS_MAX entries, or a password file that cannot be used.
    """
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise ConfigurationError(
            f"{where}: expected tables, [[rpc_account]] with name, password_file, queues and verbs"
        )
    if len(value) > ACCOUNTS_MAX:
        raise ConfigurationError(f"{where}: ACCOUNTS_MAX is {ACCOUNTS_MAX}, got {len(value)}")
    return tuple(_parse(where, entry) for entry in value)


def _parse(where: str, entry: Mapping[str, object]) -> RpcAccount:
    for key in entry:
        if key not in _KEYS:
            close = difflib.get_close_matches(key, _KEYS, 1, 0.5)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(_KEYS)}"
            raise ConfigurationError(f"{where}: unknown key {key!r}; {hint}")
    name = entry.get("name")
    if not isinstance(name, str) or not is_account_name(name):
        raise ConfigurationError(
            f"{where}: name is 'DOMAIN\\user' ('.\\user' for any domain), got {name!r}"
        )
    where = f"{where}, account {name}"
    queues = entry.get("queues", [EVERYTHING])
    if not isinstance(queues, list) or not queues:
        raise ConfigurationError(
            f'{where}: queues is a list of names or globs, like ["private$/orders"], got {queues!r}'
        )
    return RpcAccount(
        account=Account(name, _hash(where, entry)),
        queues=tuple(parse_pattern(where, each) for each in queues),
        verbs=_verbs(where, entry.get("verbs")),
    )


def _verbs(where: str, given: object) -> frozenset[RpcVerb]:
    if not isinstance(given, list) or not given:
        got = "and is missing" if given is None else f"got {given!r}"
        raise ConfigurationError(f"{where}: verbs is a list of {', '.join(RPC_VERBS)}, {got}")
    unknown = [verb for verb in given if verb not in RPC_VERBS]
    if unknown:
        raise ConfigurationError(
            f"{where}: unknown verb {unknown[0]!r}; known: {', '.join(RPC_VERBS)}"
        )
    return frozenset(given)


def _hash(where: str, entry: Mapping[str, object]) -> bytes:
    """Read the password or its NT hash from the file that the entry names; return the NT hash.

    Secrets are in files, because the configuration is copied to backups and tickets. Raises
    :class:`ConfigurationError` if the file cannot be used.
    """
    if ("password_file" in entry) is ("nt_hash_file" in entry):
        raise ConfigurationError(f"{where}: give password_file or nt_hash_file, one of them")
    key = "password_file" if "password_file" in entry else "nt_hash_file"
    path = entry[key]
    if not isinstance(path, str) or not path:
        raise ConfigurationError(f"{where}: {key} is the name of a file")
    try:
        refuse_open_secret(f"{where}, {key}", path)
        with Path(path).open("rb") as file:
            text = file.read(SECRET_FILE_MAX).decode().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise ConfigurationError(f"{where}: {key} {path} cannot be read: {reason}") from None
    if key == "password_file":
        if not text:
            raise ConfigurationError(f"{where}: {key} {path} is empty")
        return nt_hash(text)
    # The error does not show the text, because it may be the password by mistake.
    if _NT_HASH.fullmatch(text) is None:
        raise ConfigurationError(
            f"{where}: {key} {path} must hold 32 hexadecimal digits, the NT hash of the password"
        )
    return bytes.fromhex(text)
