"""Defaults of JobSets (by their webhook) and Jobs (by the API server) that depend on other fields."""

from __future__ import annotations

from trainwright.api import names
from trainwright.api.defaults.pod import pod_spec_defaults
from trainwright.api.objects import Obj, labels_of, name_of, uid_of
from trainwright.api.schema.published import struct_named
from trainwright.api.schema.round_trip import rewrite

UNLIMITED = 2**31 - 1


def jobset_defaults(jobset: Obj, old: Obj | None) -> None:
    """Set, in place, the defaults of the JobSet webhook on create, and the values that it writes for missing required fields.

    Templates are defaulted on every write, because a client that sends whole lists omits earlier defaults.
    """
    spec = jobset.setdefault("spec", {})
    if old is None:
        _fill_policies(spec)
    for job in spec.get("replicatedJobs") or []:
        template = job.setdefault("template", {}).setdefault("spec", {})
        template.setdefault("completionMode", "Indexed")
        template.setdefault("template", {}).setdefault("spec", {}).setdefault("restartPolicy", "OnFailure")
    rewrite(struct_named("JobSet"), jobset)


def _fill_policies(spec: Obj) -> None:
    spec.setdefault("successPolicy", {"operator": "All"})
    spec.setdefault("startupPolicy", {"startupPolicyOrder": "AnyOrder"})
    network = spec.setdefault("network", {})
    network.setdefault("enableDNSHostnames", True)
    network.setdefault("publishNotReadyAddresses", True)
    for index, rule in enumerate((spec.get("failurePolicy") or {}).get("rules") or []):
        rule["name"] = rule.get("name") or f"failurePolicyRule{index}"
    for policy in spec.get("volumeClaimPolicies") or []:
        policy.setdefault("retentionPolicy", {"whenDeleted": "Delete"})


def job_defaults(job: Obj, old: Obj | None = None) -> None:
    """Set, in place, the API server's defaults of a batch/v1 Job.

    Selector and pod labels need the UID; they are not set until the object has one.
    """
    spec = job.setdefault("spec", {})
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("backoffLimit", UNLIMITED if "backoffLimitPerIndex" in spec else 6)
    spec.setdefault("suspend", False)
    spec.setdefault("podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed")
    template = spec.setdefault("template", {})
    if old is None and not spec.get("manualSelector") and uid_of(job):
        spec["manualSelector"] = False
        chosen = (spec.get("selector") or {}).get("matchLabels") or {}
        spec["selector"] = {**(spec.get("selector") or {})}
        spec["selector"]["matchLabels"] = {**chosen, names.CONTROLLER_UID_LABEL: uid_of(job)}
        labels = template.setdefault("metadata", {}).setdefault("labels", {})
        labels |= {
            names.CONTROLLER_UID_LABEL: uid_of(job),
            names.JOB_NAME_LABEL: name_of(job),
            "controller-uid": uid_of(job),
            "job-name": name_of(job),
        }
    pod_spec_defaults(template.setdefault("spec", {}))


def job_labels(job: Obj) -> None:
    """Copy, in place, the labels of the pod template to a Job without labels, as a server does when it decodes the Job."""
    labels = labels_of(job["spec"]["template"])
    if labels and not labels_of(job):
        job["metadata"]["labels"] = dict(labels)
