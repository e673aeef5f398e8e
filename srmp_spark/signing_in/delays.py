"""How long a sign-in must wait after others failed.

**Theory of operation.** A failure counts for the address that it came from, and for the account that it
named. After FREE_OF_ACCOUNT (FREE_OF_ADDRESS) failures the next attempt must wait a second, and each
further failure doubles the wait, up to DELAY_MAX_S. An attempt that comes too early is refused before
its proof is looked at, and counts for nothing. FORGET_S without a failure ends it all.

A stranger must not be able to lock an account's owner out. Therefore an address from which the account
has signed in counts for itself: there the failures of other addresses delay nothing. A name that no
account has counts for its address alone, so names that are made up fill no table.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

FREE_OF_ACCOUNT: Final = 3
"""Failures of an account before its next attempt must wait: a human mistypes."""
FREE_OF_ADDRESS: Final = 10
"""Failures of an address before its next attempt must wait: many clients may stand behind one."""
DELAY_MAX_S: Final = 60.0
"""Seconds that an attempt waits at most: 1,440 guesses a day."""
FORGET_S: Final = 900.0
"""Seconds after the last failure at which all failures before it are forgotten."""
ENTRIES_MAX: Final = 10_000
"""Accounts and addresses with failures; beyond them the one that failed longest ago is forgotten."""
KNOWN_MAX: Final = 10_000
"""Addresses that accounts have signed in from; beyond them the one unused for longest is forgotten."""

Key = tuple[str, ...]


@dataclass(slots=True)
class _Failures:
    count: int = 0
    last: float = 0.0


class SignInDelays:
    """The failures of all accounts and addresses. Time is an argument."""

    def __init__(self) -> None:
        self._failures: OrderedDict[Key, _Failures] = OrderedDict()
        self._known: OrderedDict[Key, None] = OrderedDict()

    def seconds_to_wait(self, address: str, accounts: Iterable[str], now: float) -> float:
        """Return how long an attempt of ``address`` at one of ``accounts`` must wait; 0: it may be judged."""
        return max((self._wait_of(key, now) for key in self._keys(address, accounts)), default=0.0)

    def failed(self, address: str, accounts: Iterable[str], now: float) -> None:
        """Count an attempt that was judged, and failed."""
        for key in self._keys(address, accounts):
            failures = self._failures.setdefault(key, _Failures())
            if now - failures.last > FORGET_S:
                failures.count = 0
            failures.count += 1
            failures.last = now
            self._failures.move_to_end(key)
        while len(self._failures) > ENTRIES_MAX:
            self._failures.popitem(last=False)

    def succeeded(self, address: str, account: str) -> None:
        """Remember that ``account`` signs in from ``address``. Failures that others made stay counted."""
        key = ("both", address, account)
        self._known[key] = None
        self._known.move_to_end(key)
        self._failures.pop(key, None)
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)

    def __len__(self) -> int:
        """Accounts and addresses with failures."""
        return len(self._failures)

    def _keys(self, address: str, accounts: Iterable[str]) -> list[Key]:
        both = [("both", address, account) for account in accounts]
        if both and all(key in self._known for key in both):
            return list(both)
        return [("address", address), *(("account", account) for _, _, account in both)]

    def _wait_of(self, key: Key, now: float) -> float:
        failures = self._failures.get(key)
        if failures is None or now - failures.last > FORGET_S:
            return 0.0
        beyond = failures.count - (FREE_OF_ADDRESS if key[0] == "address" else FREE_OF_ACCOUNT)
        if beyond < 0:
            return 0.0
        delay = min(2.0 ** min(beyond, 10), DELAY_MAX_S)
        return max(0.0, failures.last + delay - now)
