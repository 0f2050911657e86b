"""The TrainJob fields that a cluster serves, from its CustomResourceDefinition; cached for the lifetime of the process."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

from trainwright.api.errors import ApiError, Forbidden, NotFound, Unauthorized
from trainwright.api.kinds import TRAINJOB, Kind
from trainwright.api.objects import Obj
from trainwright.cluster.protocol import Cluster
from trainwright.submission.jobs_client import JobsClient

DEFINITION = Kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False)
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServedSchema:
    """The schema of `spec`. Checked before submission, since API servers silently drop unknown fields."""

    spec: Obj

    def has(self, field: str) -> bool:
        return field in (self.spec.get("properties") or {})

    def unserved(self, spec: Obj) -> list[str]:
        """Return the fields of a spec that would be dropped, as paths below `spec`."""
        return list(_unserved(self.spec, spec, "spec"))


_known: dict[tuple[str | None, Kind], ServedSchema | None] = {}
_lock = threading.Lock()


def served_trainjob(client: JobsClient, sender: Cluster | None = None) -> ServedSchema | None:
    """Return the schema of TrainJobs on a cluster; None if it cannot be read, or does not exist (embedded control plane).

    `sender` sends the request for the same cluster, for instance a RetryingCluster.
    """
    key = client.host, client.job_kind
    with _lock:  # held during the request, so that concurrent callers share one request
        if client.host is not None and key in _known:  # a cluster of this process has no host
            return _known[key]
        try:
            _known[key] = _fetch_schema(sender or client)
        except ApiError as error:  # transient: not cached
            log.debug("event=trainjob_crd_not_read error=%s", error.message)
            return None
        return _known[key]


def forget_served(client: JobsClient) -> None:
    """Drop the cached schema, after a response that did not match it."""
    with _lock:
        _known.pop((client.host, client.job_kind), None)


def schema_in(definition: Obj) -> ServedSchema | None:
    """Return the schema of the supported version; None if there is none. Pure."""
    for version in (definition.get("spec") or {}).get("versions") or []:
        if version.get("name") == TRAINJOB.version and version.get("served", True):
            schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
            spec = (schema.get("properties") or {}).get("spec")
            return ServedSchema(spec) if spec and spec.get("properties") else None
    return None


def _fetch_schema(cluster: Cluster) -> ServedSchema | None:
    try:
        return schema_in(cluster.get(DEFINITION, TRAINJOB.resource))
    except (Forbidden, Unauthorized, NotFound) as error:
        log.info("event=trainjob_crd_not_readable reason=%s", error.reason)
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
