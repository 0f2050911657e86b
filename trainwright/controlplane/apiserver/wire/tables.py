"""Renders objects as Tables for `kubectl get`: the server defines the columns of each kind and their cells."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trainwright.api import kinds
from trainwright.api.conditions import condition, is_true
from trainwright.api.event_forms import as_stored
from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj, is_deleting, name_of
from trainwright.api.times import parse_time
from trainwright.controlplane.apiserver.resources.registry import strategy_of
from trainwright.controlplane.apiserver.wire.cells import NONE, UNKNOWN, age, human_duration, pod_cells
from trainwright.controlplane.apiserver.wire.requests import IncludeObject

Cells = Callable[[Obj, datetime], list[Any]]


@dataclass(frozen=True)
class Columns:
    """Column headings (`*` marks those of `-o wide`) and the function that computes the cells."""

    headings: tuple[str, ...]
    cells: Cells

    def definitions(self, age_type: str) -> list[Obj]:
        return [_definition(heading, age_type) for heading in self.headings]


def table(
    kind: Kind,
    objects: Iterable[Obj],
    meta: Obj,
    now: datetime,
    *,
    include: IncludeObject = "Metadata",
    with_columns: bool = True,
) -> Obj:
    """A Table of objects. Without `with_columns` it has no column definitions, as in all watch events but the first."""
    columns = COLUMNS.get(kind, _DEFAULT)
    age_type = "date" if strategy_of(kind).custom else "string"
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": meta,
        "columnDefinitions": columns.definitions(age_type) if with_columns else None,
        "rows": [{"cells": columns.cells(obj, now), "object": _included(obj, include)} for obj in objects],
    }


def partial_metadata(obj: Obj) -> Obj:
    """An object as PartialObjectMetadata."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def _included(obj: Obj, include: IncludeObject) -> Obj | None:
    if include == "None":
        return None
    return obj if include == "Object" else partial_metadata(obj)


def _definition(heading: str, age_type: str) -> Obj:
    name = heading.lstrip("*")
    return {
        "name": name,
        "type": age_type if name == "Age" else "string",
        "format": "name" if name == "Name" else "",
        "description": "",
        "priority": int(heading.startswith("*")),
    }


def _age(obj: Obj, now: datetime) -> str:
    created = obj["metadata"].get("creationTimestamp")
    return age(created, now) if created else UNKNOWN


def _pod(pod: Obj, now: datetime) -> list[Any]:
    ready, status, restarts, *wide = pod_cells(pod, now)
    return [name_of(pod), ready, status, restarts, _age(pod, now), *wide]


def _job(job: Obj, now: datetime) -> list[Any]:
    spec, status = job.get("spec") or {}, job.get("status") or {}
    done, wanted, parallel = status.get("succeeded") or 0, spec.get("completions"), spec.get("parallelism") or 0
    completions = f"{done}/{wanted}" if wanted is not None else f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"
    duration = ""
    if status.get("startTime"):
        end = parse_time(status["completionTime"]) if status.get("completionTime") else now
        duration = human_duration((end - parse_time(status["startTime"])).total_seconds())
    containers = ((spec.get("template") or {}).get("spec") or {}).get("containers") or []
    images = ",".join(str(container.get("image", "")) for container in containers)
    selector = _pairs((spec.get("selector") or {}).get("matchLabels"))
    names = ",".join(str(container.get("name", "")) for container in containers)
    return [name_of(job), _job_status(job), completions, duration, _age(job, now), names, images, selector]


def _job_status(job: Obj) -> str:
    for kind in ("Complete", "Failed"):
        if is_true(job, kind):
            return kind
    if is_deleting(job):
        return "Terminating"
    for kind in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if is_true(job, kind):
            return kind
    return "Running"


def _trainjob(job: Obj, now: datetime) -> list[Any]:
    conditions = (job.get("status") or {}).get("conditions") or []
    return [name_of(job), conditions[-1].get("type") if conditions else None, _age(job, now)]


def _jobset(jobset: Obj, now: datetime) -> list[Any]:
    status = jobset.get("status") or {}
    completed = condition(jobset, "Completed")
    suspend = (jobset.get("spec") or {}).get("suspend")
    return [
        name_of(jobset),
        status.get("terminalState"),
        None if status.get("restarts") is None else str(status["restarts"]),
        completed.get("status") if completed else None,
        None if suspend is None else str(suspend).lower(),
        _age(jobset, now),
    ]


def _event(event: Obj, now: datetime) -> list[Any]:
    series, source, involved = event.get("series") or {}, event.get("source") or {}, event.get("involvedObject") or {}
    first = event.get("firstTimestamp") or event.get("eventTime")
    last = series.get("lastObservedTime") or event.get("lastTimestamp") or first
    component = source.get("component") or event.get("reportingComponent") or ""
    host = source.get("host") or (event.get("reportingInstance") if not source.get("component") else "") or ""
    return [
        age(last, now) if last else UNKNOWN,
        event.get("type") or "",
        event.get("reason") or "",
        f"{str(involved.get('kind') or '').lower()}/{involved.get('name') or ''}",
        involved.get("fieldPath") or "",
        f"{component}, {host}" if host else component,
        str(event.get("message") or "").strip(),
        age(first, now) if first else UNKNOWN,
        series.get("count") or event.get("count") or 1,
        name_of(event),
    ]


def _service(service: Obj, now: datetime) -> list[Any]:
    spec = service.get("spec") or {}
    external = spec.get("externalName") or ",".join(spec.get("externalIPs") or []) or NONE
    ports = ",".join(f"{port.get('port')}/{port.get('protocol', 'TCP')}" for port in spec.get("ports") or [])
    return [
        name_of(service),
        spec.get("type") or "ClusterIP",
        spec.get("clusterIP") or NONE,
        external,
        ports or NONE,
        _age(service, now),
        _pairs(spec.get("selector")),
    ]


