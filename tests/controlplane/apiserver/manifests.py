"""Objects of every kind, with the fields that their kind cannot do without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainwright.api.kinds import Kind


def manifest(kind: Kind, name: str, namespace: str = "default", **fields: Any) -> dict[str, Any]:
    """An object with the fields that its kind cannot do without."""
    metadata: dict[str, Any] = {"name": name, **fields.pop("metadata", {})}
    if kind.namespaced:
        metadata.setdefault("namespace", namespace)
    container = {"name": "main", "image": "example.com/img:1"}
    specs: dict[str, Callable[[], dict[str, Any]]] = {
        "Pod": lambda: {"containers": [container]},
        "Job": lambda: {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
        "TrainJob": lambda: {"runtimeRef": {"name": "rt", "kind": "TrainingRuntime"}},
        "Service": lambda: {"ports": [{"port": 80}]},
        "Deployment": lambda: {
            "selector": {"matchLabels": {"app": "a"}},
            "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [container]}},
        },
        "JobSet": lambda: {
            "replicatedJobs": [{"name": "w", "template": {"spec": {"template": {"spec": {"containers": [container]}}}}}]
        },
    }
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reads"}
    bodies = {"RoleBinding": {"roleRef": reference}, "ClusterRoleBinding": {"roleRef": reference}}
    fields = {**bodies.get(kind.kind, {}), **fields}
    obj: dict[str, Any] = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **fields}
    if kind.kind in specs:
        obj["spec"] = {**specs[kind.kind](), **fields.get("spec", {})}
    return obj
