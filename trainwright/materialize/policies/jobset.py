"""The JobSet itself: initializers and trainer overrides applied by ancestor label, then everything written out.

Source: Trainer's jobset plugin (reference sections 2.16, 2.17; rules 4 to 7 of 4.2).
"""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.api import names
from trainwright.api.errors import Problem
from trainwright.api.objects import Obj
from trainwright.materialize.draft import Draft, PodSet
from trainwright.materialize.ownership import owned
from trainwright.materialize.upsert import trainer_env, upsert, upsert_env

_INITIALIZERS = {"dataset": names.ANCESTOR_DATASET, "model": names.ANCESTOR_MODEL}


class JobSetPolicy:
    name = "jobset"

    def validate(self, draft: Draft) -> Iterator[Problem]:
        for field, step in _INITIALIZERS.items():
            if (draft.trainjob["spec"].get("initializer") or {}).get(field) is not None:
                yield from _step_problems(draft, field, step)

    def before_build(self, draft: Draft) -> None:
        for pods in draft.pod_sets:
            spec = pods.job["template"]["spec"]
            spec["parallelism"] = spec["completions"] = pods.count

    def build(self, draft: Draft) -> None:
        for pods in draft.pod_sets:
            for field, step in _INITIALIZERS.items():
                if pods.ancestor == step:
                    _apply_initializer(pods, step, (draft.trainjob["spec"].get("initializer") or {}).get(field))
            if pods.ancestor == names.ANCESTOR_TRAINER:
                _apply_trainer(pods, draft.trainer or {})
            container = pods.container(names.NODE)
            if container is not None and draft.is_trained_by(pods):
                upsert_env(container, trainer_env((draft.trainer or {}).get("env")))
        spec = draft.jobset_spec
        spec["suspend"] = bool(draft.trainjob["spec"].get("suspend"))
        jobset = owned(draft, "jobset.x-k8s.io/v1alpha2", "JobSet", draft.name)
        if draft.labels:
            jobset["metadata"]["labels"] = draft.labels
        if draft.annotations:
            jobset["metadata"]["annotations"] = draft.annotations
        draft.companions.append(jobset | {"spec": spec})


def _apply_initializer(pods: PodSet, step: str, initializer: Obj | None) -> None:
    pods.job["replicas"] = 1
    container = pods.container(step)
    if initializer is None or container is None:
        return
    if initializer.get("storageUri") is not None:
        upsert(container.setdefault("env", []), {"name": "STORAGE_URI", "value": initializer["storageUri"]}, "name")
    upsert_env(container, trainer_env(initializer.get("env")))
    secret = initializer.get("secretRef")
    if secret is not None:
        container.setdefault("envFrom", []).append({"secretRef": dict(secret)})


def _apply_trainer(pods: PodSet, trainer: Obj) -> None:
    pods.job["replicas"] = 1
    container = pods.container(names.NODE)
    if container is None:
        return
    for field in ("image", "command", "args"):
        if trainer.get(field) is not None:
            container[field] = trainer[field]
            if container[field] == []:  # said to be nothing, and an empty list is not sent
                del container[field]


def _step_problems(draft: Draft, field: str, step: str) -> Iterator[Problem]:
    pods = draft.pods_named(step)
    where = "spec.runtimeRef"
    wanted = f"when trainJob is configured with input {field}Config"
    if pods is None:
        yield Problem(where, f"Invalid value: must have {step} job {wanted}")
        return
    container = pods.container(step)
    if container is None:
        yield Problem(where, f"Invalid value: must have container with name - {step} in the {step} job")
    elif not any(mount.get("name") == names.INITIALIZER_VOLUME for mount in container.get("volumeMounts") or []):
        yield Problem(where, f"Invalid value: the container {step} must have a volumeMount named {names.INITIALIZER_VOLUME}")
