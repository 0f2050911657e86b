"""A snapshot gives back the runtime that it holds, or refuses: never the runtime of another job."""

from __future__ import annotations

from typing import Any

import pytest
from factories import runtime, trainjob

from trainwright.api.errors import Invalid
from trainwright.materialize import build_snapshot, load_snapshot, snapshot_name


@pytest.fixture
def job() -> dict[str, Any]:
    owned = trainjob(namespace="ns", runtime="rt", trainer={})
    owned["metadata"]["uid"] = "1"
    return owned


def test_snapshot_is_owned_by_its_trainjob(job: dict[str, Any]) -> None:
    snapshot = build_snapshot(job, runtime(policy={"torch": {}}))
    assert snapshot["metadata"]["name"] == snapshot_name(job) == "demo-runtime-snapshot"
    assert snapshot["metadata"]["ownerReferences"][0]["controller"] is True
    assert load_snapshot(snapshot, job)["spec"]["mlPolicy"] == {"numNodes": 1, "torch": {}}


def test_foreign_and_invalid_snapshots_are_refused(job: dict[str, Any]) -> None:
    good = build_snapshot(job, runtime(policy={"torch": {}}))
    other = trainjob(namespace="ns", runtime="rt", trainer={}) | {"metadata": {"name": "demo", "namespace": "ns", "uid": "2"}}
    elsewhere = job | {"spec": {"runtimeRef": {"name": "another"}}}
    for snapshot, asked, words in (
        (good, other, "another object"),
        (good | {"data": {}}, job, "no key"),
        (good | {"data": {"runtime": "a: [b"}}, job, "not valid YAML"),
        (good | {"data": {"runtime": "kind: Pod"}}, job, "contains no runtime"),
        (good, elsewhere, "refers to 'another'"),
    ):
        with pytest.raises(Invalid, match=f"invalid runtime snapshot.*{words}"):
            load_snapshot(snapshot, asked)
