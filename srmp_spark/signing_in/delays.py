"""Delay sign-ins after others failed, so that passwords cannot be guessed quickly.

**Theory of operation.** A failure counts for the address that the attempt is from, and for the
account that it names. After FREE_OF_ACCOUNT (or FREE_OF_ADDRESS) failures the next attempt must
wait one second. Each further failure doubles the wait, up to DELAY_MAX_S. An attempt that is made
too early is refused before its proof (of the password) is checked, and does not count as a failure.
After FORGET_S without a failure, all failures of the account or address are forgotten.

An unauthenticated client must not be able to lock out the owner of an account. Therefore an address
from which the account has signed in before has a counter of its own: failures of other addresses do
not delay it. A name that belongs to no account counts for its address alone, so invented names
cannot fill a table.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

FREE_OF_ACCOUNT: Final = 3
"""Failures of an account before its next attempt must wait. A few are free, because people mistype.
"""
FREE_OF_ADDRESS: Final = 10
"""Failures of an address before its next attempt must wait. Many clients may share one address."""
DELAY_MAX_S: Final = 60.0
"""Longest wait of one attempt, in seconds. It allows 1,440 guesses a day."""
FORGET_S: Final = 900.0
"""Seconds without a failure after which all earlier failures of an account or address are
forgotten.
"""
ENTRIES_MAX: Final = 10_000
"""Most accounts and addresses with failures.

Beyond it, the entry whose last failure is the oldest is forgotten.
"""
KNOWN_MAX: Final = 10_000
"""Most pairs of an address and an account that has signed in from it.

Beyond it, the pair that has been unused for longest is forgotten.
"""

Key = tuple[str, ...]


@dataclass(slots=True)
class _Failures:
    count: int = 0
    last: float = 0.0


class SignInDelays:
    """Counts the failed sign-ins of all accounts and addresses.

    ``now`` is in seconds of the monotonic clock.
    """

    def __init__(self) -> None:
        self._failures: OrderedDict[Key, _Failures] = OrderedDict()
        self._known: OrderedDict[Key, None] = OrderedDict()

    def seconds_to_wait(self, address: str, accounts: Iterable[str], now: float) -> float:
        """Return the seconds that an attempt from ``address`` at ``accounts`` must still wait.

        The longest wait of the address and of these accounts counts. If every account has signed in
        from ``address`` before, only its failures from this address count. 0 means that the attempt
        may be judged now. Nothing is counted.
        """
        return max((self._wait_of(key, now) for key in self._keys(address, accounts)), default=0.0)

    def failed(self, address: str, accounts: Iterable[str], now: float) -> None:
        """Count a failure for ``address`` and for each of ``accounts``.

        If every account has signed in from ``address`` before, only the pairs of both are counted,
        and neither the address nor the accounts alone. Call this for an attempt that was judged and
        failed.
        """
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
        """Remember that ``account`` has signed in from ``address``; forget their common failures.

        The failures that other addresses caused stay counted.
        """
        key = ("both", address, account)
        self._known[key] = None
        self._known.move_to_end(key)
        self._failures.pop(key, None)
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)

    def __len__(self) -> int:
        """Return the number of accounts and addresses with failures."""
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
