"""A policy of a third party takes part in materialization, and what is none is named."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from builders import env, runtime, trainjob

from trainwright.materialize import assembly, materialize
from trainwright.materialize.draft import Draft
from trainwright.materialize.plugins import GROUP


class Greeting:
    """Sets a variable in the container that trains."""

    name = "greeting"

    def enforce_ml_policy(self, draft: Draft) -> None:
        pods = draft.trainer_pods()
        container = pods.container("node") if pods is not None else None
        if container is not None:
            container.setdefault("env", []).append({"name": "GREETING", "value": draft.name})


class Nothing:
    pass


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[EntryPoint]]:
    found: list[EntryPoint] = []

    def entry_points(**selection: Any) -> list[EntryPoint]:
        return [entry for entry in found if entry.group == selection["group"]]

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)
    assembly._steps.cache_clear()
    yield found
    assembly._steps.cache_clear()


def test_an_installed_policy_takes_part(installed: list[EntryPoint]) -> None:
    installed.append(EntryPoint("greeting", f"{__name__}:Greeting", GROUP))
    built = materialize(trainjob({}), runtime({"torch": {}}))
    assert list(env(built))[-1] == "GREETING"
    assert env(built)["GREETING"] == "demo"


def test_what_is_no_policy_is_named(installed: list[EntryPoint]) -> None:
    installed.append(EntryPoint("nothing", f"{__name__}:Nothing", GROUP))
    with pytest.raises(TypeError, match=f"entry point nothing = {__name__}:Nothing of {GROUP} is no policy"):
        materialize(trainjob({}), runtime({"torch": {}}))
