"""Discovery documents, in the legacy form (one list per group version) and as aggregated discovery."""

from __future__ import annotations

import platform
from dataclasses import dataclass

from trainwright.api import kinds
from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj
from trainwright.controlplane.apiserver.endpoints import reviews
from trainwright.controlplane.apiserver.resources.registry import GROUP_VERSIONS, STRATEGIES_BY_PATH, strategy_of

KUBERNETES_VERSION = "1.36.0"
"""The Kubernetes version that this server emulates; clients check version skew against it."""
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_CUSTOM_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
_CONNECT_VERBS = ("create", "get")
_STATUS_VERBS = ("get", "patch", "update")


def version(build: str) -> Obj:
    """`/version`; `build` is the end of its version."""
    major, minor, _ = KUBERNETES_VERSION.split(".")
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"v{KUBERNETES_VERSION}+{build}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "python",
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }


def api_versions() -> Obj:
    """`/api` in the legacy form."""
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def api_groups() -> Obj:
    """`/apis` in the legacy form."""
    groups = [*(_group(group) for group in _groups()), *map(reviews.group, reviews.GROUPS)]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def api_group(group: str) -> Obj | None:
    """`/apis/GROUP`; None if the group is not served."""
    if group in reviews.GROUPS:
        return {"kind": "APIGroup", "apiVersion": "v1", **reviews.group(group)}
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(group)} if group in _groups() else None


def api_resources(group: str, version: str) -> Obj | None:
    """`/api/v1` or `/apis/GROUP/VERSION`; None if it is not served."""
    if list_page := reviews.resource_list(group, version):
        return list_page
    if (group, version) not in GROUP_VERSIONS:
        return None
    resources = [entry for kind in _kinds_of(group, version) for entry in _resources(kind)]
    listing: Obj = {"kind": "APIResourceList", "groupVersion": f"{group}/{version}" if group else version, "resources": resources}
    return {**listing, "apiVersion": "v1"} if group else listing


def aggregated(*, core: bool) -> Obj:
    """Aggregated discovery of `/api` (core) or `/apis`."""
    chosen = [""] if core else _groups()
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [
            *(_group_discovery(group) for group in chosen),
            *([] if core else map(reviews.group_discovery, reviews.GROUPS)),
        ],
    }


def _groups() -> list[str]:
    return list(dict.fromkeys(group for group, _ in GROUP_VERSIONS if group))


def _kinds_of(group: str, version: str) -> list[Kind]:
    return [strategy.kind for (g, v, _), strategy in STRATEGIES_BY_PATH.items() if (g, v) == (group, version)]


def _group(group: str) -> Obj:
    versions = [{"groupVersion": f"{g}/{v}", "version": v} for g, v in GROUP_VERSIONS if g == group]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _verbs(kind: Kind) -> list[str]:
    if strategy_of(kind).read_only:
        return ["get", "list", "watch"]
    verbs = _CUSTOM_VERBS if strategy_of(kind).custom else _VERBS
    return [verb for verb in verbs if kind != kinds.NAMESPACE or verb != "deletecollection"]


def _resources(kind: Kind) -> list[Obj]:
    entry: Obj = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": _verbs(kind),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    return [entry, *(_subresource(kind, below) for below in _subresources(kind))]


@dataclass(frozen=True)
class _Below:
    """A subresource; its group and version default to those of the resource."""

    name: str
    kind: str
    verbs: tuple[str, ...]
    group: str = ""
    version: str = ""


def _subresource(kind: Kind, below: _Below) -> Obj:
    entry: Obj = {
        "name": f"{kind.plural}/{below.name}",
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": below.kind,
        "verbs": list(below.verbs),
    }
    return {**entry, "group": below.group, "version": below.version} if below.group else entry


def _subresources(kind: Kind) -> list[_Below]:
    found: list[_Below] = []
    if kind == kinds.POD:
        found += [
            _Below("attach", "PodAttachOptions", _CONNECT_VERBS),
            _Below("binding", "Binding", ("create",)),
            _Below("eviction", "Eviction", ("create",), "policy", "v1"),
            _Below("exec", "PodExecOptions", _CONNECT_VERBS),
            _Below("log", "Pod", ("get",)),
            _Below("portforward", "PodPortForwardOptions", _CONNECT_VERBS),
        ]
    if kind == kinds.SERVICE_ACCOUNT:
        found.append(_Below("token", "TokenRequest", ("create",), "authentication.k8s.io", "v1"))
    if kind == kinds.NAMESPACE:
        found.append(_Below("finalize", "Namespace", ("update",)))
    if kind.status:
        verbs = ("get",) if strategy_of(kind).read_only else _STATUS_VERBS
        found.append(_Below("status", kind.kind, verbs))
    return found


def _group_discovery(group: str) -> Obj:
    versions = [
        {
            "version": version,
            "freshness": "Current",
            "resources": [_resource_discovery(kind) for kind in _kinds_of(group, version)],
        }
        for g, version in GROUP_VERSIONS
        if g == group
    ]
    return {"metadata": {"name": group} if group else {}, "versions": versions}


def _resource_discovery(kind: Kind) -> Obj:
    # Like kube-apiserver, omit group and version of built-in kinds here: they default to those of the list.
    custom = strategy_of(kind).custom
    group, version = (kind.group, kind.version) if custom else ("", "")
    entry: Obj = {
        "resource": kind.plural,
        "responseKind": {"group": group, "version": version, "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": _verbs(kind),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    below = [
        {
            "subresource": one.name,
            "responseKind": {"group": one.group or group, "version": one.version or version, "kind": one.kind},
            "verbs": list(one.verbs),
        }
        for one in _subresources(kind)
    ]
    return {**entry, "subresources": below} if below else entry