def _claim(claim: Obj, now: datetime) -> list[Any]:
    spec, status = claim.get("spec") or {}, claim.get("status") or {}
    bound = bool(spec.get("volumeName"))
    phase = "Terminating" if is_deleting(claim) else status.get("phase") or ""
    modes = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
    return [
        name_of(claim),
        phase,
        spec.get("volumeName") or "",
        (status.get("capacity") or {}).get("storage", "") if bound else "",
        ",".join(modes.get(mode, mode) for mode in status.get("accessModes") or []) if bound else "",
        spec.get("storageClassName") or "",
        spec.get("volumeAttributesClassName") or "<unset>",
        _age(claim, now),
        spec.get("volumeMode") or "Filesystem",
    ]


def _node(node: Obj, now: datetime) -> list[Any]:
    prefix = "node-role.kubernetes.io/"
    roles = sorted(key.removeprefix(prefix) for key in node["metadata"].get("labels") or {} if key.startswith(prefix))
    ready = "Ready" if is_true(node, "Ready") else "NotReady" if condition(node, "Ready") else "Unknown"
    if (node.get("spec") or {}).get("unschedulable"):
        ready += ",SchedulingDisabled"
    info = (node.get("status") or {}).get("nodeInfo") or {}
    addresses = {entry.get("type"): entry.get("address") for entry in (node.get("status") or {}).get("addresses") or []}
    return [
        name_of(node),
        ready,
        ",".join(roles) or NONE,
        _age(node, now),
        info.get("kubeletVersion") or "",
        addresses.get("InternalIP") or NONE,
        info.get("osImage") or UNKNOWN,
        info.get("kernelVersion") or UNKNOWN,
    ]


def _template(template: Obj, _now: datetime) -> list[Any]:
    inner = template.get("template") or {}
    containers = (inner.get("spec") or {}).get("containers") or []
    names, images = (",".join(str(container.get(part, "")) for container in containers) for part in ("name", "image"))
    return [name_of(template), names, images, _pairs((inner.get("metadata") or {}).get("labels"))]


def _priority(priority: Obj, now: datetime) -> list[Any]:
    return [
        name_of(priority),
        priority.get("value") or 0,
        bool(priority.get("globalDefault")),
        _age(priority, now),
        priority.get("preemptionPolicy") or "PreemptLowerPriority",
    ]


def _pairs(labels: Obj | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or NONE


_DEFAULT = Columns(("Name", "Age"), lambda obj, now: [name_of(obj), _age(obj, now)])
_EVENT_HEADINGS = ("Last Seen", "Type", "Reason", "Object", "*Subobject", "*Source", "Message", "*First Seen", "*Count", "*Name")
COLUMNS = {
    kinds.POD: Columns(
        ("Name", "Ready", "Status", "Restarts", "Age", "*IP", "*Node", "*Nominated Node", "*Readiness Gates"),
        _pod,
    ),
    kinds.JOB: Columns(("Name", "Status", "Completions", "Duration", "Age", "*Containers", "*Images", "*Selector"), _job),
    kinds.TRAINJOB: Columns(("Name", "State", "Age"), _trainjob),
    kinds.JOBSET: Columns(("Name", "TerminalState", "Restarts", "Completed", "Suspended", "Age"), _jobset),
    kinds.EVENT: Columns(_EVENT_HEADINGS, _event),
    kinds.NEW_EVENT: Columns(_EVENT_HEADINGS, lambda event, now: _event(as_stored(event), now)),
    kinds.SERVICE: Columns(("Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "*Selector"), _service),
    kinds.CLAIM: Columns(
        ("Name", "Status", "Volume", "Capacity", "Access Modes", "StorageClass", "VolumeAttributesClass", "Age", "*VolumeMode"),
        _claim,
    ),
    kinds.NODE: Columns(("Name", "Status", "Roles", "Age", "Version", "*Internal-IP", "*OS-Image", "*Kernel-Version"), _node),
    kinds.SECRET: Columns(
        ("Name", "Type", "Data", "Age"),
        lambda obj, now: [name_of(obj), obj.get("type") or "", len(obj.get("data") or {}), _age(obj, now)],
    ),
    kinds.CONFIG_MAP: Columns(
        ("Name", "Data", "Age"),
        lambda obj, now: [name_of(obj), len(obj.get("data") or {}) + len(obj.get("binaryData") or {}), _age(obj, now)],
    ),
    kinds.POD_TEMPLATE: Columns(("Name", "Containers", "Images", "Pod Labels"), _template),
    kinds.PRIORITY_CLASS: Columns(("Name", "Value", "Global-Default", "Age", "PreemptionPolicy"), _priority),
    kinds.RUNTIME_CLASS: Columns(
        ("Name", "Handler", "Age"), lambda obj, now: [name_of(obj), obj.get("handler") or "", _age(obj, now)]
    ),
    kinds.LIMIT_RANGE: Columns(("Name", "Created At"), lambda obj, now: [name_of(obj), obj["metadata"].get("creationTimestamp")]),
    kinds.DEFINITION: Columns(("Name", "Created At"), lambda obj, now: [name_of(obj), obj["metadata"].get("creationTimestamp")]),
    kinds.NAMESPACE: Columns(
        ("Name", "Status", "Age"),
        lambda obj, now: [name_of(obj), (obj.get("status") or {}).get("phase") or "", _age(obj, now)],
    ),
    kinds.LEASE: Columns(
        ("Name", "Holder", "Age"),
        lambda obj, now: [name_of(obj), (obj.get("spec") or {}).get("holderIdentity") or "", _age(obj, now)],
    ),
}
