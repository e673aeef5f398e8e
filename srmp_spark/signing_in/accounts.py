r"""Read the accounts that may sign in at the RPC port, from the file of ``--rpc-accounts``.

The file has lines ``DOMAIN\user:password``. Empty lines and lines that begin with ``#`` are
ignored. The domain ``.`` matches any domain, because clients name their own machine or no domain.
The file holds passwords, because NTLM proves the password itself. So only the owner of the file may
have access to it. Memory holds only the NT hash of each password. The hash proves an account as
well as the password does, and is guarded like the password.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from srmp_spark.errors import ConfigurationError
from srmp_spark.private_files import refuse_open_secret
from srmp_spark.signing_in.ntlm_crypto import nt_hash

ACCOUNTS_MAX = 10_000
FILE_MAX = 1_048_576
ANY_DOMAIN = "."


@dataclass(frozen=True, slots=True)
class Account:
    """One account that may sign in."""

    name: str
    r"""``DOMAIN\user``, spelled as in the configuration."""
    nt_hash: bytes = field(repr=False)

    @property
    def key(self) -> tuple[str, str]:
        """Return (domain, user) in small letters.

        Two names that differ only in case are one account.
        """
        domain, _, user = self.name.lower().partition("\\")
        return domain, user


class Accounts:
    """A collection of accounts, found by name. Its repr shows no secret."""

    def __init__(self, accounts: Iterable[Account]) -> None:
        self._accounts = {account.key: account for account in accounts}

    def of(self, domain: str, user: str) -> tuple[Account, ...]:
        """Return the accounts that the name may mean.

        They are the account of ``domain`` with this user, and then the account with this user in
        any domain (``.``). The tuple is empty if no account matches. Case is ignored.
        """
        keys = ((domain.lower(), user.lower()), (ANY_DOMAIN, user.lower()))
        return tuple(self._accounts[key] for key in keys if key in self._accounts)

    def __iter__(self) -> Iterator[Account]:
        """Iterate over all accounts of the collection."""
        return iter(self._accounts.values())

    def __len__(self) -> int:
        """Return the number of accounts."""
        return len(self._accounts)

    def __repr__(self) -> str:
        return f"<Accounts {len(self._accounts)}>"


def is_account_name(text: str) -> bool:
    r"""Return whether ``text`` has the form ``DOMAIN\user``.

    Both parts must be non-empty and printable, without white space around the name.
    """
    domain, backslash, user = text.partition("\\")
    return bool(domain and backslash and user) and text.isprintable() and text == text.strip()


def read_accounts(path: Path) -> Accounts:
    """Return the accounts of the file at ``path``.

    Raises :class:`ConfigurationError` if the file cannot be read, is open to other users, is larger
    than ``FILE_MAX`` bytes, has an invalid line, names an account twice, or does not have 1 to
    ``ACCOUNTS_MAX`` accounts. The text of the error holds no password.
    """
    try:
        refuse_open_secret("--rpc-accounts", path)
        with path.open("rb") as file:
            data = file.read(FILE_MAX + 1)
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"--rpc-accounts {path}: cannot be read: {error}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"--rpc-accounts {path}: is not UTF-8") from None
    if len(data) > FILE_MAX:
        raise ConfigurationError(f"--rpc-accounts {path}: has more than {FILE_MAX} bytes")
    found: dict[tuple[str, str], Account] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, password = line.partition(":")
        name = name.strip()
        if not colon or not is_account_name(name) or not password:
            raise ConfigurationError(
                f"--rpc-accounts {path}, line {number}: expected DOMAIN\\user:password "
                "(DOMAIN . is any)"
            )
        account = Account(name, nt_hash(password))
        if account.key in found:
            raise ConfigurationError(
                f"--rpc-accounts {path}, line {number}: {name} stands there twice"
            )
        found[account.key] = account
    if not found or len(found) > ACCOUNTS_MAX:
        raise ConfigurationError(
            f"--rpc-accounts {path}: expected 1 to {ACCOUNTS_MAX} accounts, got {len(found)}"
        )
    return Accounts(found.values())
