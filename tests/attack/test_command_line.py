"""The command line of attacks: what is wrong, and what to do next."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.attack.__main__ import main


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "No such file"), ("{}", "no finding is in it"), ("x", "no finding is")],
)
def test_a_replay_of_no_finding_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, said: str
) -> None:
    file = tmp_path / "nofile"
    if content is not None:
        file.write_text(content)
    with pytest.raises(SystemExit) as ended:
        main(["--replay", str(file)])
    error = capsys.readouterr().err
    assert ended.value.code == 2
    assert f"--replay {file}: {said}" in error
    assert "give a file that an attack has saved" in error
