"""Pods that the API server refuses, in its words: host names, images, paths of files in volumes."""

from __future__ import annotations

from typing import Any

import pytest
from factories import pod

from trainwright.api.admission.admit import admit
from trainwright.api.errors import Invalid


def problems_of(spec: dict[str, Any]) -> list[str]:
    try:
        admit(pod(**spec))
    except Invalid as error:
        return [f"{problem.field}: {problem.message}" for problem in error.problems]
    return []


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("a/b", ""),
        ("a..b", ""),
        ("/a", 'Invalid value: "/a": must be a relative path'),
        ("a/../b", "Invalid value: \"a/../b\": must not contain '..'"),
        ("..a", "Invalid value: \"..a\": must not start with '..'"),
        ("", "Required value"),
    ],
)
def test_files_of_volumes_stay_below_them(path: str, problem: str) -> None:
    field = {"fieldPath": "metadata.name"}
    items, files = [{"key": "k", "path": path}], [{"path": path, "fieldRef": field}]
    sources = {
        "configMap": {"configMap": {"name": "c", "items": items}},
        "secret.": {"secret": {"secretName": "s", "items": items}},
        "downwardAPI": {"downwardAPI": {"items": files}},
        "projected.sources[0].configMap": {"projected": {"sources": [{"configMap": {"name": "c", "items": items}}]}},
        "projected.sources[0].secret": {"projected": {"sources": [{"secret": {"name": "s", "items": items}}]}},
        "projected.sources[0].downwardAPI": {"projected": {"sources": [{"downwardAPI": {"items": files}}]}},
    }
    for where, source in sources.items():
        expected = [f"spec.volumes[0].{where.rstrip('.')}.items[0].path: {problem}"] if problem else []
        assert problems_of({"volumes": [{"name": "v", **source}]}) == expected


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        ({"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/jobset-name']"}}, ""),
        ({"fieldRef": {"fieldPath": "metadata.nope"}}, "fieldRef.fieldPath: Invalid value"),
        ({"fieldRef": {"fieldPath": "metadata.name['x']"}}, "fieldRef.fieldPath: Invalid value"),
        ({"fieldRef": {"fieldPath": "spec.restartPolicy"}}, "fieldRef.fieldPath: Unsupported value"),
        ({"fieldRef": {"fieldPath": ""}}, "fieldRef.fieldPath: Required value"),
        ({"resourceFieldRef": {"containerName": "main", "resource": "limits.cpu"}}, ""),
        ({"resourceFieldRef": {"containerName": "main", "resource": "limits.hugepages-2Mi"}}, ""),
        (
            {"resourceFieldRef": {"containerName": "main", "resource": "limits.gpu"}},
            "resourceFieldRef.resource: Unsupported value",
        ),
        ({"resourceFieldRef": {"containerName": "main"}}, "resourceFieldRef.resource: Required value"),
    ],
)
def test_references_of_the_downward_api(item: dict[str, Any], problem: str) -> None:
    files = {"downwardAPI": {"items": [{"path": "a", **item}]}}
    where = {
        "spec.volumes[0].downwardAPI.items[0].": {"volumes": [{"name": "v", **files}]},
        "spec.volumes[0].projected.sources[0].downwardAPI.items[0].": {
            "volumes": [{"name": "v", "projected": {"sources": [files]}}]
        },
        "spec.containers[0].env[0].valueFrom.": {"container": {"env": [{"name": "X", "valueFrom": item}]}},
    }
    for place, spec in where.items():
        found = problems_of(spec)
        assert [told.startswith(place + problem) for told in found] == ([True] if problem else []), found


def test_files_of_the_downward_api_name_their_container_and_no_address() -> None:
    items = [{"path": "a"}, {"path": "b", "resourceFieldRef": {"resource": "limits.cpu"}}]
    items.append({"path": "c", "fieldRef": {"fieldPath": "status.podIP"}})
    told = problems_of({"volumes": [{"name": "v", "downwardAPI": {"items": items}}]})
    assert [problem.partition(".items")[2].partition(" value")[0] for problem in told] == [
        "[0]: Required",
        "[1].resourceFieldRef.containerName: Required",
        "[2].fieldRef.fieldPath: Unsupported",
    ]
