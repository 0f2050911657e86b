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


@pytest.mark.parametrize("field", ["hostname", "subdomain"])
def test_names_of_hosts_are_labels(field: str) -> None:
    assert problems_of({field: "web-0"}) == []
    (problem,) = problems_of({field: "Web.0"})
    assert problem.startswith(f'spec.{field}: Invalid value: "Web.0": a lowercase RFC 1123 label must consist of')


def test_an_image_without_spaces_around_it() -> None:
    assert problems_of({"containers": [{"name": "c", "image": " i"}]}) == [
        'spec.containers[0].image: Invalid value: " i": must not have leading or trailing whitespace'
    ]


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


def test_modes_of_files() -> None:
    source = {"name": "c", "defaultMode": 0o1000, "items": [{"key": "k", "path": "p", "mode": -1}]}
    assert problems_of({"volumes": [{"name": "v", "configMap": source}]}) == [
        "spec.volumes[0].configMap.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive",
        "spec.volumes[0].configMap.items[0].mode: Invalid value: -1: must be a number between 0 and 0777 (octal), both inclusive",
    ]
