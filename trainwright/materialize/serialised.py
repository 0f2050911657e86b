"""The form in which Trainer's Go types write a JobSet spec: some empty fields always there, others never, quantities canonical."""

from __future__ import annotations

from trainwright.api.objects import Obj
from trainwright.api.quantities import canonical


def as_applied(spec: Obj) -> Obj:
    """A JobSet spec in that form, as a new object."""
    written = {key: value for key, value in spec.items() if value not in ([], None)}
    if "replicatedJobs" in written:
        written["replicatedJobs"] = [_replicated_job(job) for job in written["replicatedJobs"]]
    return written


def _replicated_job(job: Obj) -> Obj:
    written = {key: value for key, value in job.items() if value not in ([], None)}
    template = written["template"]
    job_spec = dict(template["spec"])
    pods = job_spec["template"]
    job_spec["template"] = {"metadata": _metadata(pods.get("metadata")), "spec": _pod_spec(pods.get("spec") or {})}
    written["template"] = {"metadata": _metadata(template.get("metadata")), "spec": job_spec}
    return written


def _metadata(metadata: Obj | None) -> Obj:
    return {key: value for key, value in (metadata or {}).items() if value not in ({}, [], None)}


def _pod_spec(spec: Obj) -> Obj:
    written = {key: value for key, value in spec.items() if value not in ([], None) and not (key == "nodeSelector" and not value)}
    for group in ("containers", "initContainers"):
        if group in written:
            written[group] = [_container(container) for container in written[group]]
    return written


def _container(container: Obj) -> Obj:
    written = {key: value for key, value in container.items() if value not in ([], None, "")}
    written["resources"] = _resources(container.get("resources") or {})
    return written


def _resources(resources: Obj) -> Obj:
    written: Obj = {}
    for key, value in resources.items():
        if key in ("limits", "requests") and value:
            written[key] = {name: canonical(amount) for name, amount in value.items()}
        elif value:
            written[key] = value
    return written
