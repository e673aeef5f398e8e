"""Log a line once for each key, so that neither another machine nor a loop can fill the log."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

KEYS_MAX = 1_000
"""Most keys that are remembered, unless the owner sets another limit.

A person reads no more lines about one thing, and the keys of another machine must not fill the
memory.
"""

Key = TypeVar("Key", bound=Hashable)


class OncePerKey(Generic[Key]):
    """Tells whether a key is new. Each key is new once."""

    __slots__ = ("_keys", "_keys_max", "_starts_over")

    def __init__(self, keys_max: int = KEYS_MAX, *, starts_over: bool = False) -> None:
        """Begin without keys.

        When ``keys_max`` keys are known, no further key is new. With ``starts_over`` all keys are
        forgotten instead, and each may be new again.
        """
        self._keys: set[Key] = set()
        self._keys_max = keys_max
        self._starts_over = starts_over

    def is_new(self, key: Key) -> bool:
        """Return whether ``key`` is new, and remember it."""
        if key in self._keys:
            return False
        if len(self._keys) >= self._keys_max:
            if not self._starts_over:
                return False
            self._keys.clear()
        self._keys.add(key)
        return True

    def forget(self, is_over: Callable[[Key], bool]) -> None:
        """Forget the keys for which ``is_over`` returns True. They may be new again."""
        self._keys = {key for key in self._keys if not is_over(key)}

    def __contains__(self, key: Key) -> bool:
        """Return whether ``key`` is known, without making it known."""
        return key in self._keys

    def __repr__(self) -> str:
        return f"<OncePerKey keys={len(self._keys)}>"
