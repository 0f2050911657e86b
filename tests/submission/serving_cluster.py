"""A cluster that answers what it serves, and with which Leases and TrainJobs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from trainwright.api.errors import NotFound
from trainwright.api.kinds import LEASE, TRAINJOB, Kind
from trainwright.api.objects import copy_of
from trainwright.cluster.protocol import Listing

TRAINER, JOBSET = "/apis/trainer.kubeflow.org/v1alpha1", "/apis/jobset.x-k8s.io/v1alpha2"
BOTH = {TRAINER: ("trainjobs", "clustertrainingruntimes", "trainingruntimes"), JOBSET: ("jobsets",)}
ONLY_JOBSET = {JOBSET: ("jobsets",)}
EITHER = ("trainjobs", "jobsets")


class Serving:
    """A cluster that serves those resources, with these Leases and TrainJobs; an error in their place is raised."""

    host, default_namespace = "https://stub", "team"

    def __init__(self, served: Any, leases: Any = (), jobs: Any = (), version: str = "v1.34.1", may_create: Any = EITHER):
        self._served, self._leases, self._jobs, self._version = served, leases, jobs, version
        self._may_create = may_create
        self.asked: list[str] = []

    def request(self, _method: str, path: str, body: Any = None) -> Any:
        self.asked.append(path)
        if path.endswith("selfsubjectaccessreviews"):
            if isinstance(self._may_create, Exception):
                raise self._may_create
            attributes = body["spec"]["resourceAttributes"]
            assert attributes["verb"] == "create"
            assert attributes["namespace"] in ("team", "other")
            return {"status": {"allowed": attributes["resource"] in self._may_create}}
        if path == "/version":
            return {"gitVersion": self._version}
        if path not in self._served:
            raise NotFound("404 page not found")
        return {"resources": [{"name": plural} for plural in self._served[path]]}

    def list(self, kind: Kind, namespace: str | None = None, field_selector: str = "") -> Listing:
        self.asked.append(f"list {kind.plural} {namespace or ''}{field_selector}")
        items = {LEASE: self._leases, TRAINJOB: self._jobs}[kind]
        if isinstance(items, Exception):
            raise items
        named = field_selector.removeprefix("metadata.name=")
        return Listing([aged(item) for item in items if named in ("", item["metadata"]["name"])], "1")

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Any:
        self.asked.append(f"get {kind.plural} {namespace}/{name}")
        if isinstance(self._leases, Exception):
            raise self._leases
        for item in self._leases:
            if (item["metadata"]["namespace"], item["metadata"]["name"]) == (namespace, name):
                return aged(item)
        raise NotFound("not found")


def lease(age: float, name: str = "trainer.kubeflow.org", holder: str = "pod") -> dict[str, Any]:
    """One that was renewed so many seconds before it is looked at first."""
    return {"metadata": {"name": name, "namespace": "kubeflow-system"}, "spec": {"holderIdentity": holder}, "age": age}


def aged(item: dict[str, Any]) -> dict[str, Any]:
    if "age" not in item:
        return item
    renewed = (datetime.now(UTC) - timedelta(seconds=item["age"])).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    item["spec"].setdefault("renewTime", renewed)
    return copy_of(item)
