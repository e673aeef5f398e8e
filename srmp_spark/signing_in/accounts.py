r"""Who may sign in at the RPC port: ``--rpc-accounts``, a file of lines ``DOMAIN\user:password``.

An empty line and one that begins with ``#`` say nothing. A domain of ``.`` is any: clients name their own machine, or nothing.
The file holds passwords, because NTLM proves the password itself; nobody but its owner may read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from srmp_spark.errors import ConfigurationError
from srmp_spark.private_files import refuse_open_secret

ACCOUNTS_MAX = 10_000
FILE_MAX = 1_048_576
ANY_DOMAIN = "."


class Accounts:
    """Passwords by name; in no repr."""

    def __init__(self, passwords: Mapping[tuple[str, str], str]) -> None:
        """By (domain, user) in small letters."""
        self._passwords = dict(passwords)

    def passwords_of(self, domain: str, user: str) -> tuple[str, ...]:
        """Those that would be right for this name."""
        keys = ((domain.lower(), user.lower()), (ANY_DOMAIN, user.lower()))
        return tuple(self._passwords[key] for key in keys if key in self._passwords)

    def __len__(self) -> int:
        """Accounts."""
        return len(self._passwords)

    def __repr__(self) -> str:
        return f"<Accounts {len(self._passwords)}>"


def read_accounts(path: Path) -> Accounts:
    """The accounts of a file. Raises :class:`ConfigurationError`, which holds no password."""
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
    found: dict[tuple[str, str], str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, password = line.partition(":")
        domain, backslash, user = name.strip().partition("\\")
        if not colon or not backslash or not domain or not user or not password:
            raise ConfigurationError(f"--rpc-accounts {path}, line {number}: expected DOMAIN\\user:password (DOMAIN . is any)")
        if (domain.lower(), user.lower()) in found:
            raise ConfigurationError(f"--rpc-accounts {path}, line {number}: {domain}\\{user} stands there twice")
        found[domain.lower(), user.lower()] = password
    if not found or len(found) > ACCOUNTS_MAX:
        raise ConfigurationError(f"--rpc-accounts {path}: expected 1 to {ACCOUNTS_MAX} accounts, got {len(found)}")
    return Accounts(found)
