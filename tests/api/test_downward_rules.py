"""References of the downward API that no pod may have, in the words of the API server."""

from __future__ import annotations

from typing import Any

import pytest
from factories import pod

from trainwright.api.admission.admit import admit
from trainwright.api.errors import Invalid

VARIABLE = "spec.containers[0].env[0].valueFrom"
FIELDS = (
    '"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP", '
    '"status.hostIPs", "status.podIP", "status.podIPs"'
)
FILES = '"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"'
RESOURCES = (
    '"limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory"'
)


def problems_of(**spec: Any) -> list[str]:
    """What the API server says of a pod with this."""
    try:
        admit(pod(container={"env": spec.pop("env", [])}, **spec))
    except Invalid as error:
        return [f"{problem.field}: {problem.message}" for problem in error.problems]
    return []


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ({"fieldRef": {"fieldPath": "metadata.name"}}, ""),
        ({"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/jobset-name']"}}, ""),
        ({"resourceFieldRef": {"resource": "limits.cpu"}}, ""),
        ({"resourceFieldRef": {"resource": "limits.hugepages-2Mi"}}, ""),
        (
            {"fieldRef": {"fieldPath": "metadata.nope"}},
            'fieldRef.fieldPath: Invalid value: "metadata.nope": error converting fieldPath: field label not supported: metadata.nope',
        ),
        (
            {"fieldRef": {"fieldPath": "spec.nodeName['x']"}},
            "fieldRef.fieldPath: Invalid value: \"spec.nodeName['x']\": error converting fieldPath: "
            "field label does not support subscript: spec.nodeName['x']",
        ),
        (
            {"fieldRef": {"fieldPath": "metadata.labels"}},
            f'fieldRef.fieldPath: Unsupported value: "metadata.labels": supported values: {FIELDS}',
        ),
        ({"fieldRef": {"fieldPath": ""}}, "fieldRef.fieldPath: Required value"),
        (
            {"resourceFieldRef": {"resource": "limits.gpu"}},
            f'resourceFieldRef.resource: Unsupported value: "limits.gpu": supported values: {RESOURCES}',
        ),
    ],
)
def test_variables(source: dict[str, Any], problem: str) -> None:
    found = problems_of(env=[{"name": "X", "valueFrom": source}])
    assert found == ([f"{VARIABLE}.{problem}"] if problem else [])


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        ({"path": "a", "fieldRef": {"fieldPath": "metadata.labels"}}, ""),
        ({"path": "a", "resourceFieldRef": {"containerName": "c", "resource": "requests.memory"}}, ""),
        (
            {"path": "a", "fieldRef": {"fieldPath": "status.podIP"}},
            f'.fieldRef.fieldPath: Unsupported value: "status.podIP": supported values: {FILES}',
        ),
        ({"path": "a", "resourceFieldRef": {"resource": "requests.memory"}}, ".resourceFieldRef.containerName: Required value"),
        ({"path": "a"}, ": Required value: one of fieldRef and resourceFieldRef is required"),
    ],
)
def test_files_of_both_kinds_of_volumes(item: dict[str, Any], problem: str) -> None:
    for volume, where in (
        ({"downwardAPI": {"items": [item]}}, "downwardAPI"),
        ({"projected": {"sources": [{"downwardAPI": {"items": [item]}}]}}, "projected.sources[0].downwardAPI"),
    ):
        found = problems_of(volumes=[{"name": "v", **volume}])
        assert found == ([f"spec.volumes[0].{where}.items[0]{problem}"] if problem else [])
