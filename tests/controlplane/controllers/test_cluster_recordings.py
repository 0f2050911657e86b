"""What the real controllers made of recorded TrainJobs (JobSet, Jobs, pods, Services, claims), field for field."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from recording_archives import recordings_of
from support.running_plane import running_plane
from support.waiting import eventually

from trainwright.api.documents import load_documents
from trainwright.api.errors import AlreadyExists, ApiError, NotFound
from trainwright.api.kinds import POD, kind_of
from trainwright.api.objects import Obj, controller_of, copy_of, labels_of, name_of, namespace_of
from trainwright.cluster.protocol import Cluster
from trainwright.embedded.options import FeatureGates

pytestmark = pytest.mark.medium

EVERY = 10
"""Of the recordings one in so many is compared; all of them take about a minute."""
NAMESPACES = ("team-a", "team-b", "ml-lab", "research")
INDEX = "batch.kubernetes.io/job-completion-index"
REFUSED_HERE = {"patch-adds-initializer-job", "torch-env-file-key"}
"""What could never run is refused before a JobSet is there: the container that a patch made up has no image."""
ELSEWHERE = {"pg-volcano-priority-last"}
"""It depends on an object that is not in the recording: a priority class."""
_VOLATILE = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation")


def test_recorded_trainjobs_produce_the_recorded_objects(tmp_path: Path) -> None:
    cases = sorted(path.parent for path in (recordings_of("materialize") / "cases").glob("*/cluster.yaml"))
    assert cases
    with running_plane(tmp_path, gates=FeatureGates(TrainJobStatus=False), node=False) as plane:
        for namespace in NAMESPACES:
            plane.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        wrong = {}
        for case in [case for case in cases if case.name not in REFUSED_HERE | ELSEWHERE][::EVERY]:
            found = _difference(plane.cluster, _documents(case / "input.yaml"), _documents(case / "cluster.yaml"))
            if found:
                wrong[case.name] = found
    assert not wrong, json.dumps(wrong, indent=1)[:6000]


def _difference(cluster: Cluster, inputs: list[Obj], wanted: list[Obj]) -> list[str]:
    created = [_create(cluster, copy_of(document)) for document in inputs]
    namespace = namespace_of(created[-1])
    eventually(lambda: all(_found(cluster, entry, namespace) is not None for entry in wanted), 5)
    found = []
    for entry in wanted:
        seen = _found(cluster, entry, namespace)
        what = f"{entry['kind']} {name_of(entry)}"
        if seen is None:
            found.append(f"{what} is missing")
            continue
        expected, got = _leaves(entry), _leaves(_normal(seen))
        changed = sorted(path for path in expected.keys() | got.keys() if expected.get(path) != got.get(path))
        found += [f"{what}: {path}: expected {expected.get(path)!r}, got {got.get(path)!r}" for path in changed]
    for obj in reversed(created):
        kind = kind_of(obj)
        assert kind is not None
        with contextlib.suppress(ApiError):
            cluster.delete(kind, name_of(obj), namespace_of(obj) or None)
    return found


def _documents(path: Path) -> list[Obj]:
    """The objects of a file; those of a List one by one."""
    loaded = load_documents(path.read_text("utf-8"), str(path))
    return [item for entry in loaded for item in (entry["items"] if entry["kind"] == "List" else [entry])]


def _create(cluster: Cluster, obj: Obj) -> Obj:
    """Create the object in place of one of its name."""
    kind = kind_of(obj)
    assert kind is not None
    if kind.namespaced:
        obj["metadata"].setdefault("namespace", "default")
    try:
        return cluster.create(obj)
    except AlreadyExists:  # of the same name in an earlier recording, perhaps kept by a finalizer
        name, namespace = name_of(obj), namespace_of(obj) or None
        cluster.patch(kind, name, {"metadata": {"finalizers": None}}, namespace)
        with contextlib.suppress(NotFound):
            cluster.delete(kind, name, namespace)
        return cluster.create(obj)


def _found(cluster: Cluster, wanted: Obj, namespace: str) -> Obj | None:
    kind = kind_of(wanted)
    assert kind is not None
    if kind == POD:  # their names end at random
        pods = cluster.list(POD, namespace).items
        return next((pod for pod in pods if _identity(pod) == _identity(wanted)), None)
    try:
        return cluster.get(kind, name_of(wanted), namespace)
    except NotFound:
        return None


def _identity(pod: Obj) -> tuple[Any, Any]:
    return (controller_of(pod) or {}).get("name"), labels_of(pod).get(INDEX)


def _normal(obj: Obj) -> Obj:
    text = json.dumps({key: value for key, value in obj.items() if key != "status"})
    plain: Obj = json.loads(re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID", text))
    for key in _VOLATILE:
        plain["metadata"].pop(key, None)
    if obj["kind"] == "Pod":
        plain["metadata"]["name"] = re.sub(r"-[a-z0-9]{5}$", "-XXXXX", name_of(obj))
    return plain


def _leaves(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, dict | list) and value:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return {where: leaf for key, inner in items for where, leaf in _leaves(inner, f"{path}.{key}").items()}
    return {path: value}
