"""No value of any option of any command ends in a traceback, a hang or an exit code that is not documented."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hostile_inputs import FILES, NUMBERS, TEXTS, Parameter, isolated_environment, outcome, parameters, values_of
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

PARAMETERS = parameters()
WITH_FILES = [one for one in PARAMETERS if one.name == "filename"]
RUNNER = CliRunner()


@pytest.fixture(scope="module", autouse=True)
def _isolated_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with isolated_environment(tmp_path_factory.mktemp("hostile")):
        yield


def check(parameter: Parameter, value: str) -> None:
    words = parameter.call(value)
    found = outcome(words, RUNNER)
    assert found.is_fine, f"{' '.join(words)[:200]!r}: {found.kind}: {found.detail}"


def test_the_tree_of_commands_is_walked() -> None:
    assert {" ".join(one.command) for one in PARAMETERS} >= {
        "submit",
        "validate",
        "wait",
        "runtimes show",
        "export",
        "controller",
    }
    assert {one.option for one in PARAMETERS if one.command == ("submit",)} >= {"--settings", "--env", "--timeout", "--filename"}


@pytest.mark.medium
@pytest.mark.parametrize("file", FILES)
def test_hostile_files_are_read_or_refused(file: str) -> None:
    """A crash of the process would end the tests."""
    for parameter in WITH_FILES:
        check(parameter, file)


@pytest.mark.parametrize("number", range(0, len(PARAMETERS), 3))
def test_every_option_takes_or_refuses_some_value(number: int) -> None:
    """Each run of the tests tries the same values; the property below tries all of them."""
    for index, parameter in enumerate(PARAMETERS[number : number + 3]):
        values = values_of(parameter)
        check(parameter, values[(number + index) * 7 % len(values)])


@pytest.mark.parametrize("value", ["nan", "inf", "1e99", "9" * 5000])
def test_seconds_are_finite(value: str) -> None:
    seconds = [one for one in PARAMETERS if one.option.endswith(("timeout", "timeout-seconds", "--wait", "deadline", "period"))]
    assert len(seconds) >= 13
    for parameter in seconds:
        found = outcome(parameter.call(value), RUNNER)
        assert (found.kind, found.detail) == ("clear error", "2"), parameter


@pytest.mark.medium
@settings(max_examples=20 if os.environ.get("HYPOTHESIS_PROFILE") != "fuzz" else 20_000)
@given(st.sampled_from(PARAMETERS), st.data())
def test_property_any_value_is_taken_or_refused(parameter: Parameter, data: st.DataObject) -> None:
    text = st.text(st.characters(exclude_characters="\0", codec=None), max_size=40)
    check(parameter, data.draw(st.sampled_from(values_of(parameter)) | st.sampled_from(NUMBERS) | st.sampled_from(TEXTS) | text))
