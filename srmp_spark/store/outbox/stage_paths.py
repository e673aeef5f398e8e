"""The names of the files of one stage: its rows, and what was found out while it was checked.

The file of the rows names the stage. The other files have its name and an ending.
"""

from __future__ import annotations

from pathlib import Path

HASHES_ENDING = ".hashes"
"""Ending of the file with the hashes of the rows (:mod:`.identity.row_hashes`)."""
GOOD_ENDING = ".good"
"""Ending of the stage that takes the place of one with bad rows (:mod:`.staging.bad_rows`).

The client's file is deleted when the stage without the bad rows is complete.
"""
LETTERS_ENDING = ".letters"
"""Ending of the file with a letter about each bad row that was taken out of the stage."""
SUMMARY_ENDING = ".bad"
"""Ending of the file that counts the bad rows that were taken out of the stage."""
_BESIDE = (HASHES_ENDING, LETTERS_ENDING, SUMMARY_ENDING)


def beside(stage: Path, ending: str) -> Path:
    """Return the path of the file of a stage with this ending, whether or not it exists."""
    return stage.with_name(stage.name + ending)


def stage_of(name: str) -> str:
    """Return the name of the stage to which the file ``name`` belongs."""
    return next((name.removesuffix(each) for each in _BESIDE if name.endswith(each)), name)


def delete_stage(stage: Path) -> None:
    """Delete the file of a stage and the files beside it, as far as they exist.

    Raises :class:`OSError` if a file cannot be deleted.
    """
    stage.unlink(missing_ok=True)
    for ending in _BESIDE:
        beside(stage, ending).unlink(missing_ok=True)
