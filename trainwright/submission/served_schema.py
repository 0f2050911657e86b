"""Which fields a TrainJob has in this cluster, as its CustomResourceDefinition says: asked for once in the life of a process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Hashable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from trainwright.api.errors import ApiError, Forbidden, NotFound, Unauthorized
from trainwright.api.kinds import TRAINJOB, Kind
from trainwright.api.objects import Obj
from trainwright.cluster.protocol import Cluster

DEFINITION = Kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False)
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServedSchema:
    """The schema of `spec`. Unknown fields are dropped by an API server without a word, so it is asked before."""

    spec: Obj

    def has(self, field: str) -> bool:
        return field in (self.spec.get("properties") or {})

    def unserved(self, spec: Obj) -> list[str]:
        """The fields of a spec that would be dropped, as paths below `spec`."""
        return list(_unserved(self.spec, spec, "spec"))


class _Schemas:
    """Those that have been asked for: by host, and by the object for clusters without one."""

    def __init__(self) -> None:
        self._by_host: dict[Hashable, ServedSchema | None] = {}
        self._by_cluster: WeakKeyDictionary[Cluster, ServedSchema | None] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def of(self, cluster: Cluster, client: Cluster) -> ServedSchema | None:
        host = getattr(cluster, "host", None)
        cached = self._by_cluster if host is None else self._by_host
        key = cluster if host is None else host
        with self._lock:  # also while asking: whoever comes second waits for the one answer
            if key not in cached:
                try:
                    cached[key] = _fetch_schema(client)  # type: ignore[index]
                except ApiError as error:  # an answer of the moment, not of the cluster: not kept
                    log.debug("the TrainJob CRD is not known now error=%s", error.message)
                    return None
            return cached[key]  # type: ignore[index]

    def forget(self, cluster: Cluster) -> None:
        host = getattr(cluster, "host", None)
        with self._lock:
            if host is None:
                self._by_cluster.pop(cluster, None)
            else:
                self._by_host.pop(host, None)


_schemas = _Schemas()


def served_trainjob(cluster: Cluster, *, client: Cluster | None = None) -> ServedSchema | None:
    """The schema of TrainJobs there; None where it may not be read, or is none (an embedded control plane).

    `client` is the same cluster as it is asked, with more patience for instance.
    """
    return _schemas.of(cluster, client or cluster)


def forget_served(cluster: Cluster) -> None:
    """Ask again next time: the cluster has answered in another form than its schema had promised."""
    _schemas.forget(cluster)


def schema_in(definition: Obj) -> ServedSchema | None:
    """The schema of the version that we speak. Pure."""
    for version in (definition.get("spec") or {}).get("versions") or []:
        if version.get("name") == TRAINJOB.version and version.get("served", True):
            whole = (version.get("schema") or {}).get("openAPIV3Schema") or {}
            spec = (whole.get("properties") or {}).get("spec")
            return ServedSchema(spec) if spec and spec.get("properties") else None
    return None


def _fetch_schema(cluster: Cluster) -> ServedSchema | None:
    try:
        return schema_in(cluster.get(DEFINITION, TRAINJOB.resource))
    except (Forbidden, Unauthorized, NotFound) as error:
        log.info("the TrainJob CRD cannot be read; today's form is sent reason=%s", error.reason)
        return None


def _unserved(schema: Obj, value: object, path: str) -> list[str]:
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return []
    if isinstance(value, list):
        return [p for index, item in enumerate(value) for p in _unserved(schema.get("items") or {}, item, f"{path}[{index}]")]
    if not isinstance(value, dict):
        return []
    inner = schema.get("additionalProperties")
    if isinstance(inner, dict) and "properties" not in schema:
        return [p for key, item in value.items() for p in _unserved(inner, item, f"{path}.{key}")]
    cached = schema.get("properties") or {}
    return [
        p
        for key, item in value.items()
        for p in (_unserved(cached[key], item, f"{path}.{key}") if key in cached else [f"{path}.{key}"])
    ]
