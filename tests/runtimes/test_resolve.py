from __future__ import annotations

from typing import Any

import pytest

from trainwright.api.admission.admit import admit
from trainwright.runtimes import RuntimeNotFound, bundled_runtimes, resolve_runtime

MINE = {"kind": "ClusterTrainingRuntime", "metadata": {"name": "torch-distributed"}, "spec": {"mine": True}}


def nothing(_kind: str, _name: str) -> dict[str, Any] | None:
    return None


def test_runtime_of_the_cluster_comes_first() -> None:
    resolved = resolve_runtime({"name": "torch-distributed"}, lambda _kind, _name: MINE, bundled=True)
    assert (resolved.source, resolved.runtime) == ("cluster", MINE)


def test_the_catalogue_only_where_it_is_allowed() -> None:
    assert resolve_runtime({"name": "torch-distributed"}, nothing, bundled=True).source == "bundled"
    with pytest.raises(RuntimeNotFound):
        resolve_runtime({"name": "torch-distributed"}, nothing, bundled=False)
    with pytest.raises(RuntimeNotFound):
        resolve_runtime({"name": "torch-distributed", "kind": "TrainingRuntime"}, nothing, bundled=True)


def test_an_unknown_runtime_lists_the_known_and_the_nearest() -> None:
    with pytest.raises(RuntimeNotFound) as error:
        resolve_runtime({"name": "torch-distribted"}, nothing, bundled=True, known=["mine"])
    assert "did you mean 'torch-distributed'?" in str(error.value)
    assert "mine" in str(error.value)
    assert error.value.problems[0].field == "spec.RuntimeRef"


def test_the_catalogue_is_admitted_without_a_warning() -> None:
    for runtime in bundled_runtimes():
        assert admit(runtime).warnings == []
