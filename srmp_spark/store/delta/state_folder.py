"""What ``--state`` names. Without Arrow: the accepting process asks before it starts."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from srmp_spark.errors import ConfigurationError


def state_folder(state: str) -> Path | None:
    """The local folder that ``--state URI|PATH`` names, or ``None`` for an object store."""
    parts = urlsplit(state)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise ConfigurationError(f"--state {state}: a file URL names this machine: file:///folder")
        return Path(unquote(parts.path))
    return None if "://" in state else Path(state)


def check_state(state: str) -> None:
    """That what ``--state`` names can be a folder: something else in its way is there for ever, unlike a store that is away.

    Raises :class:`ConfigurationError`.
    """
    folder = state_folder(state)
    if folder is None:
        return
    for each in (folder, *folder.parents):
        if each.is_dir():
            return
        if each.exists():
            raise ConfigurationError(f"--state {state}: {each} is a file; name a folder, which is made if it is not there")
