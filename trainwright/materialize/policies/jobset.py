"""Builds the JobSet: applies initializers and trainer overrides by ancestor label.

Source: Trainer's jobset plugin (reference sections 2.16, 2.17; rules 4 to 7 of 4.2).
"""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.api import names
from trainwright.api.errors import Problem
from trainwright.api.objects import Obj
from trainwright.materialize.draft import KNOWN_SOURCES, Draft, PodSet, owned_object, trainer_env, upsert, upsert_env
from trainwright.materialize.go_serialization import quantity_error

_INITIALIZERS = {"dataset": names.ANCESTOR_DATASET, "model": names.ANCESTOR_MODEL}


class JobSetPolicy:
    name = "jobset"

    def validate(self, draft: Draft) -> Iterator[Problem]:
        for field, step in _INITIALIZERS.items():
            if (draft.trainjob["spec"].get("initializer") or {}).get(field) is not None:
                yield from _step_problems(draft, field, step)
                yield from _source_problems(draft.trainjob["spec"]["initializer"][field], f"spec.initializer.{field}")
        yield from _source_problems(draft.trainer or {}, "spec.trainer")

    def before_build(self, draft: Draft) -> None:
        for pods in draft.pod_sets:
            spec = pods.job["template"]["spec"]
            spec["parallelism"] = spec["completions"] = pods.count

    def check(self, draft: Draft) -> Iterator[Problem]:
        for pods in draft.pod_sets:
            for group in ("containers", "initContainers"):
                for index, container in enumerate(pods.pod_spec.get(group) or []):
                    if _has_conflicting_ports(container.get("ports") or []):
                        position = [job["name"] for job in draft.jobset_spec["replicatedJobs"]].index(pods.name)
                        where = (
                            f"spec.template.spec.replicatedJobs[{position}].template.spec.template.spec.{group}[{index}].ports"
                        )
                        yield Problem(
                            where, "Invalid value: two ports with the same number, or without a name, are taken for one"
                        )

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
        jobset = owned_object(draft, "jobset.x-k8s.io/v1alpha2", "JobSet", draft.name)
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
        if trainer.get(field) == []:  # explicitly empty; empty lists are not serialized
            container.pop(field, None)
        elif trainer.get(field) is not None:
            container[field] = trainer[field] if field == "image" else list(trainer[field])


def _step_problems(draft: Draft, field: str, step: str) -> Iterator[Problem]:
    pods = draft.pods_named(step)
    where = "spec.runtimeRef"
    condition_text = f"when trainJob is configured with input {field}Config"
    if pods is None:
        yield Problem(where, f"Invalid value: must have {step} job {condition_text}")
        return
    container = pods.container(step)
    if container is None:
        yield Problem(where, f"Invalid value: must have container with name - {step} in the {step} job")
    elif not any(mount.get("name") == names.INITIALIZER_VOLUME for mount in container.get("volumeMounts") or []):
        yield Problem(where, f"Invalid value: the container {step} must have a volumeMount named {names.INITIALIZER_VOLUME}")


def _source_problems(part: Obj, where: str) -> Iterator[Problem]:
    """Yield variables with a source unknown to Trainer. It would drop the source, and the API server would reject the Job."""
    for index, variable in enumerate(part.get("env") or []):
        source = variable.get("valueFrom") or {}
        divisor = (source.get("resourceFieldRef") or {}).get("divisor")
        if divisor is not None and (reason := quantity_error(divisor)):
            yield Problem(f"{where}.env[{index}].valueFrom.resourceFieldRef.divisor", f"Invalid value: {reason}")
        if source and not set(source) & set(KNOWN_SOURCES):
            known = ", ".join(KNOWN_SOURCES)
            yield Problem(
                f"{where}.env[{index}].valueFrom", f"Invalid value: {', '.join(source)} is not supported; supported: {known}"
            )


def _has_conflicting_ports(ports: list[Obj]) -> bool:
    """Whether Trainer would overwrite a port: it matches by number or by name, and missing names match too."""
    numbers, port_names = [port.get("containerPort") for port in ports], [port.get("name") for port in ports]
    return len(ports) > 1 and (len(set(numbers)) < len(ports) or len(set(port_names)) < len(ports))
