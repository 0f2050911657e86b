"""Policies of third parties: a list of installed entry points, and one policy for it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest
from support.installed_plugins import installed_plugins

from trainwright.materialize import assembly
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


GREETING = EntryPoint("greeting", f"{__name__}:Greeting", GROUP)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[EntryPoint]]:
    with installed_plugins(monkeypatch, assembly._steps.cache_clear) as found:
        yield found
