"""Resolves a request: finds its runtime, checks that both fit, packs its code. What follows needs neither found out again."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from trainwright.api import names
from trainwright.api.objects import Obj, labels_of, name_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.code.code_package import pack_code
from trainwright.jobs.manifest.own_program import own_program
from trainwright.jobs.manifest.resolved_request import ResolvedRequest
from trainwright.jobs.manifest.workspace_mounts import mounted_inputs
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.submit.compatibility import check_compatible, compatibility_warnings, steps_of_runtime
from trainwright.jobs.trainers.builtin_trainers import program_of, runtime_of, trainer_for
from trainwright.runtimes import ResolvedRuntime, resolve_runtime
from trainwright.submission.runtime_lookup import resolve_in_cluster

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RuntimeChoice:
    """The runtime that a request was resolved to: `found` is where, `steps` are its ancestor labels."""

    kind: str
    name: str
    found: str
    framework: str = ""
    steps: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind} {self.name} ({self.found})"


def resolve(request: TrainRequest, runtime: Obj) -> ResolvedRequest:
    """Return a request with this runtime, checked, and its code packed.

    Raises IncompatibleRuntime or InvalidSettings with every problem, NoSuchTrainer, BadCode.
    """
    own = own_program(request, runtime)
    trainer = trainer_for(request, runtime, own)
    program, problems = program_of(trainer, request, runtime, own)
    resolved = ResolvedRequest(request, runtime, trainer, program, mounted_inputs(request, runtime))
    check_compatible(resolved, problems)
    code = pack_code(request.code, request.command) if request.code else None
    return replace(resolved, code=code, warnings=tuple(compatibility_warnings(resolved)))


def resolve_with(
    cluster: Cluster | None, request: TrainRequest, namespace: str, *, bundled: bool = True
) -> tuple[ResolvedRequest, RuntimeChoice]:
    """Return a request with the runtime that it names, and how that was chosen.

    The runtime is the cluster's, if there is one, else a bundled one if `bundled`. Raises
    RuntimeNotFound with the existing names, the errors of `resolve`, and ApiError.
    """
    found = _runtime(cluster, {"kind": request.kind_of_runtime, "name": runtime_of(request)}, namespace, bundled)
    resolved = resolve(request, found.runtime)
    choice = RuntimeChoice(
        kind=request.kind_of_runtime,
        name=name_of(found.runtime),
        found=found.source if request.kind_of_runtime == "ClusterTrainingRuntime" else f"namespace {namespace}",
        framework=labels_of(found.runtime).get(names.FRAMEWORK_LABEL, ""),
        steps=tuple(steps_of_runtime(found.runtime)),
    )
    log.info(
        "event=runtime_resolved kind=%s name=%s found=%s steps=%s", choice.kind, choice.name, choice.found, ",".join(choice.steps)
    )
    return resolved, choice


def _runtime(cluster: Cluster | None, reference: Obj, namespace: str, bundled: bool) -> ResolvedRuntime:
    if cluster is None:
        return resolve_runtime(reference, lambda _kind, _name: None, bundled=bundled)
    return resolve_in_cluster(cluster, reference, namespace, bundled=bundled)
