"""JobSet admission that depends on feature gates: RestartJob actions, elastic sizes, in-place restarts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainwright.api.conditions import is_finished
from trainwright.api.errors import Invalid, Problem
from trainwright.api.kinds import JOBSET
from trainwright.api.objects import Obj, copy_of, name_of
from trainwright.api.rules.job import MAX_INT32
from trainwright.api.schema.check import as_json
from trainwright.controlplane.gates import FeatureGates

_SIZE = ("parallelism", "completions")
_MOST_REPLICAS = 1024
_IN_PLACE = "InPlaceRestart"
_DENIED = 'admission webhook "vjobset.kb.io" denied the request: '


def with_mutable_sizes(old: Obj, new: Obj, gates: FeatureGates) -> Obj:
    """The stored JobSet with the mutable sizes of the new one, so that the immutability check accepts them.

    `new` is the unvalidated object of the request.
    """
    if not gates.ElasticJobSet or is_finished(old):
        return old
    resized = copy_of(old)
    for number, job in enumerate(_jobs(resized)):
        size = _inside(new, "spec", "replicatedJobs", number, "template", "spec")
        if _is_indexed(job) and isinstance(size, dict):
            job["template"]["spec"] |= {part: size[part] for part in _SIZE if part in size}
    return resized


def check_gates(old: Obj | None, new: Obj, gates: FeatureGates) -> None:
    """Validate an admitted JobSet; `old` is None on create. Raises Invalid."""
    found = list(_gated(new, gates)) if old is None else list(_resizing(old, new, gates))
    if found:
        error = Invalid.of(JOBSET.kind, name_of(new), found, JOBSET.group)
        error.message = _DENIED + error.message
        raise error


def _gated(new: Obj, gates: FeatureGates) -> Iterator[Problem]:
    policy = new["spec"].get("failurePolicy") or {}
    for number, rule in enumerate(policy.get("rules") or []):
        if rule["action"] in ("RestartJob", "RestartJobAndIgnoreMaxRestarts"):
            where = f"spec.failurePolicy.rules[{number}].action"
            if not gates.RestartJob:
                yield Problem(where, f"Invalid value: {as_json(rule['action'])}: feature gate RestartJob must be enabled")
                return
            yield from _too_many(new)
            break
    if policy.get("restartStrategy") == _IN_PLACE:
        if gates.InPlaceRestart:
            yield from _in_place(new)
        else:
            where = "spec.failurePolicy.restartStrategy"
            yield Problem(where, f"Invalid value: {as_json(_IN_PLACE)}: feature gate InPlaceRestart must be enabled")


def _too_many(new: Obj) -> Iterator[Problem]:
    """Limit the replicas, because the status counts the restarts of each Job."""
    for number, job in enumerate(_jobs(new)):
        if job.get("replicas", 1) > _MOST_REPLICAS:
            message = f"Invalid value: {job['replicas']}: must be at most {_MOST_REPLICAS} when single jobs are restarted"
            yield Problem(f"spec.replicatedJobs[{number}].replicas", message)


def _in_place(new: Obj) -> Iterator[Problem]:
    """With in-place restart a Job must never replace its pods."""
    for number, job in enumerate(_jobs(new)):
        spec, name = job["template"]["spec"], job["name"]
        where = f"spec.replicatedJobs[{number}].template.spec"
        limit, policy = spec.get("backoffLimit"), spec.get("podReplacementPolicy")
        said = f"replicatedJob {name}: must be set"
        if limit != MAX_INT32:
            demand = f"{said} to {MAX_INT32} (MaxInt32) when in-place restart is enabled"
            yield Problem(f"{where}.backoffLimit", f"Invalid value: {as_json(limit)}: {demand}")
        if policy != "Failed":
            demand = f"{said} to Failed when in-place restart is enabled"
            yield Problem(f"{where}.podReplacementPolicy", f"Invalid value: {as_json(policy)}: {demand}")
        for part in _SIZE:
            if spec.get(part) is None:
                yield Problem(f"{where}.{part}", f"Invalid value: null: {said} when in-place restart is enabled")
        if None not in (spec.get(part) for part in _SIZE) and spec["parallelism"] != spec["completions"]:
            demand = f"replicatedJob {name}: must be equal to parallelism when in-place restart is enabled"
            yield Problem(f"{where}.completions", f"Invalid value: {spec['completions']}: {demand}")


def _resizing(old: Obj, new: Obj, gates: FeatureGates) -> Iterator[Problem]:
    if not gates.ElasticJobSet:
        return
    for number, (job, wanted) in enumerate(zip(_jobs(old), _jobs(new), strict=False)):
        before, after = job["template"]["spec"], wanted["template"]["spec"]
        if not _is_indexed(job) or all(before.get(part) == after.get(part) for part in _SIZE):
            continue
        where = f"spec.replicatedJobs[{number}].template.spec"
        parallelism, completions = after.get("parallelism"), after.get("completions")
        if parallelism is not None and parallelism < 1:
            demand = "parallelism must be at least 1 for Elastic Indexed Jobs"
            yield Problem(f"{where}.parallelism", f"Invalid value: {parallelism}: {demand}")
        if parallelism != completions:
            demand = "completions must be equal to parallelism for Elastic Indexed Jobs"
            yield Problem(f"{where}.completions", f"Invalid value: {as_json(completions)}: {demand}")


def _inside(value: Any, *path: str | int) -> Any:
    """The value at a path of an unvalidated object, or None."""
    for step in path:
        if isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        elif isinstance(value, dict) and isinstance(step, str):
            value = value.get(step)
        else:
            return None
    return value


def _jobs(jobset: Obj) -> list[Obj]:
    jobs: list[Obj] = (jobset.get("spec") or {}).get("replicatedJobs") or []
    return jobs


def _is_indexed(job: Obj) -> bool:
    return bool(job["template"]["spec"].get("completionMode") == "Indexed")
