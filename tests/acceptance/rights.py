"""What `trainwright rbac` prints, under names that no cluster has and with labels by which everything is found again."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

Obj = dict[str, Any]
ROLES = "trainwright-steps"
"""How the names of all printed roles begin."""


@dataclass(frozen=True)
class Right:
    """One verb of one rule: `patch trainjobs`, in a namespace or, if empty, in the whole cluster."""

    verb: str
    group: str
    resource: str
    namespace: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{'' if self.namespace else ' of the cluster'}"


def own_manifests(printed: list[Obj], name: str, labels: dict[str, str], namespaces: Collection[str]) -> list[Obj]:
    """Return the printed manifests under names that begin with `name`, so that roles that are there already stay as they are.

    Roles in namespaces that do not exist are left out, as docs/permissions.md says.
    """
    own = []
    for manifest in copy.deepcopy(printed):
        metadata = manifest["metadata"]
        if metadata.get("namespace") and metadata["namespace"] not in namespaces:
            continue
        metadata["name"] = _renamed(metadata["name"], name)
        metadata["labels"] = labels
        if "roleRef" in manifest:
            manifest["roleRef"]["name"] = _renamed(manifest["roleRef"]["name"], name)
        own.append(manifest)
    return own


def rights(manifests: list[Obj]) -> Iterator[Right]:
    """Yield every verb of every rule."""
    for manifest in manifests:
        for rule in manifest.get("rules") or []:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for verb in rule["verbs"]:
                        yield Right(verb, group, resource, manifest["metadata"].get("namespace", ""))


def without(manifests: list[Obj], is_taken: Callable[[Right], bool]) -> list[Obj]:
    """Return the manifests without the rights that are taken away; rules that then allow nothing are left out."""
    left = copy.deepcopy(manifests)
    for manifest in left:
        if "rules" not in manifest:
            continue
        namespace = manifest["metadata"].get("namespace", "")
        for rule in manifest["rules"]:
            ((group,), (resource,)) = rule["apiGroups"], rule["resources"]
            rule["verbs"] = [verb for verb in rule["verbs"] if not is_taken(Right(verb, group, resource, namespace))]
        manifest["rules"] = [rule for rule in manifest["rules"] if rule["verbs"]]
    return left


def _renamed(name: str, own: str) -> str:
    assert name.startswith(ROLES), name
    return own + name.removeprefix(ROLES)
