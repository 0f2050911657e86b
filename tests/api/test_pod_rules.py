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
