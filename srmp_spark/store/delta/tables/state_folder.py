"""Interpret the value of ``--state``.

This module does not load Arrow, because the accepting process uses it before it starts.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from srmp_spark.errors import ConfigurationError

_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")
"""Escapes in the path of a local table.

Delta's reader decodes them although the path is not encoded, so it would write to one folder and
read from another.
"""


def state_folder(state: str) -> Path | None:
    """Return the local folder that ``state`` names, or ``None`` for an object store.

    ``state`` is the value of ``--state``, a URI or a path. Nothing is created. Raises
    :class:`ConfigurationError` if Delta cannot use the folder.
    """
    parts = urlsplit(state)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise ConfigurationError(
                f"--state {state}: a file URL names this machine: file:///folder"
            )
        folder = Path(unquote(parts.path))
    elif "://" in state:
        return None
    else:
        folder = Path(state)
    escape = _ESCAPE.search(str(folder.absolute()))
    if escape is not None:
        decoded = unquote(str(folder.absolute()))
        raise ConfigurationError(
            f"--state {state}: Delta cannot use a folder with {escape[0]} in its path; "
            f"rename it, or if {decoded} is meant, "
            f"name that: a path is taken as it is, only a URL is decoded"
        )
    return folder


def check_state(state: str) -> None:
    """Check that no file is in the way of the folder that ``--state`` names.

    Nothing is created, and the value may name an object store. Raises :class:`ConfigurationError`
    if a file is in the way, if this user may not look there, or if Delta cannot use the folder.
    None of these goes away by itself, unlike the failure of a store.
    """
    folder = state_folder(state)
    if folder is None:
        return
    for each in (folder, *folder.parents):
        try:
            if each.is_dir():
                return
            is_file = each.exists()
        except OSError as error:  # A folder above it may be closed to this user.
            raise ConfigurationError(
                f"--state {state}: {each}: {error.strerror}; give the user of serve the right to "
                "enter every folder above it"
            ) from None
        if is_file:
            raise ConfigurationError(
                f"--state {state}: {each} is a file; name a folder, which is made if it "
                "is not there"
            )
