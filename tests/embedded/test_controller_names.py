"""Which controllers can be chosen, and how a running control plane says which it has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainwright.embedded.home import Home, Running
from trainwright.embedded.options import ALL_CONTROLLERS, InvalidControllers, parse_controllers


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("job", ["job"]),
        ("job,trainjob", ["trainjob", "job"]),
        (" local-queue , jobset,", ["jobset", "local-queue"]),
        ("job,job", ["job"]),
        (",".join(reversed(ALL_CONTROLLERS)), [*ALL_CONTROLLERS]),
    ],
)
def test_names_are_parsed_in_any_order(text: str, names: list[str]) -> None:
    assert list(parse_controllers(text)) == names


@pytest.mark.parametrize("text", ["jobs", "job,Jobset", "*", "-job", "job-controller", "", " , "])
def test_other_names_are_refused_with_the_list(text: str) -> None:
    with pytest.raises(InvalidControllers, match="trainjob, jobset, job, local-queue"):
        parse_controllers(text)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """A home in which a control plane runs: this test."""
    home = Home(tmp_path)
    lock = home.lock()
    yield home
    os.close(lock)


@pytest.mark.parametrize("controllers", [(), parse_controllers("job"), ALL_CONTROLLERS])
def test_an_announcement_is_read_as_it_was_written(home: Home, controllers: tuple[str, ...]) -> None:
    running = Running(1, 2, "https://127.0.0.1:2", "2026-01-01T00:00:00Z", False, controllers, "normal", {"TASCacheNodes": True})
    home.announce(running)
    assert home.running() == running
