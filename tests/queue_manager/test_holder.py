"""Holders: only a process of this host, this boot and this namespace can be known to be gone."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from srmp_spark.holder import Holder


def test_this_process_lives() -> None:
    here = Holder.here("a test")
    assert not here.is_gone()
    assert Holder.from_dict(here.as_dict()) == here
    assert "a test" in str(here)
    assert str(here.pid) in str(here)


def test_a_process_that_ended_is_gone_even_before_it_is_reaped() -> None:
    say = "print(json.dumps(Holder.here('child').as_dict()), flush=True)"
    code = f"import json; from srmp_spark.holder import Holder; {say}; input()"
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    import json

    holder = Holder.from_dict(json.loads(child.stdout.readline()))
    assert not holder.is_gone()
    child.kill()
    deadline = 200
    while not holder.is_gone() and deadline:
        deadline -= 1
        subprocess.run(["sleep", "0.01"], check=True)
    assert holder.is_gone(), "a zombie holds nothing"
    child.wait()
    assert holder.is_gone()


def test_an_id_that_was_given_to_another_process_is_not_the_holder() -> None:
    assert dataclasses.replace(Holder.here("x"), started="1").is_gone()


@pytest.mark.parametrize("change", [{"boot": "another"}, {"boot": ""}, {"started": ""}, {"pid": 0}])
def test_of_others_only_time_tells(change: dict[str, object]) -> None:
    assert not dataclasses.replace(Holder.here("x"), **{"pid": 999_999_999, **change}).is_gone()


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"host": "h"},
        {**Holder.here("x").as_dict(), "pid": "1"},
        {**Holder.here("x").as_dict(), "host": "h" * 501},
    ],
)
def test_what_is_no_holder_is_refused(value: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="holder"):
        Holder.from_dict(value)
